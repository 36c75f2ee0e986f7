"""Work that is done again and again beside the commits."""

from __future__ import annotations

import asyncio
import logging

import pytest

from bucketq.commit.upkeep.background import BackgroundLoop
from bucketq.commit.upkeep.transient_faults import TransientFault
from bucketq.errors import ClosedError, UnavailableError
from bucketq.testing import SimulatedClock, VirtualLoop, run

LAST_RETRY_S = 20.0


class Work:
    """Notes when it is done, and fails on demand."""

    def __init__(self, loop: VirtualLoop, pause_s: float | None) -> None:
        self._loop = loop
        self.pause_s = pause_s
        self.error: Exception | None = None
        self.times: list[float] = []
        clock = SimulatedClock(loop)
        fault = TransientFault(clock, logging.getLogger("bucketq"), "work fails", LAST_RETRY_S)
        self.background = BackgroundLoop(clock, fault)
        self.background.start(self.do, pause_s)

    async def do(self) -> float | None:
        self.times.append(self._loop.time())
        if self.error is not None:
            raise self.error
        return self.pause_s

    @property
    def pauses(self) -> list[float]:
        return [b - a for a, b in zip(self.times, self.times[1:], strict=False)]


def test_work_is_repeated_until_it_is_stopped() -> None:
    async def main(loop: VirtualLoop) -> None:
        work = Work(loop, 2.0)
        await asyncio.sleep(100)
        assert 25 <= len(work.times) <= 50
        assert min(work.pauses) >= 2
        await work.background.stop()
        work.times.clear()
        await asyncio.sleep(100)
        assert work.times == []

    run(main)


def test_work_without_a_pause_waits_to_be_woken() -> None:
    async def main(loop: VirtualLoop) -> None:
        work = Work(loop, None)
        await asyncio.sleep(100)
        assert work.times == []
        for _ in range(3):
            work.background.wake()
            work.background.wake()
            await asyncio.sleep(1)
        assert len(work.times) == 3
        await work.background.stop()

    run(main)


@pytest.mark.parametrize("pause_s", [None, 2.0], ids=["woken", "repeated"])
def test_failures_are_logged_once_and_retried_with_growing_pauses(
    pause_s: float | None, caplog: pytest.LogCaptureFixture
) -> None:
    async def main(loop: VirtualLoop) -> None:
        work = Work(loop, pause_s)
        work.error = UnavailableError("no answer")
        work.background.wake()
        for _ in range(1000):
            await asyncio.sleep(1)
            work.background.wake()
        assert 30 < len(work.times) < 200, "waking it does not end a pause"
        assert LAST_RETRY_S < max(work.pauses) <= 2 * LAST_RETRY_S
        work.error = None
        await asyncio.sleep(100)
        texts = [(each.levelname, each.getMessage()) for each in caplog.records]
        assert texts == [
            ("WARNING", "work fails, retrying until it passes: no answer"),
            ("INFO", "work fails: this has passed"),
        ]
        await work.background.stop()

    with caplog.at_level("INFO", logger="bucketq"):
        run(main)


def test_a_queue_that_closes_is_not_a_failure(caplog: pytest.LogCaptureFixture) -> None:
    async def main(loop: VirtualLoop) -> None:
        work = Work(loop, 2.0)
        work.error = ClosedError("closing")
        await asyncio.sleep(20)
        assert len(work.times) > 3
        await work.background.stop()

    run(main)
    assert caplog.text == ""
