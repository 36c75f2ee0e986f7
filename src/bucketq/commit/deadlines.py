"""``Deadlines``: times out the callers of a queue, with one timer for all of them.

A timer for each request would cost a tenth of its time. Nearly all requests are answered long
before their deadline, so the one timer is set for the earliest deadline that it knows, and looks at
all requests when it fires.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from math import inf

from bucketq.commit.pending_requests import LocalRequest


class Deadlines:
    """The requests of this process whose callers wait, and until when."""

    def __init__(self, expired: Callable[[LocalRequest], Exception]) -> None:
        """A request that is not answered in time is answered with what ``expired`` returns."""
        self._expired = expired
        self._pending: dict[LocalRequest, float] = {}
        self._next_s = inf
        self._timer: asyncio.TimerHandle | None = None

    def add(self, pending: LocalRequest, until_s: float) -> None:
        """Time a request out, by the loop's time."""
        self._pending[pending] = until_s
        if until_s < self._next_s:
            self._set_timer(until_s)

    def remove(self, pending: LocalRequest) -> None:
        """Forget a request, because it was answered or its caller was cancelled."""
        del self._pending[pending]

    def close(self) -> None:
        """Stop the timer."""
        if self._timer is not None:
            self._timer.cancel()

    def _set_timer(self, at_s: float) -> None:
        self.close()
        self._next_s = at_s
        loop = asyncio.get_running_loop()
        self._timer = None if at_s == inf else loop.call_at(at_s, self._expire)

    def _expire(self) -> None:
        now_s = asyncio.get_running_loop().time()
        for pending, until_s in self._pending.items():
            if until_s <= now_s and not pending.is_resolved:
                pending.resolve(None, self._expired(pending))
        left = (until_s for each, until_s in self._pending.items() if not each.is_resolved)
        self._set_timer(min(left, default=inf))
