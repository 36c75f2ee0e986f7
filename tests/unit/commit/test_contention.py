"""Writers that meet on slow storage: each has its turn within a few seconds."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import Any

import pytest

from bucketq.broker.leader import Leader
from bucketq.commit.direct_committer import DirectCommitter
from bucketq.commit.objects.register import Register
from bucketq.queue.queue import Queue
from bucketq.testing import SimulatedClock, SimulatedStore, VirtualLoop, run
from tests.unit.broker.leaders import ADA
from tests.unit.commit.worlds import KEY, Effect, Fault, World, settle, start, virtual

WRITE_S, READ_S = 0.08, 0.04
BUSY_S = 30.0


def taking(seconds: float) -> Fault:
    """Take effect half way, as a request over a network does."""

    async def fault(effect: Effect) -> Any:
        await asyncio.sleep(seconds / 2)
        try:
            return await effect()
        finally:
            await asyncio.sleep(seconds / 2)

    return fault


class Connection(World):
    """A connection of its own to the storage of a world."""

    def __init__(self, world: World) -> None:
        super().__init__()
        self.store.memory = world.store.memory
        for verb, seconds in (("get", READ_S), ("get_if_changed", READ_S), ("replace", WRITE_S)):
            self.store.stand(verb, taking(seconds))


async def waits_of(queue: Any, pause_s: float = 0.0, busy_s: float = BUSY_S) -> list[float]:
    """Push again and again for a while; return how long each push took."""
    loop = asyncio.get_running_loop()
    until_s, waits = loop.time() + busy_s, list[float]()
    while loop.time() < until_s:
        began_s = loop.time()
        await queue.push("mail", 1)
        waits.append(loop.time() - began_s)
        await asyncio.sleep(pause_s)
    return waits


@virtual
async def test_embedded_queues_that_are_all_busy_take_turns() -> None:
    world = World()
    await world.register().open(create=True)
    async with AsyncExitStack() as stack:
        queues = [
            await stack.enter_async_context(Connection(world).embedded(timeout_s=10.0))
            for _ in range(4)
        ]
        waits = await asyncio.gather(*(waits_of(queue) for queue in queues))
    assert max(map(max, waits)) < 5
    counts = sorted(map(len, waits))
    assert counts[0] > counts[-1] / 2, "none has much more than another"
    assert sum(counts) > 0.6 * BUSY_S / WRITE_S, "they do not pause in vain"


@pytest.mark.shallow
@virtual
async def test_a_direct_writer_beside_a_busy_broker_has_its_turn_in_time() -> None:
    world = World()
    await world.register().open(create=True)
    served = Connection(world)
    leader = Leader(
        served.register(), served.clock, identity=ADA, after=0, archive=None, timeout_s=20.0
    )
    served_queue = Queue[Any](leader, served.clock)
    async with served_queue as led, Connection(world).direct() as queue:
        *busy, waits = await asyncio.gather(
            waits_of(led), waits_of(led), waits_of(queue, pause_s=0.5)
        )
    assert max(waits) < 3, "after two seconds without a pause, the broker makes one"
    assert len(waits) > 10
    assert len(busy[0]) > 0.7 * BUSY_S / WRITE_S, "the broker pauses seldom"


def test_direct_writers_of_a_deep_queue_do_not_starve_each_other() -> None:
    """A writer puts what its commit names, and others must not win every race meanwhile."""

    async def main(loop: VirtualLoop) -> None:
        store, clock = SimulatedStore(loop), SimulatedClock(loop)

        def direct(name: str) -> Queue[Any]:
            register = Register(store.connect(name), KEY, "queue", clock)
            return Queue(DirectCommitter(register, clock), clock)

        async with AsyncExitStack() as stack:
            queues = [await stack.enter_async_context(direct(f"link{n}")) for n in range(4)]
            await queues[0].configure(spill_bytes=300, history_retention_s=3600.0)
            waits = await asyncio.gather(*(waits_of(queue, 0.1, 8) for queue in queues))
        assert max(map(max, waits)) < 3
        assert sum(map(len, waits)) > 50

    run(main)


@virtual
async def test_a_heartbeat_does_not_wait_for_all_that_a_busy_direct_queue_has_to_do() -> None:
    world = World()
    async with world.direct() as queue:
        await queue.push("mail", 1)
        (job,) = await queue.claim()
        world.store.stand("replace", taking(WRITE_S))
        pushes = [start(queue.push("mail", number)) for number in range(50)]
        await settle()
        began_s = asyncio.get_running_loop().time()
        (pulse,) = await queue.heartbeat([job])
        waited_s = asyncio.get_running_loop().time() - began_s
        assert pulse.held
        assert waited_s <= 3 * WRITE_S
        assert not all(push.done() for push in pushes)
        await asyncio.gather(*pushes)
