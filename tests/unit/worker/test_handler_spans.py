"""Traces: a push and the handler of its job are in one trace, in whichever process each is."""

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

import bucketq
from bucketq.queue import trace_context
from tests.environ import child_environ

EXPORTER = InMemorySpanExporter()
PROVIDER = TracerProvider()
PROVIDER.add_span_processor(SimpleSpanProcessor(EXPORTER))
PROGRAM = Path(__file__).with_name("traced_program.py")


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> Iterator[InMemorySpanExporter]:
    """Trace, in this test alone: a program may set its provider once."""
    monkeypatch.setattr(trace, "get_tracer_provider", lambda: PROVIDER)
    EXPORTER.clear()
    yield EXPORTER
    EXPORTER.clear()


def named(spans: InMemorySpanExporter) -> dict[str, ReadableSpan]:
    return {span.name: span for span in spans.get_finished_spans()}


def attributes(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})


def ids(span: ReadableSpan) -> tuple[int, int]:
    context = span.get_span_context()
    assert context is not None
    return context.trace_id, context.span_id


def output_of(*arguments: str) -> str:
    command = [sys.executable, *arguments]
    return subprocess.check_output(command, env=child_environ(), text=True, timeout=60)


async def test_one_trace_goes_through_two_processes(
    spans: InMemorySpanExporter, tmp_path: Path
) -> None:
    url = f"file://{tmp_path}/queue.json"
    with PROVIDER.get_tracer("test").start_as_current_span("request") as request:
        trace_id = f"0x{request.get_span_context().trace_id:032x}"
        async with bucketq.connect(url, mode="direct") as queue:
            job_id = await queue.push("mail", "ada")
            await queue.push("mail", "fails")
            resized = await queue.push("resize", None)
    printed = await asyncio.to_thread(output_of, str(PROGRAM), url)
    found = [json.loads(line) for line in printed.splitlines()]
    assert {span["context"]["trace_id"] for span in found} == {trace_id}
    first = next(s for s in found if s["attributes"]["messaging.message.id"] == job_id)
    pushes = [span for span in spans.get_finished_spans() if span.name == "push mail"]
    push = next(s for s in pushes if attributes(s)["messaging.message.id"] == job_id)
    assert (first["name"], first["kind"]) == ("process mail", "SpanKind.CONSUMER")
    assert first["parent_id"] == f"0x{ids(push)[1]:016x}"
    assert first["links"][0]["context"]["span_id"] == first["parent_id"]
    # What a handler pushes is a child of its own span.
    logs = {span["parent_id"] for span in found if span["name"] == "process log"}
    assert len(logs) == 2
    # The other one is the child of a span in a third process, which does not print it.
    (other,) = logs - {first["context"]["span_id"]}
    pushed = next(s for s in spans.get_finished_spans() if s.name == "push resize")
    assert attributes(pushed)["messaging.message.id"] == resized
    assert other not in {f"0x{ids(pushed)[1]:016x}", *(s["context"]["span_id"] for s in found)}
    (failed,) = [span for span in found if span["status"]["status_code"] == "ERROR"]
    assert failed["status"]["description"] == "GiveUp: no such address"
    assert failed["attributes"]["error.type"] == "GiveUp"
    assert [event["name"] for event in failed["events"]] == ["exception"]


async def test_spans_have_the_attributes_of_the_conventions(spans: InMemorySpanExporter) -> None:
    worker = bucketq.Worker("memory://traced")

    @worker.handler("mail")
    async def mail(payload: int) -> None: ...

    async with worker.connect() as queue:
        job_id = await queue.push("mail", 1)
        await worker.run(burst=True)
    push, process = (named(spans)[name] for name in ("push mail", "process mail"))
    assert (push.kind, process.kind) == (SpanKind.PRODUCER, SpanKind.CONSUMER)
    shared = {
        "messaging.system": "bucketq",
        "messaging.destination.name": "memory://traced",
        "messaging.message.id": job_id,
        "bucketq.job.kind": "mail",
    }
    operation = {"messaging.operation.name": "push", "messaging.operation.type": "send"}
    assert attributes(push) == shared | operation
    assert attributes(process) == shared | {
        "messaging.operation.name": "process",
        "messaging.operation.type": "process",
        "messaging.client.id": worker.name,
        "bucketq.job.attempt": 1,
        "bucketq.job.failures": 0,
    }


