"""A queue with rows in segments, through every kind of queue."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from typing import Any

import pytest

from bucketq import Queue
from bucketq.codec import decode
from bucketq.commit import segment_cache
from bucketq.errors import QueueFullError
from bucketq.queue.new_jobs import JobSpec
from tests.contract.places import Place

SPILL_BYTES = 4000


async def push_deep(queue: Queue[Any], count: int, kind: str = "mail") -> list[str]:
    """Push jobs to a queue that spills, and wait until most of them are in segments."""
    await queue.configure(spill_bytes=SPILL_BYTES)
    ids: list[str] = []
    for start in range(0, count, 50):
        specs = [JobSpec(kind=kind, payload=n) for n in range(start, min(start + 50, count))]
        ids += await queue.push_many(specs)
    async with asyncio.timeout(60):
        while (await queue.stats()).head_bytes > 4 * SPILL_BYTES:  # noqa: ASYNC110 - other processes spill
            await asyncio.sleep(0.05)
    return ids


async def test_stats_know_segments(place: Place, queue: Queue[Any]) -> None:
    first = await queue.push("index", 0)
    await asyncio.sleep(0.2)
    await push_deep(queue, 300)
    stats = await queue.stats()
    assert stats.counts == {"index": {"queued": 1}, "mail": {"queued": 300}}
    assert stats.segments > 0
    assert stats.segment_bytes > 0
    assert stats.bytes == stats.head_bytes + stats.segment_bytes
    if stats.version == decode((body := (await place.stored()).body), place.url).state.version:
        assert stats.head_bytes == len(body)
    assert stats.oldest_queued_s is not None
    assert stats.oldest_queued_s >= 0.2
    assert await queue.cancel(first) == "cancelled"
    younger = await queue.stats()
    assert younger.oldest_queued_s is not None
    before = (await queue.get(first)).pushed_at
    jobs = (await queue.jobs(limit=1, statuses="queued")).jobs
    assert jobs[0].pushed_at > before
    assert younger.oldest_queued_s < stats.oldest_queued_s + 60


async def test_room_counts_what_is_in_segments(queue: Queue[Any]) -> None:
    await push_deep(queue, 300)
    stats = await queue.stats()
    limit = stats.bytes + 5000  # Rows that spill meanwhile take some more bytes there.
    assert limit > 2 * stats.head_bytes, "the object alone is far below the limit"
    await queue.configure(max_bytes=limit)
    with pytest.raises(QueueFullError, match="max_bytes"):
        await queue.push("mail", "x" * 10_000)
    await queue.push("mail", "x" * 100)


@pytest.mark.parametrize("count", [3000, pytest.param(20_000, marks=pytest.mark.full)])
async def test_a_snapshot_has_every_job_once_although_it_does_not_fit_in_the_cache(
    queue: Queue[Any], monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    monkeypatch.setattr(segment_cache, "ROW_BYTES", 10_000)
    await queue.configure(spill_bytes=100_000, max_attempts=1)
    ids: list[str] = []
    for start in range(0, count, count // 4):
        specs = [
            JobSpec(
                kind=f"k{n % 7}", payload=n, priority=n % 3, delay_s=9e5 if n % 5 == 0 else None
            )
            for n in range(start, start + count // 4)
        ]
        ids += await queue.push_many(specs)
    for job in await queue.claim("k3", limit=20):
        await queue.fail(job, "no")
    running = await queue.claim(limit=10)
    assert await queue.cancel(ids[-1]) == "cancelled"
    async with asyncio.timeout(60):
        while (await queue.stats()).segments < 2:  # noqa: ASYNC110 - other processes spill
            await asyncio.sleep(0.05)
    snapshot = await queue.snapshot()
    assert [job.id for job in snapshot.jobs] == ids
    assert [job.seq for job in snapshot.jobs] == sorted(job.seq for job in snapshot.jobs)
    assert [json.loads(bytes(job.payload)) for job in snapshot.jobs] == list(range(count))
    found = Counter(job.status for job in snapshot.jobs)
    assert found == {"queued": count - 31, "running": len(running), "dead": 20, "done": 1}
