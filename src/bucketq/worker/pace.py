"""How many jobs to fetch ahead: enough to keep the slots busy, and not one more.

A job that waits in a worker cannot be taken by another, so a worker fetches ahead only what its
slots will have worked off by the time the next claim is answered. With handlers that take longer
than a claim that is nothing at all.
"""

from __future__ import annotations

from math import ceil

_WEIGHT = 0.2
_SHORTEST_S = 1e-5
MOST = 1000
"""How many jobs are fetched ahead at the most."""


class Pace:
    """Measures claims and handlers."""

    def __init__(self, concurrency: int) -> None:
        """Begin without an idea: nothing is fetched ahead before a handler has ended."""
        self._concurrency = concurrency
        self._claim_s = 0.0
        self._run_s: float | None = None

    def note_claim(self, took_s: float) -> None:
        """Note how long a claim took that found as much as it asked for."""
        self._claim_s += _WEIGHT * (took_s - self._claim_s) if self._claim_s else took_s

    def note_run(self, took_s: float) -> None:
        """Note how long a handler took."""
        before = self._run_s
        self._run_s = took_s if before is None else before + _WEIGHT * (took_s - before)

    def note_jam(self, waited_s: float) -> None:
        """Note that no slot came free for so long."""
        self._run_s = max(self._run_s or 0.0, waited_s)

    @property
    def ahead(self) -> int:
        """How many jobs to hold beyond those that run."""
        if self._run_s is None:
            return 0
        share = self._concurrency * self._claim_s / max(self._run_s, _SHORTEST_S)
        return min(MOST, ceil(share)) if share >= 1 else 0
