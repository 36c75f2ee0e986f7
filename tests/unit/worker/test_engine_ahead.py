"""Fetching ahead: slots stay full, and no worker hoards jobs that another could do."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.unit.commit.worlds import World, slowly, virtual
from tests.unit.worker.engine_harness import FaultyQueue, Recorder, handler, opened, until, working
from tests.unit.worker.test_engine import mails


@pytest.mark.shallow
@virtual
async def test_with_short_handlers_the_slots_stay_full() -> None:
    busy_s = 0.0

    @handler()
    async def short() -> None:
        nonlocal busy_s
        await asyncio.sleep(0.02)
        busy_s += 0.02

    world = World()
    world.store.stand("replace", slowly(0.2))
    async with world.embedded() as queue:
        await queue.push_many(mails(10_000))
        async with working(FaultyQueue(queue), short, concurrency=10) as engine:
            await until(lambda: engine.counters.count("done") > 2000)
            began_s, before_s = asyncio.get_running_loop().time(), busy_s
            await until(lambda: engine.counters.count("done") > 9500)
            took_s = asyncio.get_running_loop().time() - began_s
            assert (busy_s - before_s) / (10 * took_s) > 0.9


@virtual
async def test_with_long_handlers_nothing_is_fetched_ahead() -> None:
    most = 0

    @handler()
    async def long() -> None:
        await asyncio.sleep(5)

    world = World()
    world.store.stand("replace", slowly(0.2))
    async with world.embedded() as queue:
        await queue.push_many(mails(100))
        async with working(FaultyQueue(queue), long, concurrency=5) as engine:
            for _ in range(500):
                await asyncio.sleep(0.1)
                most = max(most, engine.counters.waiting)
            assert engine.counters.count("done") >= 35
    assert most == 0


async def jam(recorder: Recorder, faulty: FaultyQueue) -> None:
    """Let short handlers run until the worker fetches ahead, and then long ones."""
    recorder.gate.set()
    recorder.takes_s = 0.01

    async def slow(effect: Any) -> Any:
        await asyncio.sleep(0.5)
        return await effect()

    faulty.stand("claim", slow)


@virtual
async def test_jobs_for_which_no_slot_comes_free_are_done_by_another_worker() -> None:
    recorder, idle = Recorder(), Recorder()
    idle.gate.set()
    async with opened() as (queue, faulty):
        await jam(recorder, faulty)
        await queue.push_many(mails(1000))
        async with working(faulty, recorder.bind(), concurrency=2) as engine:
            await until(lambda: len(recorder.began) > 50)
            recorder.gate.clear()
            await until(lambda: recorder.inside == 2 and engine.counters.waiting > 20)
            jammed_s = asyncio.get_running_loop().time()
            async with working(FaultyQueue(queue), idle.bind(), concurrency=2):
                held = len(recorder.ended) + 2
                await until(lambda: len(idle.ended) == 1000 - held)
            assert asyncio.get_running_loop().time() - jammed_s < 10
            assert engine.counters.count("released") > 20
            assert engine.counters.waiting == 0
            for job in (await queue.jobs(limit=1000)).jobs:
                assert (job.failures, job.lost_leases) == (0, 0)
            recorder.gate.set()


@virtual
async def test_jobs_are_not_fetched_and_released_over_and_over() -> None:
    recorder = Recorder()
    async with opened() as (queue, faulty):
        await jam(recorder, faulty)
        await queue.push_many(mails(1000))
        async with working(faulty, recorder.bind(), concurrency=8) as engine:
            await until(lambda: len(recorder.began) > 50)
            recorder.gate.clear()
            await until(lambda: recorder.inside == 8 and engine.counters.waiting > 20)
            await asyncio.sleep(5)
            claims, released = faulty.count("claim"), engine.counters.count("released")
            await asyncio.sleep(60)
            assert faulty.count("claim") == claims
            assert engine.counters.count("released") == released
            recorder.gate.set()
            await until(lambda: engine.counters.count("done") == 1000)