async def test_each_attempt_has_a_span_of_its_own(spans: InMemorySpanExporter) -> None:
    worker = bucketq.Worker("memory://traced")
    attempts = []

    @worker.handler("mail", backoff=bucketq.Backoff(base_s=0.0))
    async def mail(context: bucketq.Context) -> None:
        attempts.append(context.attempt)
        if len(attempts) == 1:
            raise bucketq.Snooze(0.0)
        if len(attempts) == 2:
            raise OSError("busy")

    async with worker.connect() as queue:
        await queue.push("mail", None)
        await worker.run(burst=True)
    (push,) = [span for span in spans.get_finished_spans() if span.name == "push mail"]
    runs = [span for span in spans.get_finished_spans() if span.name == "process mail"]
    assert [attributes(span)["bucketq.job.attempt"] for span in runs] == [1, 2, 3]
    assert [attributes(span)["bucketq.job.failures"] for span in runs] == [0, 0, 1]
    codes = [StatusCode.UNSET, StatusCode.ERROR, StatusCode.UNSET]
    assert [span.status.status_code for span in runs] == codes
    assert [event.name for span in runs for event in span.events] == ["snoozed", "exception"]
    assert {span.parent.span_id for span in runs if span.parent} == {ids(push)[1]}


async def test_several_jobs_share_the_span_of_their_push(spans: InMemorySpanExporter) -> None:
    async with bucketq.connect("memory://") as queue:
        specs = [bucketq.JobSpec(kind=kind, payload=1) for kind in ("a", "b")]
        pushed = await queue.push_many(specs)
        marks = {(await queue.get(job_id)).traceparent for job_id in pushed}
    push = named(spans)["push"]
    assert (push.name, attributes(push)["messaging.batch.message_count"]) == ("push", 2)
    context = push.get_span_context()
    assert context is not None
    assert marks == {"00-{:032x}-{:016x}-{:02x}".format(*ids(push), context.trace_flags)}


async def test_a_push_that_is_refused_is_an_error(spans: InMemorySpanExporter) -> None:
    async with bucketq.connect("memory://") as queue:
        with pytest.raises(bucketq.InvalidRequestError):
            await queue.push("mail", 1, priority=2**40)
    (push,) = spans.get_finished_spans()
    assert push.status.status_code == StatusCode.ERROR
    assert attributes(push)["error.type"] == "InvalidRequestError"


async def test_a_job_that_was_not_traced_begins_a_trace(
    spans: InMemorySpanExporter, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker = bucketq.Worker("memory://traced")

    @worker.handler("mail")
    async def mail() -> None: ...

    async with worker.connect() as queue:
        with monkeypatch.context() as patch:
            patch.setattr(trace_context, "is_imported", lambda: False)
            job_id = await queue.push("mail", None)
        assert (await queue.get(job_id)).traceparent is None
        with PROVIDER.get_tracer("test").start_as_current_span("worker"):
            await worker.run(burst=True)
    assert named(spans)["process mail"].parent is None


async def test_a_span_of_another_tracer_is_carried_without_a_provider() -> None:
    context = trace.SpanContext(5, 7, is_remote=True, trace_flags=trace.TraceFlags(0))
    async with bucketq.connect("memory://") as queue:
        with trace.use_span(trace.NonRecordingSpan(context)):
            inside = await queue.push("mail", 1)
        outside = await queue.push("mail", 1)
        found = [(await queue.get(job_id)).traceparent for job_id in (inside, outside)]
    assert found == [f"00-{5:032x}-{7:016x}-00", None]


def test_opentelemetry_is_never_imported_first() -> None:
    program = (
        "import asyncio, sys, bucketq\n"
        "worker = bucketq.Worker('memory://')\n"
        "@worker.handler('mail')\n"
        "async def mail(context: bucketq.Context): await context.push('log', 1)\n"
        "async def main():\n"
        "    async with worker.connect() as queue:\n"
        "        await queue.push('mail', 1)\n"
        "        await worker.run(burst=True)\n"
        "asyncio.run(main())\n"
        "print([name for name in sys.modules if name.startswith('opentelemetry')])\n"
    )
    assert output_of("-c", program) == "[]\n"
