"""A worker with a tracer, in a process of its own: prints its spans, one line of JSON each."""

import sys

from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import bucketq

exporter = InMemorySpanExporter()
provider = TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(exporter))
trace.set_tracer_provider(provider)  # Also in the process of a handler, which imports this.
worker = bucketq.Worker()


@worker.handler("mail")
async def mail(payload: str, context: bucketq.Context) -> None:
    if payload == "fails":
        raise bucketq.GiveUp("no such address")
    await context.push("log", payload)


@worker.handler("log", run_in="thread")
def log(payload: str) -> None:
    assert payload == "ada"


@worker.handler("resize", run_in="process")
def resize(context: bucketq.Context) -> None:
    context.push("log", "ada", tags={"from": "process"})


if __name__ == "__main__":
    worker.configure(sys.argv[1])
    worker.run_sync(burst=True)
    for span in exporter.get_finished_spans():
        sys.stdout.write(span.to_json(indent=None) + "\n")
