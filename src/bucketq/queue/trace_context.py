"""Spans of pushes, if the program traces with OpenTelemetry, and what jobs carry of them.

Without it a push costs one more lookup in a dictionary, and nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

from msgspec.structs import replace

from bucketq.model.base import NewJob
from bucketq.tracing import SYSTEM, find_tracer, is_imported, queue_name

T = TypeVar("T")


def is_traced() -> bool:
    """Whether a push should be traced: there is a provider, or the caller is in a span."""
    return is_imported() and (find_tracer() is not None or current_traceparent() is not None)


def current_traceparent() -> str | None:
    """Return the current span as W3C Trace Context writes it; None if there is none."""
    if not is_imported():
        return None
    from opentelemetry import trace  # noqa: PLC0415 - imported by the program already

    return _traceparent(trace.get_current_span().get_span_context())


def _traceparent(span: Any) -> str | None:
    if not span.is_valid:
        return None
    return f"00-{span.trace_id:032x}-{span.span_id:016x}-{span.trace_flags & 0xFF:02x}"


@contextmanager
def push_span(
    where: str, build: Callable[[T], tuple[NewJob, ...]]
) -> Generator[Callable[[T], tuple[NewJob, ...]], None, None]:
    """Run the body, a push to the queue ``where``, in a span.

    Yields what makes the jobs that ``build`` makes, with the span in each. Without a provider there
    is no span of its own, and jobs carry the one that the caller is in, if there is one.
    """
    tracer = find_tracer()
    if tracer is None:
        context = current_traceparent()
        yield build if context is None else lambda made: _marked(build(made), context)
        return
    from opentelemetry import trace  # noqa: PLC0415 - as above

    attributes = {
        "messaging.system": SYSTEM,
        "messaging.operation.name": "push",
        "messaging.operation.type": "send",
        "messaging.destination.name": queue_name(where),
    }
    kind = trace.SpanKind.PRODUCER
    with tracer.start_as_current_span("push", kind=kind, attributes=attributes) as span:

        def described(made: T) -> tuple[NewJob, ...]:
            jobs = build(made)
            _describe(span, jobs)
            return _marked(jobs, _traceparent(span.get_span_context()))

        try:
            yield described
        except BaseException as error:
            span.set_attribute("error.type", type(error).__qualname__)
            raise


def _describe(span: Any, jobs: Sequence[NewJob]) -> None:
    """Name the jobs of a push; their kind is in the name of the span, if it is one."""
    kinds = {job.kind for job in jobs}
    if len(kinds) == 1:
        (kind,) = kinds
        span.update_name(f"push {kind}")
        span.set_attribute("bucketq.job.kind", kind)
    if len(jobs) == 1:
        span.set_attribute("messaging.message.id", jobs[0].id)
    else:
        span.set_attribute("messaging.batch.message_count", len(jobs))


def _marked(jobs: tuple[NewJob, ...], traceparent: str | None) -> tuple[NewJob, ...]:
    if traceparent is None:
        return jobs
    return tuple([replace(job, traceparent=traceparent) for job in jobs])
