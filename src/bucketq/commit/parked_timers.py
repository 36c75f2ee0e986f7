"""``ParkedTimers``: numbers requests that are parked, and knows which of them are out of time."""

from __future__ import annotations

from heapq import heappop, heappush

from bucketq.commit.pending_requests import PendingRequest

_SWEEP_ABOVE = 64
"""How many timers of requests that were answered are kept: sweeping fewer is not worth a sort."""

_Timer = tuple[float, int, PendingRequest]


class ParkedTimers:
    """The numbers and times of the requests that are parked in one place."""

    def __init__(self) -> None:
        self._timers: list[_Timer] = []
        self._numbers: dict[int, int] = {}
        """The number of each request, by its identity."""
        self._next = 0

    def __len__(self) -> int:
        return len(self._numbers)

    def add(self, pending: PendingRequest) -> int:
        """Number a request, and return its number: larger than that of any before."""
        self._next += 1
        self._numbers[id(pending)] = self._next
        heappush(self._timers, (pending.until, self._next, pending))
        if len(self._timers) > 2 * len(self._numbers) + _SWEEP_ABOVE:
            self._timers = sorted(timer for timer in self._timers if self._is_parked(timer))
        return self._next

    def remove(self, pending: PendingRequest) -> int | None:
        """Forget a request, and return its number; None: it is not parked here."""
        return self._numbers.pop(id(pending), None)

    def expired(self, now_s: float) -> PendingRequest | None:
        """Return a request whose time is over, which the caller removes; None: there is none."""
        expiry_s = self.next_expiry()
        return self._timers[0][2] if expiry_s is not None and expiry_s <= now_s else None

    def next_expiry(self) -> float | None:
        """Return when the time of the next request is over, or None."""
        while self._timers and not self._is_parked(self._timers[0]):
            heappop(self._timers)
        return self._timers[0][0] if self._timers else None

    def _is_parked(self, timer: _Timer) -> bool:
        return self._numbers.get(id(timer[2])) == timer[1]
