"""Batches of a stream: the same set at each try, acknowledged late, kept while they are open."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest

from bucketq.errors import (
    ConsumerFencedError,
    InvalidRequestError,
    LeaseLostError,
    UnavailableError,
)
from bucketq.queue.push_options import JobSpec
from bucketq.queue.queue import Queue
from bucketq.spark.format_options import StreamOptions, stream_options
from bucketq.spark.stream import micro_batches
from bucketq.spark.stream.micro_batches import POLL_S, MicroBatches
from tests.unit.commit.worlds import World, lose_answer, lose_request, refuse, virtual

OPTIONS = stream_options({"path": "file:///q.json", "consumer": "c", "leaseSeconds": "60"})


@asynccontextmanager
async def driving(world: World, options: StreamOptions = OPTIONS) -> AsyncIterator[MicroBatches]:
    """A driver that has opened the consumer."""
    async with world.direct(timeout_s=5.0) as queue, MicroBatches(queue, options) as batches:
        yield batches


async def push(world: World, count: int, kind: str = "index") -> None:
    async with world.rival() as queue:
        await queue.push_many([JobSpec(kind=kind, payload=number) for number in range(count)])


async def statuses(world: World) -> dict[str, int]:
    found: dict[str, int] = {}
    for job in (await world.state()).jobs:
        found[job.status] = found.get(job.status, 0) + 1
    return found


async def ids(batches: MicroBatches, start: int) -> list[str]:
    return [job.id for job in await batches.jobs(start, start + 1)]


@virtual
async def test_a_batch_is_acknowledged_when_the_next_one_is_asked_for_and_not_before() -> None:
    world = World()
    await push(world, 5)
    async with driving(world) as batches:
        assert batches.first() == 0
        assert await batches.latest(0, 3) == 1
        first = await ids(batches, 0)
        assert first == (await world.ids())[:3]
        assert await ids(batches, 0) == first
        assert await statuses(world) == {"running": 3, "queued": 2}
        assert await batches.latest(1, 3) == 2
        assert await statuses(world) == {"done": 3, "running": 2}
        assert await batches.latest(2, 3) == 2
        assert await statuses(world) == {"done": 5}


@virtual
async def test_the_next_driver_finds_the_identical_batch_before_it_asks_for_offsets() -> None:
    world = World()
    await push(world, 4)
    async with driving(world) as batches:
        await batches.latest(0, 3)
        before = await ids(batches, 0)
    async with driving(world) as batches:
        assert await ids(batches, 0) == before
        assert await batches.latest(1, 3) == 2
    async with driving(world) as batches:
        # This one has a checkpoint in which the last batch is committed.
        assert await batches.latest(2, 3) == 2
    assert await statuses(world) == {"done": 4}


@virtual
async def test_without_its_checkpoint_a_stream_begins_with_the_unacknowledged_batch() -> None:
    world = World()
    await push(world, 4)
    async with driving(world) as batches:
        await batches.latest(0, 2)
        await batches.latest(1, 2)
        before = await ids(batches, 1)
    async with driving(world) as batches:
        assert batches.first() == 1
        assert await batches.latest(1, 1) == 2
        assert await ids(batches, 1) == before
        assert await batches.latest(2, 2) == 2
        assert batches.first() == 2


@virtual
async def test_an_older_driver_is_fenced() -> None:
    world = World()
    await push(world, 2)
    async with driving(world) as older:
        await older.latest(0, 1)
        async with driving(world) as newer:
            with pytest.raises(ConsumerFencedError, match="another driver has opened"):
                await older.latest(1, 1)
            assert await newer.latest(0, 1) == 1
            assert await statuses(world) == {"running": 1, "queued": 1}


@virtual
async def test_leases_are_renewed_while_a_batch_runs() -> None:
    world = World()
    await push(world, 3)
    async with world.rival() as rival:
        await rival.configure(clock_margin_s=0)
        async with driving(world) as batches:
            await batches.latest(0, 3)
            for _ in range(50):
                await asyncio.sleep(30)
                assert await rival.claim() == []
            assert len(await batches.jobs(0, 1)) == 3
            assert {job.attempt for job in (await world.state()).jobs} == {1}


async def lose_one(rival: Queue[Any]) -> str:
    """Let a rival have one of the jobs whose leases have run out."""
    await asyncio.sleep(400)
    while not (taken := await rival.claim(wait_s=60)):
        pass
    return taken[0].id


@virtual
async def test_a_batch_that_lost_jobs_raises_with_advice() -> None:
    world = World()
    await push(world, 3)
    async with world.rival() as rival:
        async with driving(world) as batches:
            await batches.latest(0, 3)
        lost = await lose_one(rival)
        async with driving(world) as batches:
            with pytest.raises(LeaseLostError) as caught:
                await batches.jobs(0, 1)
        message = str(caught.value)
        assert f"1 of 3 jobs of batch 1 are lost ({lost})" in message
        assert "failOnLostClaim" in message
        assert "leaseSeconds" in message


@virtual
async def test_a_stream_can_continue_without_its_lost_jobs() -> None:
    world = World()
    await push(world, 3)
    async with world.rival() as rival:
        async with driving(world) as batches:
            await batches.latest(0, 3)
        lost = await lose_one(rival)
        async with driving(world, replace(OPTIONS, fail_on_lost=False)) as batches:
            kept = await ids(batches, 0)
            assert len(kept) == 2
            assert lost not in kept
            assert await batches.latest(1, 3) == 1
        assert await statuses(world) == {"done": 2, "running": 1}


@virtual
async def test_a_batch_that_another_driver_closed_is_lost_as_a_whole() -> None:
    world = World()
    await push(world, 2)
    async with driving(world) as batches:
        await batches.latest(0, 2)
    async with world.rival() as rival:
        state = await rival.open_consumer("c")
        await rival.release_batch("c", state.epoch, 1)
    async with driving(world) as batches:
        with pytest.raises(LeaseLostError, match="batch 1 was acknowledged or released"):
            await batches.jobs(0, 1)
    async with driving(world, replace(OPTIONS, fail_on_lost=False)) as batches:
        assert await batches.jobs(0, 1) == []
        assert await batches.latest(1, 2) == 2


@virtual
async def test_a_checkpoint_of_other_batches_is_rejected() -> None:
    world = World()
    await push(world, 2)
    async with driving(world) as batches:
        with pytest.raises(InvalidRequestError, match="ends with batch 7, and consumer 'c' is at"):
            await batches.latest(7, 1)
        with pytest.raises(InvalidRequestError, match="begin with a new checkpoint"):
            await batches.jobs(6, 7)
        assert await batches.jobs(7, 7) == []
    assert await statuses(world) == {"queued": 2}


@virtual
async def test_an_idle_stream_polls_rarely_and_writes_nothing() -> None:
    world = World()
    await push(world, 1, kind="other")
    loop = asyncio.get_running_loop()
    async with driving(world, replace(OPTIONS, kinds=("index",))) as batches:
        await batches.latest(0, 10)
        before, writes, began = await world.body(), world.store.count("replace"), loop.time()
        asked = len(world.store.calls)
        for _ in range(100):
            assert await batches.latest(0, 10) == 0
        assert loop.time() - began >= 99 * POLL_S
        assert len(world.store.calls) - asked < 300
        assert (await world.body(), world.store.count("replace")) == (before, writes)
        await push(world, 1)
        began = loop.time()
        assert await batches.latest(0, 10) == 1
        assert loop.time() - began <= 0.5


@virtual
async def test_an_available_now_stream_takes_the_jobs_queued_at_its_start() -> None:
    world = World()
    await push(world, 5)
    await push(world, 1, kind="other")
    async with driving(world, replace(OPTIONS, kinds=("index",))) as batches:
        await batches.limit_to_queued()
        taken = start = 0
        while (end := await batches.latest(start, 2)) != start:
            taken += len(await batches.jobs(start, end))
            start = end
            await push(world, 2)
        assert (start, taken) == (3, 5)
        assert (await statuses(world))["done"] == 5


@virtual
async def test_an_available_now_stream_repeats_an_open_batch_first() -> None:
    world = World()
    await push(world, 3)
    async with driving(world) as batches:
        await batches.latest(0, 3)
    async with driving(world) as batches:
        await batches.limit_to_queued()
        assert await batches.latest(0, 10) == 1
        assert len(await batches.jobs(0, 1)) == 3
        assert await batches.latest(1, 10) == 1


@virtual
async def test_an_available_now_stream_logs_a_pause(caplog: pytest.LogCaptureFixture) -> None:
    world = World()
    await push(world, 3)
    async with world.rival() as rival:
        await rival.pause()
    async with driving(world) as batches:
        with caplog.at_level(logging.WARNING):
            await batches.limit_to_queued()
        assert await batches.latest(0, 10) == 0
    assert "3 jobs are waiting, and the queue is paused" in caplog.text
    assert "may end without them" in caplog.text


@virtual
async def test_a_stream_that_waits_in_a_pause_logs_it_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    world = World()
    await push(world, 3)
    await push(world, 2, "other")
    async with world.rival() as rival, driving(world) as batches:
        await rival.pause("other")
        await rival.pause("index")
        for _ in range(3):
            assert await batches.latest(0, 10) == 0
            await asyncio.sleep(5)
        assert len(caplog.messages) == 1
        assert "5 jobs are waiting, and index, other is paused" in caplog.text
        assert "the stream waits until then" in caplog.text
        await rival.resume("index")
        await rival.resume("other")
        assert await batches.latest(0, 10) == 1
        assert len(await batches.jobs(0, 1)) == 5


@virtual
async def test_lost_requests_and_answers_do_not_end_a_stream() -> None:
    world = World()
    await push(world, 4)
    async with driving(world) as batches:
        world.store.plan("replace", lose_request, lose_answer, lose_request)
        assert await batches.latest(0, 2) == 1
        world.store.break_down(lose_request)
        asking = asyncio.create_task(batches.latest(1, 2))
        await asyncio.sleep(30)
        assert not asking.done()
        world.store.break_down(None)
        assert await asking == 2
    assert await statuses(world) == {"done": 2, "running": 2}


@virtual
async def test_a_queue_unavailable_for_longer_than_a_lease_ends_the_stream() -> None:
    world = World()
    await push(world, 1)
    async with driving(world) as batches:
        await batches.latest(0, 2)
        world.store.break_down(lose_request)
        began = asyncio.get_running_loop().time()
        with pytest.raises(UnavailableError):
            await batches.latest(1, 2)
        assert 60 <= asyncio.get_running_loop().time() - began <= 75
        world.store.break_down(None)


@virtual
async def test_a_batch_ends_before_its_payloads_have_too_many_bytes() -> None:
    world = World()
    async with world.rival() as queue:
        await queue.push_many(
            [JobSpec(kind="index", payload="x" * size) for size in (8, 8, 98, 8, 8, 8)]
        )
    pushed = await world.ids()
    options = replace(OPTIONS, max_bytes=30)
    async with driving(world, options) as batches:
        await batches.limit_to_queued()
        for start, jobs in enumerate((pushed[:2], pushed[2:3], pushed[3:])):
            assert await batches.latest(start, 100) == start + 1
            assert await ids(batches, start) == jobs
        assert await batches.latest(3, 100) == 3
    assert await statuses(world) == {"done": 6}


@virtual
async def test_a_batch_of_this_driver_is_read_at_once_and_one_of_another_in_pages(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """How large one is that another driver has claimed is not known."""
    monkeypatch.setattr(micro_batches, "_PAGE_JOBS", 2)
    asked: list[int] = []
    read_batch = Queue.read_batch

    async def counted(queue: Queue[Any], *args: Any, **named: Any) -> Any:
        asked.append(named["limit"])
        return await read_batch(queue, *args, **named)

    monkeypatch.setattr(Queue, "read_batch", counted)
    world = World()
    await push(world, 5)
    async with driving(world) as batches:
        await batches.latest(0, 5)
        before = await ids(batches, 0)
    assert (len(before), asked) == (5, [10_000])
    asked.clear()
    async with driving(world) as batches:
        assert await ids(batches, 0) == before
    assert asked == [2, 2, 2]
    asked.clear()
    await push(world, 3)
    async with driving(world, replace(OPTIONS, max_bytes=1 << 40)) as batches:
        await batches.latest(1, 5)
        assert len(await ids(batches, 1)) == 3
    assert asked == [2, 2]


@virtual
async def test_a_batch_is_never_larger_than_the_queue_allows() -> None:
    world = World()
    await push(world, 5)
    async with world.rival() as rival:
        await rival.configure(max_batch_jobs=3)
    async with driving(world) as batches:
        await batches.latest(0, None)
        assert len(await batches.jobs(0, 1)) == 3
        await batches.latest(1, 100)
        assert len(await batches.jobs(1, 2)) == 2


@virtual
async def test_leases_are_renewed_again_after_an_outage_of_the_store() -> None:
    world = World()
    await push(world, 2)
    async with driving(world) as batches:
        await batches.latest(0, 2)
        before = await ids(batches, 0)
        world.store.break_down(refuse)
        await asyncio.sleep(25)
        world.store.break_down(None)
        async with world.rival() as rival:
            assert await rival.claim(limit=2, wait_s=300) == [], "nobody else has got them"
        assert await ids(batches, 0) == before
        assert [job.attempt for job in (await world.state()).jobs] == [1, 1]


ONCE = replace(OPTIONS, max_failures=1)


@virtual
async def test_a_batch_that_failed_too_often_is_empty_and_its_jobs_come_alone() -> None:
    world = World()
    await push(world, 2)
    first, second = await world.ids()
    async with driving(world, ONCE) as batches:
        assert await batches.latest(0, 9) == 1
        assert await ids(batches, 0) == [first, second]
    for _ in range(2):  # Spark may be killed again before it has committed the empty batch.
        async with driving(world, ONCE) as batches:
            assert batches.first() == 0
            assert await batches.latest(0, 9) == 1
            assert await ids(batches, 0) == []
    async with driving(world, ONCE) as batches:
        assert await ids(batches, 0) == [], "or it has the batch in its checkpoint"
        assert await batches.latest(1, 9) == 2
        assert await ids(batches, 1) == [first]
        assert await batches.latest(2, 9) == 3
        assert await ids(batches, 2) == [second]
        assert await batches.latest(3, 9) == 3
    assert await statuses(world) == {"done": 2}


@virtual
async def test_a_query_that_ends_by_itself_takes_the_jobs_of_a_batch_that_was_taken_apart() -> None:
    world = World()
    await push(world, 2)
    async with driving(world, ONCE) as batches:
        await batches.latest(0, 9)
    async with driving(world, ONCE) as batches:
        await batches.limit_to_queued()
        for start in range(3):
            assert await batches.latest(start, 9) == start + 1
        assert await batches.latest(3, 9) == 3
    assert await statuses(world) == {"done": 2}
