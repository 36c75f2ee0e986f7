"""How long a broker is asked that does not answer, and what ends that."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from bucketq.broker.takeover import SILENCE_S, Sign, ask_on
from bucketq.rpc.transport import CannotDialError
from bucketq.testing.virtual_loop import current_loop
from tests.unit.broker.land import now_s
from tests.unit.commit.worlds import virtual

Ask = Callable[[], Coroutine[Any, Any, Sign]]


class Broker:
    """Answers pings that it gets while it does not stand still, after a moment."""

    def __init__(self, wakes_at: float, *, keeps: bool = True) -> None:
        self._wakes_at = wakes_at
        self._keeps = keeps
        self.asked_at: list[float] = []

    async def ask(self) -> Sign:
        """Answer in time or not at all; with ``keeps`` what came meanwhile is answered late."""
        self.asked_at.append(now_s())
        wait_s = self._wakes_at - now_s()
        if wait_s > 0 and not self._keeps:
            wait_s = 1e6
        try:
            async with asyncio.timeout(1.5):
                await asyncio.sleep(max(0.0, wait_s) + 0.01)
        except TimeoutError:
            return Sign.SILENT
        return Sign.ALIVE


@virtual
async def test_silence_is_asked_every_half_second_and_lasts_its_time() -> None:
    broker = Broker(100.0)
    assert await ask_on(broker.ask) is Sign.SILENT
    assert now_s() == pytest.approx(SILENCE_S, abs=0.001)
    assert broker.asked_at == pytest.approx([0.0, 0.5, 1.0, 1.5, 2.0])


@pytest.mark.parametrize("keeps", [True, False], ids=["late", "lost"])
def test_a_broker_that_stood_still_for_a_moment_is_alive(keeps: bool) -> None:
    @virtual
    async def story() -> None:
        assert await ask_on(Broker(1.9, keeps=keeps).ask) is Sign.ALIVE
        assert now_s() < SILENCE_S

    story()


@virtual
async def test_a_broker_that_answers_is_asked_once() -> None:
    broker = Broker(0.0)
    assert await ask_on(broker.ask) is Sign.ALIVE
    assert len(broker.asked_at) == 1


@virtual
async def test_pings_that_fail_at_once_are_not_evidence_at_once() -> None:
    asked = 0

    async def reset() -> Sign:
        nonlocal asked
        asked += 1
        return Sign.SILENT if asked < 5 else Sign.ALIVE

    assert await ask_on(reset) is Sign.ALIVE
    assert now_s() == pytest.approx(2.0, abs=0.001)


@virtual
async def test_a_prober_that_was_frozen_itself_starts_over() -> None:
    """The answers may have come meanwhile, and wait to be read."""
    loop = current_loop()
    broker = Broker(7.0, keeps=False)
    asking = loop.spawn("standby", lambda: ask_on(broker.ask))
    await asyncio.sleep(0.2)
    asking.freeze(for_s=6.0)
    assert await asking.wait() is Sign.ALIVE
    assert 7.0 < now_s() < 7.0 + SILENCE_S


@virtual
async def test_a_prober_that_cannot_dial_learns_nothing() -> None:
    async def ask() -> Sign:
        raise CannotDialError("ca.pem is missing")

    with pytest.raises(CannotDialError):
        await ask_on(ask)
