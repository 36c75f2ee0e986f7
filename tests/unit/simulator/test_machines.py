from __future__ import annotations

import asyncio

from bucketq.testing.simulated_clock import SimulatedClock
from bucketq.testing.virtual_loop import VirtualLoop, run
from simulator.call_log import CallLog
from simulator.invariants.broker_invariants import BrokerTracker
from simulator.machines import Machine, SimulatedLock
from simulator.simulated_network import SimulatedNetwork
from simulator.watched_store import WatchedStore


def machine(loop: VirtualLoop) -> Machine:
    store, network = WatchedStore(loop), SimulatedNetwork(loop)
    return Machine("host", loop, SimulatedClock(loop), store.connect("host"), network.host("host"))


def test_the_lock_of_a_machine_is_one_processs_at_a_time_and_dies_with_it() -> None:
    async def main(loop: VirtualLoop) -> list[bool]:
        host = machine(loop)
        taken: list[bool] = []

        async def hold() -> None:
            taken.append(SimulatedLock(host).take())
            await asyncio.sleep(60)

        first = loop.spawn("first", hold)
        await asyncio.sleep(1)
        loop.spawn("second", hold)
        await asyncio.sleep(1)
        first.kill()
        loop.spawn("third", hold)
        await asyncio.sleep(1)
        return taken

    assert run(main) == [True, False, True]


def test_a_released_lock_can_be_taken_and_only_its_holder_releases_it() -> None:
    async def main(loop: VirtualLoop) -> list[bool]:
        host = machine(loop)
        mine = SimulatedLock(host)
        answers = [mine.take(), mine.take()]

        async def meddle() -> None:
            SimulatedLock(host).release()
            answers.append(SimulatedLock(host).take())

        await loop.spawn("meddler", meddle).wait()
        mine.release()
        await loop.spawn("next", meddle).wait()
        return answers

    assert run(main) == [True, True, False, True]


def test_brokers_begin_with_no_takeover() -> None:
    async def main(loop: VirtualLoop) -> tuple[list[object], set[str]]:
        history = CallLog(loop, WatchedStore(loop), "queue.json")
        return [*BrokerTracker().takeovers], history.leaders

    assert run(main) == ([], set())
