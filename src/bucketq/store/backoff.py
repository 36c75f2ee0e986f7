"""Pauses between retries."""

from __future__ import annotations

import asyncio

from bucketq.clock import Clock, fraction


class RetryBackoff:
    """Exponential backoff with full jitter."""

    def __init__(self, clock: Clock, first_s: float, most_s: float) -> None:
        """Start with pauses of up to ``first_s``, and never pause longer than ``most_s``."""
        self._clock = clock
        self._bound_s = first_s
        self._most_s = most_s

    async def wait(self) -> None:
        """Pause; longer at each call."""
        await asyncio.sleep(self.next_s())

    def next_s(self) -> float:
        """Return the next pause; longer at each call."""
        wait_s = self._bound_s * fraction(self._clock)
        self._bound_s = min(2 * self._bound_s, self._most_s)
        return wait_s
