"""OpenTelemetry, if the program uses it: its tracer, and spans of what bucketq does by itself.

bucketq never imports OpenTelemetry first. A program that traces has imported it; without it, what
would be a span costs one lookup in a dictionary.
"""

from __future__ import annotations

import sys
from collections.abc import Generator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any
from urllib.parse import urlsplit

Attributes = dict[str, str | int]

SYSTEM = "bucketq"
_API = "opentelemetry.trace"
_OTHERS = "bucketq-other-pushes"
_LINKS_MAX = 32
"""How many pushes a commit names: tools show few links, and a commit may have thousands."""
_NO_SPAN = nullcontext(None)
_tracers: dict[int, tuple[Any, Any]] = {}
"""The tracer of the provider that was used last, with that provider; making one takes longer than
starting a span."""


def is_imported() -> bool:
    """Whether the program has imported OpenTelemetry."""
    return _API in sys.modules


def find_tracer() -> Any:
    """Return a tracer, or None if the program has set no provider of them."""
    if not is_imported():
        return None
    from opentelemetry import trace  # noqa: PLC0415 - imported already, perhaps by another thread

    provider = trace.get_tracer_provider()
    if isinstance(provider, trace.ProxyTracerProvider | trace.NoOpTracerProvider):
        return None
    known = _tracers.get(0)
    if known is None or known[0] is not provider:
        known = _tracers[0] = (provider, provider.get_tracer(SYSTEM))
    return known[1]


def queue_name(where: str) -> str:
    """Return an address without its options, as spans name the queue."""
    parts = urlsplit(where)
    return parts._replace(query="", fragment="").geturl() if parts.scheme else where


def origin_of(traceparent: str | None) -> Any:
    """Return the span that W3C Trace Context writes so; None if it cannot be read."""
    from opentelemetry import trace  # noqa: PLC0415 - imported by the program already

    try:
        _, trace_id, span_id, flags = (traceparent or "").split("-")
        origin = trace.SpanContext(
            int(trace_id, 16),
            int(span_id, 16),
            is_remote=True,
            trace_flags=trace.TraceFlags(int(flags, 16)),
        )
    except ValueError:
        return None
    return origin if origin.is_valid else None


def commit_span(where: str, version: int, size_bytes: int) -> AbstractContextManager[Any]:
    """Run the body, a commit to the queue ``where``, in a span; yields None if there is none.

    Only a commit in a span has one: that of its caller, or what ``in_spans_of`` names.
    """
    tracer = _tracer_within()
    if tracer is None:
        return _NO_SPAN
    from opentelemetry import context, trace  # noqa: PLC0415 - imported by the program already

    attributes: Attributes = {
        "messaging.system": SYSTEM,
        "messaging.destination.name": queue_name(where),
        "bucketq.commit.version": version,
        "bucketq.commit.bytes": size_bytes,
    }
    others: Any = context.get_value(_OTHERS) or ()
    return _span(tracer, "commit", "INTERNAL", attributes, links=list(map(trace.Link, others)))


def storage_span(
    verb: str, store: str, key: str, expected: type[Exception] | None = None
) -> AbstractContextManager[Any]:
    """Run the body, a request to the storage, in a span; yields None if there is none.

    Only a request in a span has one. An error that is ``expected`` is an answer like others.
    """
    tracer = _tracer_within()
    if tracer is None:
        return _NO_SPAN
    attributes: Attributes = {"bucketq.storage.address": store, "bucketq.storage.key": key}
    return _span(tracer, f"storage {verb}", "CLIENT", attributes, expected)


def _tracer_within() -> Any:
    """Return a tracer if this is in a span: what no caller waits for would be a trace each."""
    tracer = find_tracer()
    if tracer is None:
        return None
    from opentelemetry import trace  # noqa: PLC0415 - imported by the program already

    return tracer if trace.get_current_span().get_span_context().is_valid else None


def batch_span(consumer: str, batch: int) -> AbstractContextManager[Any]:
    """Run the body, the work on a batch of jobs, in a span; yields None if there is none."""
    tracer = find_tracer()
    if tracer is None:
        return _NO_SPAN
    attributes: Attributes = {
        "messaging.system": SYSTEM,
        "messaging.operation.name": "process",
        "messaging.operation.type": "process",
        "messaging.consumer.group.name": consumer,
        "bucketq.consumer.batch": batch,
    }
    return _span(tracer, "process batch", "CONSUMER", attributes)


@contextmanager
def _span(
    tracer: Any,
    name: str,
    kind: str,
    attributes: Attributes,
    expected: type[Exception] | None = None,
    links: Sequence[Any] = (),
) -> Generator[Any, None, None]:
    """Run the body in a span, which names the type of an error.

    It has no message and no traceback: those of a storage's client may contain secrets.
    """
    from opentelemetry import trace  # noqa: PLC0415 - imported by the program already

    with tracer.start_as_current_span(
        name,
        kind=trace.SpanKind[kind],
        attributes=attributes,
        links=links,
        record_exception=False,
        set_status_on_exception=False,
    ) as span:
        try:
            yield span
        except BaseException as error:
            if expected is None or not isinstance(error, expected):
                span.set_attribute("error.type", type(error).__qualname__)
                span.set_status(trace.StatusCode.ERROR)
            raise


def outside_of_spans() -> AbstractContextManager[None]:
    """Run the body in no span: tasks that it starts outlive the span of the caller."""
    return _attached(None, ()) if is_imported() else _NO_SPAN


def in_spans_of(traceparents: Sequence[str]) -> AbstractContextManager[None]:
    """Run the body, a commit of pushes, in the span of the first, with links to the others."""
    if not traceparents:
        return _NO_SPAN
    origins = [found for each in traceparents if (found := origin_of(each)) is not None]
    return _attached(origins[0], origins[1:_LINKS_MAX]) if origins else _NO_SPAN


@contextmanager
def _attached(origin: Any, others: Sequence[Any]) -> Generator[None, None, None]:
    from opentelemetry import context, trace  # noqa: PLC0415 - imported by the program already

    within = context.Context()
    if origin is not None:
        within = trace.set_span_in_context(trace.NonRecordingSpan(origin), within)
        within = context.set_value(_OTHERS, others, within)
    before = context.attach(within)
    try:
        yield
    finally:
        context.detach(before)
