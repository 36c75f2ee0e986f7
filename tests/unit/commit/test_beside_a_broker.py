"""While a broker is recorded it alone ends leases; other writers leave running jobs as they are."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from bucketq.model.operations import Lead, Request, Retire
from bucketq.model.settings import Settings
from bucketq.queue.queue import Queue
from tests.unit.commit.worlds import World, virtual

SILENT_S = Settings().lease_s + Settings().clock_margin_s + 60
Open = Callable[[World], Any]
WRITERS = pytest.mark.parametrize("open_queue", [World.direct, World.embedded])
CALLS = pytest.mark.parametrize(
    "claim",
    [
        lambda queue: queue.claim(),
        lambda queue: queue.claim(wait_s=SILENT_S),
        lambda queue: queue.claim_batch("consumer", 1, 1),
    ],
    ids=["claim", "waiting claim", "batch"],
)


async def served(world: World) -> None:
    """Leave a job that its worker has claimed, and a broker that is recorded."""
    async with world.rival() as queue:
        await queue.push("mail", 1)
        await queue.open_consumer("consumer")
        await queue.claim()
        await submit(queue, Lead(id="b", address="10.0.0.1:4001", host="elsewhere", after=0))


async def submit(queue: Queue[Any], operation: Lead | Retire) -> None:
    await queue._committer.submit(Request(operation), 60.0)


async def attempts(world: World) -> list[tuple[str, int, int]]:
    return [(job.status, job.attempt, job.lost_leases) for job in (await world.state()).jobs]


@WRITERS
@CALLS
@virtual
async def test_a_writer_ends_no_lease_while_a_broker_serves(
    open_queue: Open, claim: Callable[[Any], Any]
) -> None:
    world = World()
    await served(world)
    async with open_queue(world) as queue:
        await claim(queue)
        await asyncio.sleep(SILENT_S)
        for _ in range(3):
            await claim(queue)
            await asyncio.sleep(2)
    async with open_queue(world) as queue:  # One that looks for the first time.
        await claim(queue)
    assert await attempts(world) == [("running", 1, 0)]


@WRITERS
@CALLS
@virtual
async def test_a_writer_ends_the_lease_once_the_broker_has_retired(
    open_queue: Open, claim: Callable[[Any], Any]
) -> None:
    world = World()
    await served(world)
    await asyncio.sleep(SILENT_S)
    async with world.rival() as queue:
        await submit(queue, Retire(id="b", epoch=1))
    async with open_queue(world) as queue:
        await claim(queue)
    assert await attempts(world) == [("running", 2, 1)]
