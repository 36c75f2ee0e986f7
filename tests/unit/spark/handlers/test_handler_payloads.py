"""Executors fetch large payloads by themselves; one that is lost fails its own job."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

import msgspec
import pytest

import bucketq
from bucketq.model.records import JobRecord
from bucketq.spark.handlers.executor_task import TaskSettings, run_jobs
from bucketq.spark.handlers.pickled_handlers import pickle_handlers
from bucketq.spark.queue_access import QueueAccess
from bucketq.worker.context import Context
from bucketq.worker.handler_exceptions import HandlerFailed
from bucketq.worker.handlers import Handler, bind
from bucketq.worker.runners.reply import Reply, value_of
from tests.unit.worker.engine_harness import claimed_job


def run(records: Sequence[JobRecord], *handlers: Handler, **fields: Any) -> list[Reply]:
    """Run jobs as a task does."""
    pickled = pickle_handlers({handler.kind: handler for handler in handlers})
    outcomes = run_jobs(TaskSettings(pickled, 10, 60.0, **fields), records)
    return [outcome.reply for outcome in outcomes if outcome.reply is not None]


async def double(number: int) -> int:
    return 2 * number


def size_and_digest(payload: bytes) -> list[Any]:
    return [len(payload), sha256(payload).hexdigest()]


async def stream_it(context: Context) -> list[Any]:
    chunks = [chunk async for chunk in context.job.open_payload()]
    return size_and_digest(b"".join(chunks))


def stream_it_in_a_thread(context: Context) -> list[Any]:
    return size_and_digest(b"".join(context.job.open_payload()))


def claimed_records(url: str, kind: str, *payloads: bytes) -> list[JobRecord]:
    """Jobs as the driver sends them: with references."""
    with bucketq.connect_sync(url, mode="direct") as queue:
        for payload in payloads:
            queue.push(kind, payload)
        jobs = queue.claim(limit=len(payloads), fetch=False)
    return [job.record for job in jobs]


@pytest.mark.parametrize("isolation", ["shared", "isolated"])
@pytest.mark.parametrize(
    ("function", "size_bytes"),
    [(size_and_digest, 3 << 20), (stream_it, 17 << 20), (stream_it_in_a_thread, 17 << 20)],
)
def test_large_payloads_are_fetched_by_the_executor(
    tmp_path: Path, isolation: str, function: Callable[..., Any], size_bytes: int
) -> None:
    url = (tmp_path / "queue.json").as_uri()
    payloads = [bytes([number]) * size_bytes for number in range(2)]
    records = claimed_records(url, "x", *payloads)
    assert len(msgspec.json.encode(records)) < 4000
    found = run(records, bind("x", function), isolation=isolation, access=QueueAccess(url))
    assert [value_of(reply) for reply in found] == [
        size_and_digest(payload) for payload in payloads
    ]


@pytest.mark.parametrize("isolation", ["shared", "isolated"])
@pytest.mark.parametrize("is_there", [True, False])
def test_a_payload_that_cannot_be_fetched_fails_its_own_attempt(
    tmp_path: Path, isolation: str, *, is_there: bool
) -> None:
    url = (tmp_path / "queue.json").as_uri()
    records = [*claimed_records(url, "x", bytes(100_000)), claimed_job(5, kind="y").record]
    for part in tmp_path.glob("queue/payloads/*/*.0*"):
        part.unlink()
    access = QueueAccess(url) if is_there else None
    handlers = (bind("x", size_and_digest), bind("y", double))
    lost, other = run(records, *handlers, isolation=isolation, access=access)
    with pytest.raises(HandlerFailed, match="does not find" if is_there else "cannot reach"):
        value_of(lost)
    assert value_of(other) == 10
