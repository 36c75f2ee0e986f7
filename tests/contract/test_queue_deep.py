"""A queue with rows in segments, through every kind of queue."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from typing import Any

import pytest

from bucketq import JobId, Queue
from bucketq.codec.decode import decode
from bucketq.commit.objects import segment_parts
from bucketq.errors import InvalidRequestError, JobNotFoundError, QueueFullError
from bucketq.model.operations import Redrive
from bucketq.queue import queue as queue_module
from bucketq.queue.push_options import JobSpec
from tests.contract.places import Place

SPILL_BYTES = 4000


async def push_deep(queue: Queue[Any], count: int, kind: str = "mail") -> list[str]:
    """Push jobs to a queue that spills, and wait until most of them are in segments."""
    await queue.configure(spill_bytes=SPILL_BYTES)
    ids: list[str] = []
    for start in range(0, count, 50):
        specs = [JobSpec(kind=kind, payload=n) for n in range(start, min(start + 50, count))]
        ids += await queue.push_many(specs)
    await until_deep(queue)
    return ids


async def until_deep(queue: Queue[Any]) -> None:
    """Wait until most rows are in segments."""
    async with asyncio.timeout(20):
        while (await queue.stats()).head_bytes > 4 * SPILL_BYTES:  # noqa: ASYNC110 - others spill
            await asyncio.sleep(0.05)


async def push_dead(queue: Queue[Any], count: int) -> list[JobId]:
    """Let jobs of two kinds fail for good, and wait until most of them are in segments."""
    await queue.configure(spill_bytes=SPILL_BYTES, archive_after_s=3600)
    specs = [JobSpec(kind="ab"[number % 2], payload="x" * 300) for number in range(count)]
    ids = await queue.push_many(specs)
    for job in await queue.claim(limit=count):
        assert await queue.fail(job, "no", retry=False) == "dead"
    await until_deep(queue)
    return ids


async def seen(queue: Queue[Any], **query: Any) -> list[str]:
    """The ids of all pages, each read by itself."""
    ids: list[str] = []
    after: int | None = 0
    while after is not None:
        page = await queue.jobs(after=after, limit=37, **query)
        ids += [job.id for job in page.jobs]
        after = page.next_after
    return ids


async def test_pages_have_every_job_of_a_deep_queue(queue: Queue[Any]) -> None:
    mails = await push_deep(queue, 150)
    late = [await queue.push("late", n, delay_s=3600, tags={"n": str(n % 3)}) for n in range(60)]
    await until_deep(queue)
    assert await seen(queue) == mails + late
    assert await seen(queue, kinds="late") == late
    assert await seen(queue, kinds=["late", "none"], statuses="queued") == late
    assert await seen(queue, statuses=["dead", "running"]) == []
    assert await seen(queue, tags={"n": "1"}) == late[1::3]
    page = await queue.jobs(limit=100, after=30)
    assert len(page.jobs) == 100


async def test_a_job_in_a_segment_is_shown_and_cancelled(queue: Queue[Any]) -> None:
    ids = await push_deep(queue, 200)
    assert (await queue.get(ids[7])).payload == 7
    assert await queue.cancel(ids[7]) == "cancelled"
    assert await queue.cancel(ids[7]) in {"cancelled", "finished"}
    with pytest.raises(JobNotFoundError):
        await queue.get("nowhere")
    claimed = [job.id for job in await queue.claim(limit=1000)]
    assert claimed == ids[:7] + ids[8:]


async def test_many_jobs_in_segments_are_cancelled_at_once(queue: Queue[Any]) -> None:
    ids = await push_deep(queue, 200)
    chosen = ids[::2]
    assert await asyncio.gather(*map(queue.cancel, chosen)) == ["cancelled"] * 100
    assert (await queue.stats()).total("queued") == 100
    assert [job.id for job in await queue.claim(limit=1000)] == ids[1::2]


async def test_dead_jobs_in_segments_are_redriven_by_id_and_by_kind(queue: Queue[Any]) -> None:
    ids = await push_dead(queue, 80)
    assert (await queue.stats()).total("dead") == 80
    assert await queue.redrive(ids[10:20]) == 10
    with pytest.raises(InvalidRequestError, match="not dead"):
        await queue.redrive([ids[30], ids[10]])
    assert (await queue.get(ids[30])).status == "dead"
    assert await queue.redrive(kinds="a", limit=5) == 5
    assert await queue.redrive(kinds="a") == 30
    assert await queue.redrive() == 35
    assert await queue.redrive() == 0
    assert (await queue.stats()).total("queued") == 80
    assert [job.id for job in await queue.claim(limit=1000)] == ids


async def test_dead_jobs_in_segments_are_purged_by_id_kind_and_age(queue: Queue[Any]) -> None:
    ids = await push_dead(queue, 80)
    assert await queue.purge(older_than_s=3600) == 0
    assert await queue.purge(ids[:3]) == 3
    assert await queue.purge(kinds="b") == 39
    assert await queue.purge() == 38
    assert (await queue.stats()).total("dead") == 0
    assert (await queue.stats()).total("queued") == 0


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
    monkeypatch.setattr(segment_parts, "ROW_BYTES", 10_000)
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
    async with asyncio.timeout(20):
        while (await queue.stats()).segments < 2:  # noqa: ASYNC110 - other processes spill
            await asyncio.sleep(0.05)
    snapshot = await queue.snapshot()
    assert [job.id for job in snapshot.jobs] == ids
    assert [job.seq for job in snapshot.jobs] == sorted(job.seq for job in snapshot.jobs)
    assert [json.loads(bytes(job.payload)) for job in snapshot.jobs] == list(range(count))
    found = Counter(job.status for job in snapshot.jobs)
    assert found == {"queued": count - 31, "running": len(running), "dead": 20, "done": 1}


async def test_many_dead_jobs_are_redriven_and_purged_in_pages(
    queue: Queue[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One commit for each page. What is interrupted between two of them is continued later."""
    monkeypatch.setattr(queue_module, "_PAGE_JOBS", 7)
    ids = await push_dead(queue, 60)
    send, sent = queue._sender.send, 0

    async def interrupted(operation: Any, *token: Any) -> Any:
        nonlocal sent
        sent += isinstance(operation, Redrive)
        if sent > 3:
            raise asyncio.CancelledError
        return await send(operation, *token)

    with monkeypatch.context() as patch:
        patch.setattr(queue._sender, "send", interrupted)
        with pytest.raises(asyncio.CancelledError):
            await queue.redrive()
    assert (await queue.stats()).total("queued") == 21
    assert await queue.redrive(kinds="a") + await queue.redrive() == 39
    claimed = await queue.claim(limit=100)
    assert [job.id for job in claimed] == ids
    for job in claimed:
        assert await queue.fail(job, "no", retry=False) == "dead"
    assert await queue.purge(kinds="b") == 30
    assert await queue.purge() == 30
