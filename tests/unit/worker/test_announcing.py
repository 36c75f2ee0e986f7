"""A worker lets its queue list it, and finishes if it is asked to."""

from __future__ import annotations

import asyncio
from itertools import pairwise

from bucketq.errors import InvalidRequestError
from bucketq.worker.announcing import WorkerProcess
from tests.unit.commit.worlds import say_nothing, virtual
from tests.unit.worker.engine_harness import (
    Recorder,
    burst,
    check_empty,
    engine_of,
    failing,
    nothing,
    opened,
    until,
    working,
)
from tests.unit.worker.test_engine import mails


@virtual
async def test_an_idle_worker_is_listed_and_is_not_once_it_has_ended() -> None:
    process = WorkerProcess("web-3", 4711, "1.2.3")
    async with opened() as (queue, faulty):
        async with working(faulty, nothing, concurrency=7, process=process):
            await asyncio.sleep(1)
            [found] = await queue.workers()
            assert (found.name, found.host, found.pid, found.version) == ("w", *process)
            assert (found.kinds, found.concurrency, found.running) == (("mail",), 7, 0)
            assert not found.draining
            await asyncio.sleep(1000)
            [later] = await queue.workers()
            assert (later.id, later.since) == (found.id, found.since)
            assert later.at > found.at
        assert await queue.workers() == []


@virtual
async def test_announcements_come_with_the_heartbeats() -> None:
    async with opened() as (queue, faulty):
        await queue.configure(heartbeat_s=2)
        async with working(faulty, nothing):
            await asyncio.sleep(20.5)
        times = faulty.times("announce")
    assert 10 <= len(times) <= 13
    # The first, and those that say that it is stopped and that it ends, come at once.
    assert max(b - a for a, b in pairwise(times)) <= 2.1


@virtual
async def test_a_worker_that_is_asked_to_finish_claims_no_more_and_ends() -> None:
    recorder = Recorder()
    async with opened() as (queue, faulty):
        await queue.push_many(mails(5))
        engine = engine_of(faulty, recorder.bind(), concurrency=1)
        engine.leave_to_runner()
        running = asyncio.create_task(engine.run())
        await until(lambda: recorder.inside == 1)
        assert await queue.drain("w") == 1
        await asyncio.sleep(6)
        [found] = await queue.workers()
        assert (found.draining, found.running) == (True, 1)
        assert not running.done()
        recorder.gate.set()
        await running
        check_empty(engine)
        assert recorder.ended == [0]
        assert await queue.workers() == []
        assert (await queue.stats()).counts["mail"]["queued"] == 4


@virtual
async def test_who_runs_the_worker_decides_what_finishing_means() -> None:
    asked: list[bool] = []
    async with (
        opened() as (queue, faulty),
        working(faulty, nothing, on_drain=lambda: asked.append(True)) as engine,
    ):
        await asyncio.sleep(1)
        await queue.drain("w")
        await asyncio.sleep(6)
        assert asked
        assert engine.is_running


@virtual
async def test_a_stopped_worker_says_at_once_that_it_finishes() -> None:
    recorder = Recorder()
    async with opened() as (queue, faulty):
        await queue.push("mail", 1)
        async with working(faulty, recorder.bind()) as engine:
            await until(lambda: recorder.inside == 1)
            engine.stop()
            await asyncio.sleep(0.1)
            [found] = await queue.workers()
            assert found.draining
            recorder.gate.set()


@virtual
async def test_a_worker_that_cannot_be_listed_works_all_the_same() -> None:
    recorder = Recorder()
    recorder.gate.set()
    async with opened() as (queue, faulty):
        faulty.stand("announce", failing(InvalidRequestError("an older broker")))
        await queue.push_many(mails(3))
        async with working(faulty, recorder.bind()):
            await until(lambda: len(recorder.ended) == 3)
            await asyncio.sleep(60)
        assert faulty.count("announce") > 10


@virtual
async def test_the_last_announcement_does_not_keep_a_worker_from_ending() -> None:
    loop = asyncio.get_running_loop()
    async with opened() as (_, faulty):
        engine = engine_of(faulty, nothing)
        running = asyncio.create_task(engine.run())
        await asyncio.sleep(1)
        faulty.stand("announce", say_nothing)
        began_s = loop.time()
        engine.stop()
        await running
        assert loop.time() - began_s < 3


@virtual
async def test_a_short_burst_is_not_listed() -> None:
    async with opened() as (queue, faulty):
        await queue.push_many(mails(3))
        await burst(faulty, nothing)
        assert not faulty.count("announce")
