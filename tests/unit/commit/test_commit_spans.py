"""Spans of commits and of requests to the storage, of a program that traces."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

import bucketq
from bucketq.client.connect_arguments import Mode
from bucketq.store.base import PreconditionFailedError
from bucketq.store.local import LocalStore
from bucketq.tracing import batch_span

EXPORTER = InMemorySpanExporter()
PROVIDER = TracerProvider()
PROVIDER.add_span_processor(SimpleSpanProcessor(EXPORTER))


@pytest.fixture(autouse=True)
def traced(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Trace, in these tests alone: a program may set its provider once."""
    monkeypatch.setattr(trace, "get_tracer_provider", lambda: PROVIDER)
    EXPORTER.clear()
    yield
    EXPORTER.clear()


def finished(name: str) -> list[ReadableSpan]:
    return [span for span in EXPORTER.get_finished_spans() if span.name == name]


def parents_of(name: str) -> set[str]:
    """The names of the spans that spans of a name are in; "nothing" for none."""
    names = {span.context.span_id: span.name for span in EXPORTER.get_finished_spans()}
    return {names[s.parent.span_id] if s.parent else "nothing" for s in finished(name)}


def attributes(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})


@pytest.mark.parametrize("mode", ["direct", "embedded", "auto"])
async def test_a_commit_is_in_the_span_of_its_push_and_its_requests_are_in_it(
    tmp_path: Path, mode: Mode
) -> None:
    url = (tmp_path / "queue.json").as_uri()
    with PROVIDER.get_tracer("test").start_as_current_span("opening"):
        async with bucketq.connect(url, mode=mode) as queue:
            EXPORTER.clear()
            await queue.push("k", 1)
    (commit,) = finished("commit")
    assert parents_of("commit") == {"push k"}
    assert parents_of("storage write") == {"commit"}
    (write,) = finished("storage write")
    assert write.kind is SpanKind.CLIENT
    assert attributes(write) == {
        "bucketq.storage.address": tmp_path.as_uri(),
        "bucketq.storage.key": "queue.json",
    }
    found = attributes(commit)
    assert found.pop("bucketq.commit.version") >= 2
    assert found.pop("bucketq.commit.bytes") > 500
    assert found == {
        "messaging.system": "bucketq",
        "messaging.destination.name": url,
        "bucketq.commit.verdict": "landed",
    }


async def test_a_commit_of_several_pushes_has_links_to_all_but_the_first() -> None:
    async with bucketq.connect("memory://", mode="embedded") as queue:
        EXPORTER.clear()
        await asyncio.gather(*(queue.push("k", number) for number in range(3)))
    pushes = {span.context.span_id for span in finished("push k")}
    (commit,) = finished("commit")
    assert commit.parent is not None
    linked = {link.context.span_id for link in commit.links}
    assert {commit.parent.span_id} | linked == pushes
    assert len(linked) == 2


async def test_what_no_span_waits_for_has_none_of_its_own(tmp_path: Path) -> None:
    stack = AsyncExitStack()
    with PROVIDER.get_tracer("test").start_as_current_span("opening"):
        url = (tmp_path / "queue.json").as_uri()
        queue = await stack.enter_async_context(bucketq.connect(url, mode="embedded"))
    EXPORTER.clear()
    job_id = await queue.push("k", 1)
    EXPORTER.clear()
    assert await queue.claim(wait_s=0.1)
    assert (await queue.get(job_id)).status == "running"
    await stack.aclose()
    assert [span.name for span in EXPORTER.get_finished_spans()] == []


async def test_a_request_that_fails_has_the_type_of_its_error_and_no_message(
    tmp_path: Path,
) -> None:
    store = LocalStore(tmp_path)
    await store.create("x", b"1")
    EXPORTER.clear()
    outer = PROVIDER.get_tracer("test").start_as_current_span("outer")
    with outer, pytest.raises(PreconditionFailedError):
        await store.create("x", b"2")
    await store.close()
    (write,) = finished("storage write")
    assert attributes(write)["error.type"] == "PreconditionFailedError"
    assert write.status.status_code is StatusCode.ERROR
    assert write.status.description is None
    assert not write.events


def test_a_batch_has_a_span() -> None:
    with pytest.raises(ValueError, match="bad"), batch_span("copy", 7):
        raise ValueError("bad")
    (batch,) = finished("process batch")
    assert batch.kind is SpanKind.CONSUMER
    assert attributes(batch)["messaging.consumer.group.name"] == "copy"
    assert attributes(batch)["bucketq.consumer.batch"] == 7
    assert attributes(batch)["error.type"] == "ValueError"
