"""How long to wait before trying again."""

from __future__ import annotations

import asyncio

from bucketq.clock import Clock, fraction


class RetryBackoff:
    """Waits between tries: a random part of a bound that doubles (full jitter)."""

    def __init__(self, clock: Clock, first_s: float, most_s: float) -> None:
        """Begin with waits of up to ``first_s``, and never wait longer than ``most_s``."""
        self._clock = clock
        self._bound_s = first_s
        self._most_s = most_s

    async def wait(self) -> None:
        """Wait a while; longer at each call."""
        await asyncio.sleep(self.next_s())

    def next_s(self) -> float:
        """How long to wait now; longer at each call."""
        wait_s = self._bound_s * fraction(self._clock)
        self._bound_s = min(2 * self._bound_s, self._most_s)
        return wait_s
