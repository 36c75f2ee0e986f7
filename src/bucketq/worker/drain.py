"""``Drain``: how a worker divides the time in which it has to end.

A worker that is stopped ends within its drain time, because whoever stopped it kills it soon after:
Kubernetes 30 s after its SIGTERM. So handlers may not use all of it. The last part belongs to
stopping those that still run, giving their jobs back, and closing the queue::

    stop                          hurry             settled    closed
     |--- handlers may finish ------|-- jobs go back --|-- queue --|
     0                                                            drain
"""

from __future__ import annotations

_SHORTEST_S = 5.0
"""How long ending may take however short the drain is: jobs that are not given back in time wait
until their leases run out."""
_LAST_WORDS_S = 5.0
"""How long jobs may take to be given back when the worker is in a hurry."""
_LAST_PART = 0.3
"""How much of a short drain that is at the most."""
_STOP_S = 1.0
"""How long a handler may take to stop before its job is given back without it."""
_CLOSE_S = 1.0
"""How long closing the queue may take."""


class Drain:
    """The times at which a worker that was stopped goes over to the next part."""

    def __init__(self, drain_s: float) -> None:
        """Divide ``drain_s``; the clock starts with ``begin``."""
        self.total_s = max(drain_s, _SHORTEST_S)
        """How long the worker takes to end at the most."""
        self.handlers_s = drain_s - min(_LAST_WORDS_S, drain_s * _LAST_PART)
        """How long handlers may go on."""
        self._hurry_at = self._end_at = float("inf")

    def begin(self, now_s: float) -> None:
        """The worker is stopped now."""
        if self._end_at == float("inf"):
            self._hurry_at = now_s + self.handlers_s
            self._end_at = now_s + self.total_s

    def hurry(self, now_s: float) -> None:
        """Handlers are told to stop now."""
        self.begin(now_s)
        self._hurry_at = min(self._hurry_at, now_s)
        self._end_at = min(self._end_at, now_s + _LAST_WORDS_S)

    def handlers_left_s(self, now_s: float) -> float:
        """How long handlers may still go on."""
        return max(0.0, self._hurry_at - now_s)

    def stop_s(self, now_s: float) -> float:
        """How long a handler that is told to stop now is waited for."""
        return min(_STOP_S, self.left_s(now_s) / 3)

    def settle_left_s(self, now_s: float) -> float:
        """How long jobs may still be given back."""
        return max(0.0, self._end_at - 2 * self._close_s - now_s)

    def close_left_s(self, now_s: float) -> float:
        """How long the queue may still be closed."""
        return max(0.0, self._end_at - self._close_s - now_s)

    def left_s(self, now_s: float) -> float:
        """How long until the worker has ended."""
        return max(0.0, self._end_at - now_s)

    @property
    def _close_s(self) -> float:
        # Twice: once for the queue, and once for what a process does after its worker.
        return min(_CLOSE_S, (self._end_at - self._hurry_at) / 6)
