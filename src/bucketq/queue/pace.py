"""How fast to write, and how long to wait before trying again."""

from __future__ import annotations

import asyncio

from bucketq.clock import Clock, fraction

_SLOWEST_S = 10.0
_FIRST_STEP_S = 0.1


class Backoff:
    """Waits between tries: a random part of a bound that doubles (full jitter)."""

    def __init__(self, clock: Clock, first_s: float, most_s: float) -> None:
        """Begin with waits of up to ``first_s``, and never wait longer than ``most_s``."""
        self._clock = clock
        self._bound_s = first_s
        self._most_s = most_s

    async def wait(self) -> None:
        """Wait a while; longer at each call."""
        await asyncio.sleep(self._bound_s * fraction(self._clock))
        self._bound_s = min(2 * self._bound_s, self._most_s)


class Pacer:
    """Keeps writes of one object as far apart as its store wants them.

    Some stores allow one write a second to one object. Others say so only by throttling;
    then the pause is doubled, and shrinks again with every write that goes well.
    """

    def __init__(self, interval_s: float) -> None:
        """Leave at least ``interval_s`` between the beginnings of two writes."""
        self._floor_s = interval_s
        self._interval_s = interval_s
        self._next_at = 0.0

    async def turn(self) -> None:
        """Wait until the next write may begin."""
        loop = asyncio.get_running_loop()
        pause_s = self._next_at - loop.time()
        self._next_at = max(self._next_at, loop.time()) + self._interval_s
        if pause_s > 0:
            await asyncio.sleep(pause_s)

    def went_well(self) -> None:
        """Note a write that the store took."""
        self._interval_s = max(self._floor_s, 0.9 * self._interval_s)
        if self._interval_s < _FIRST_STEP_S:
            self._interval_s = self._floor_s

    def was_throttled(self) -> None:
        """Note that the store asked for a slower pace."""
        self._interval_s = min(max(2 * self._interval_s, _FIRST_STEP_S), _SLOWEST_S)
