"""A queue with rows in segments, through every kind of queue."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from bucketq import Queue
from bucketq.codec import decode
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
