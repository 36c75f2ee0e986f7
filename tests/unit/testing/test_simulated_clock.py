"""The simulated clock: virtual time plus what is wrong with the host."""

from __future__ import annotations

import asyncio
from datetime import timedelta

from bucketq.clock import Clock, new_id
from bucketq.testing.simulated_clock import EPOCH, SimulatedClock
from bucketq.testing.virtual_loop import VirtualLoop, run


def test_it_shows_virtual_time() -> None:
    async def main(loop: VirtualLoop) -> None:
        clock: Clock = SimulatedClock(loop)
        assert clock.now() == EPOCH
        await asyncio.sleep(90)
        assert clock.now() == EPOCH + timedelta(seconds=90)
        assert clock.now().utcoffset() == timedelta(0)

    run(main)


def test_it_is_off_by_its_offset_and_drifts() -> None:
    async def main(loop: VirtualLoop) -> None:
        clock = SimulatedClock(loop, offset_s=-30.0, drift=0.01)
        assert clock.now() == EPOCH - timedelta(seconds=30)
        await asyncio.sleep(1000)
        assert clock.now() == EPOCH + timedelta(seconds=980)

    run(main)


def test_it_jumps_forward_and_back() -> None:
    async def main(loop: VirtualLoop) -> None:
        clock = SimulatedClock(loop)
        clock.jump(3600)
        assert clock.now() == EPOCH + timedelta(hours=1)
        clock.jump(-7200)
        assert clock.now() == EPOCH - timedelta(hours=1)
        assert loop.time() == 0

    run(main)


def test_entropy_comes_from_the_seed_and_differs_between_clocks() -> None:
    async def main(loop: VirtualLoop) -> list[str]:
        clocks = [SimulatedClock(loop), SimulatedClock(loop)]
        return [new_id(clock) for clock in clocks for _ in range(100)]

    first = run(main, seed=1)
    assert first == run(main, seed=1)
    assert len({*first, *run(main, seed=2)}) == 400


def test_a_given_generator_is_used() -> None:
    async def main(loop: VirtualLoop) -> bytes:
        return SimulatedClock(loop, VirtualLoop.stream(loop, "mine")).entropy(16)

    assert run(main) == run(main)
    assert len(run(main)) == 16
