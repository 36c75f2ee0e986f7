"""Spans of handlers, if the program traces with OpenTelemetry.

Each attempt has a span of its own, a child of the span in which its job was pushed. It is a
middleware, so it is where the handler runs: on the event loop, in a thread, or in a process.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from functools import partial
from typing import Any

from bucketq.model.records import JobRecord
from bucketq.tracing import SYSTEM, find_tracer, is_imported, origin_of, queue_name
from bucketq.worker.context import Context
from bucketq.worker.handler_exceptions import Snooze
from bucketq.worker.middleware import Middleware


def span_middleware(url: str | None, *, may_come: bool) -> tuple[Middleware, ...]:
    """Return what runs handlers in spans; nothing if the program does not trace.

    If a provider ``may_come`` before the first job, it is enough that OpenTelemetry is imported.
    """
    if find_tracer() is None and not (may_come and is_imported()):
        return ()
    return (partial(_handler_span, queue_name(url or "")),)


def _handler_span(queue: str, context: Context) -> Iterator[None]:
    """Run a handler in a span."""
    tracer = find_tracer()
    if tracer is None:
        yield
        return
    # Imported by the program already.
    from opentelemetry import context as contexts  # noqa: PLC0415
    from opentelemetry import trace  # noqa: PLC0415

    job = context.job.record
    origin = origin_of(job.traceparent)
    # A job that was not traced begins a trace, whatever the worker was started in.
    parent = contexts.Context()
    if origin is not None:
        parent = trace.set_span_in_context(trace.NonRecordingSpan(origin), parent)
    with tracer.start_as_current_span(
        f"process {job.kind}",
        context=parent,
        kind=trace.SpanKind.CONSUMER,
        links=() if origin is None else (trace.Link(origin),),
        attributes=_attributes(job, queue),
        record_exception=False,
        set_status_on_exception=False,
    ) as span:
        try:
            yield
        except Snooze as snooze:
            span.add_event("snoozed", {"bucketq.delay_s": snooze.delay_s})
            raise
        except BaseException as error:
            _record(span, error)
            raise


def _attributes(job: JobRecord, queue: str) -> dict[str, str | int]:
    named: dict[str, str | int] = {
        "messaging.system": SYSTEM,
        "messaging.operation.name": "process",
        "messaging.operation.type": "process",
        "messaging.message.id": job.id,
        "bucketq.job.kind": job.kind,
        "bucketq.job.attempt": job.attempt,
        "bucketq.job.failures": job.failures,
    }
    if queue:
        named["messaging.destination.name"] = queue
    if job.worker:
        named["messaging.client.id"] = job.worker
    return named


def _record(span: Any, error: BaseException) -> None:
    """Note why an attempt did not complete its job."""
    from opentelemetry import trace  # noqa: PLC0415 - imported by the program already

    span.set_attribute("error.type", type(error).__qualname__)
    if isinstance(error, asyncio.CancelledError):  # By a timeout, a lost lease, or a shutdown.
        span.set_status(trace.Status(trace.StatusCode.ERROR, "the handler was stopped"))
        return
    span.record_exception(error)
    span.set_status(trace.Status(trace.StatusCode.ERROR, f"{type(error).__name__}: {error}"))
