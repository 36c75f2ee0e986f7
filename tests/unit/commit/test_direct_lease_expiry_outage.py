"""A storage outage, in which no worker can be heard: the healthy keep their leases."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import pytest

from bucketq.errors import BucketQError
from bucketq.queue.queue import Queue
from tests.unit.commit.worlds import World, lose_request, say_nothing, slowly, start, virtual

LEASE_S, GRACE_S, BEAT_S, OUTAGE_S = 6.0, 2.0, 2.0, 10.0

Watcher = Queue[Any]


async def beat(queue: Queue[Any], job: Any) -> None:
    """Work on a job as a healthy worker does: it beats, and again soon if that gets no answer."""
    while True:
        try:
            (pulse,) = await queue.heartbeat(job)
        except BucketQError:
            await asyncio.sleep(GRACE_S / 2)
        else:
            assert pulse.held, "its lease was taken"
            await asyncio.sleep(BEAT_S)


class Worker(World):
    """The same storage over another connection, which breaks in its own way."""

    def __init__(self, world: World) -> None:
        super().__init__()
        self.store.memory = world.store.memory


async def claim_again_and_again(queue: Watcher) -> None:
    """Claim and push by callers of whom none waits for another."""

    async def ask(asking: Awaitable[object]) -> None:
        with suppress(BucketQError):
            await asking

    async with asyncio.TaskGroup() as group:
        while True:
            group.create_task(ask(queue.claim("mail")))
            group.create_task(ask(queue.push("other", 1)))
            await asyncio.sleep(0.3)


async def claim_and_wait(queue: Watcher) -> None:
    await queue.claim("mail", wait_s=600)


async def claim_while_another_waits(queue: Watcher) -> None:
    await asyncio.gather(claim_and_wait(queue), claim_again_and_again(queue))


CLAIMS: list[Callable[[Watcher], Awaitable[None]]] = [
    claim_again_and_again,
    claim_and_wait,
    claim_while_another_waits,
]


@pytest.mark.parametrize(
    "worlds",
    # The outage begins at another moment between two heartbeats in each world.
    [range(0, 20, 10), pytest.param(range(20), marks=pytest.mark.full)],
    ids=["two", "twenty"],
)
@pytest.mark.parametrize("outage", [lose_request, say_nothing], ids=["reset", "silent"])
@pytest.mark.parametrize("claim", CLAIMS)
@pytest.mark.parametrize("kind", ["embedded", "direct"])
@virtual
async def test_a_healthy_worker_keeps_its_lease_through_an_outage(
    kind: str, claim: Callable[[Watcher], Awaitable[None]], outage: Any, worlds: range
) -> None:
    for world_number in worlds:
        world = World()
        worker = Worker(world)
        watcher: Watcher = world.embedded() if kind == "embedded" else world.direct()
        async with worker.direct(timeout_s=GRACE_S / 4) as queue, watcher:
            await queue.configure(lease_s=LEASE_S, grace_s=GRACE_S, heartbeat_s=BEAT_S)
            await queue.push("mail", 1)
            (job,) = await queue.claim()
            tasks = [start(beat(queue, job)), start(claim(watcher))]
            await asyncio.sleep(10 + 0.1 * world_number)
            worker.store.break_down(lose_request)
            world.store.break_down(outage)
            await asyncio.sleep(OUTAGE_S)
            worker.store.break_down(None)
            world.store.break_down(None)
            await asyncio.sleep(12)
            job_now = await queue.get(job.id)
            assert (job_now.attempt, job_now.record.lost_leases) == (1, 0), world_number
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


@pytest.mark.parametrize(
    ("kind", "latency_s"),
    [("embedded", 0.0), ("embedded", 0.5), ("embedded", 3.0), ("direct", 0.0), ("direct", 0.05)],
)
@pytest.mark.parametrize("claim", CLAIMS)
@virtual
async def test_the_job_of_a_worker_that_died_is_claimed_by_another(
    kind: str, claim: Callable[[Watcher], Awaitable[None]], latency_s: float
) -> None:
    world = World()
    watcher: Watcher = world.embedded() if kind == "embedded" else world.direct()
    async with watcher, world.rival() as worker:
        await worker.configure(lease_s=LEASE_S, grace_s=GRACE_S, heartbeat_s=BEAT_S)
        await worker.push("mail", 1)
        (job,) = await worker.claim()
        for verb in ("get", "get_if_changed", "replace"):
            world.store.stand(verb, slowly(latency_s))
        claiming = start(claim(watcher))
        await asyncio.sleep(LEASE_S + GRACE_S + 3 + 6 * latency_s)
        assert (await worker.get(job.id)).attempt == 2
        claiming.cancel()
        await asyncio.gather(claiming, return_exceptions=True)


@virtual
async def test_a_waiting_claim_gets_the_job_at_the_second_look_after_its_lease_ran_out() -> None:
    world = World()
    async with world.embedded() as queue:
        await queue.configure(lease_s=0.02, grace_s=0.01, heartbeat_s=0.01, clock_margin_s=0)
        await queue.push("mail", 1)
        await queue.claim()
        began_s = asyncio.get_running_loop().time()
        assert [job.attempt for job in await queue.claim(wait_s=60)] == [2]
        assert asyncio.get_running_loop().time() - began_s <= 2.1


@virtual
async def test_a_first_claim_takes_the_job_of_a_worker_that_died_long_ago() -> None:
    world = World()
    async with world.embedded() as queue:
        async with world.rival() as worker:
            await worker.configure(lease_s=LEASE_S, grace_s=GRACE_S, clock_margin_s=60.0)
            await worker.push("mail", 1)
            await worker.claim()
        assert (await queue.stats()).total("running") == 1
        await asyncio.sleep(3600)
        assert [job.attempt for job in await queue.claim()] == [2]


@virtual
async def test_a_queue_that_has_not_looked_for_long_judges_what_it_finds_then() -> None:
    """What was in its memory is an hour old, and says nothing about the worker of now."""
    world = World()
    async with world.embedded() as queue, world.rival() as worker:
        await worker.configure(lease_s=LEASE_S, grace_s=GRACE_S, clock_margin_s=60.0)
        await worker.push("mail", 1)
        (job,) = await worker.claim()
        assert (await queue.stats()).total("running") == 1
        await asyncio.sleep(3600)
        await worker.heartbeat(job)
        world.store.plan("get_if_changed", lose_request)
        assert await queue.claim() == []
        await asyncio.sleep(3600)
        assert await queue.claim() == [], "after a pause it keeps the grace"
        assert [job.attempt for job in await queue.claim(wait_s=GRACE_S + 2)] == [2]
