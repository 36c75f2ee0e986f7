"""How many jobs to fetch ahead: enough to keep the slots busy, and no more.

A job that waits in one worker cannot be claimed by another. So a worker fetches ahead only what its
slots finish during one claim and until the next. If handlers take longer than a claim, that is
nothing.
"""

from __future__ import annotations

from math import ceil

_WEIGHT = 0.2
"""The weight of a new sample in the moving averages."""
_SHORTEST_S = 1e-5
"""Avoids a division by zero for handlers that take no measurable time."""
_CLAIMS = 2.0
"""Jobs are held for this many claims: when half of them are used up, the next claim is sent, and
the other half keeps the slots busy until it is answered."""
_LONGEST_S = 1.0
"""How long the last fetched job may wait for a slot, at the measured rate."""
MOST = 1000
"""The most jobs that are fetched ahead, however short their handlers."""


class Prefetch:
    """Measures claims and handlers, and computes how many jobs to fetch ahead."""

    def __init__(self, concurrency: int) -> None:
        """Start without samples: nothing is fetched ahead before a handler has ended."""
        self.concurrency = concurrency
        self.most = MOST
        """How many jobs may be fetched ahead."""
        self._claim_s = 0.0
        self._run_s: float | None = None
        self._is_jammed = False

    def note_claim(self, took_s: float) -> None:
        """Record how long a claim took that returned as many jobs as requested."""
        self._claim_s += _WEIGHT * (took_s - self._claim_s) if self._claim_s else took_s

    def note_run(self, took_s: float) -> None:
        """Record how long a handler took."""
        self._is_jammed = False
        before = self._run_s
        self._run_s = took_s if before is None else before + _WEIGHT * (took_s - before)

    def note_jam(self, waited_s: float) -> None:
        """Record that no slot became free for this long.

        Jobs fetched before one does would only be released as well.
        """
        self._is_jammed = True
        self._run_s = max(self._run_s or 0.0, waited_s)

    @property
    def ahead(self) -> int:
        """How many jobs to hold beyond those that run."""
        if self._run_s is None or self._is_jammed:
            return 0
        per_second = self.concurrency / max(self._run_s, _SHORTEST_S)
        if per_second * self._claim_s < 1:
            return 0
        return min(self.most, ceil(per_second * min(_CLAIMS * self._claim_s, _LONGEST_S)))
