"""How many jobs to fetch ahead: enough to keep the slots busy, and not one more.

A job that waits in a worker cannot be taken by another, so a worker fetches ahead only what its
slots work off while one claim is under way and the next one gathers. With handlers that take longer
than a claim that is nothing at all.
"""

from __future__ import annotations

from math import ceil

_WEIGHT = 0.2
_SHORTEST_S = 1e-5
_CLAIMS = 2.0
"""For how many claims to have jobs: when half of them are gone, the next claim is made, and the
other half keeps the slots busy until it is answered."""
_LONGEST_S = 1.0
"""How long the last of them may wait for its slot, at this pace."""
MOST = 1000
"""How many jobs are fetched ahead at the most."""


class Prefetch:
    """Measures claims and handlers."""

    def __init__(self, concurrency: int) -> None:
        """Begin without an idea: nothing is fetched ahead before a handler has ended."""
        self.concurrency = concurrency
        self.most = MOST
        """How many jobs may be fetched ahead."""
        self._claim_s = 0.0
        self._run_s: float | None = None
        self._is_jammed = False

    def note_claim(self, took_s: float) -> None:
        """Note how long a claim took that found as much as it asked for."""
        self._claim_s += _WEIGHT * (took_s - self._claim_s) if self._claim_s else took_s

    def note_run(self, took_s: float) -> None:
        """Note how long a handler took."""
        self._is_jammed = False
        before = self._run_s
        self._run_s = took_s if before is None else before + _WEIGHT * (took_s - before)

    def note_jam(self, waited_s: float) -> None:
        """Note that no slot came free for so long.

        What is fetched ahead before one does would only be given back as well.
        """
        self._is_jammed = True
        self._run_s = max(self._run_s or 0.0, waited_s)

    @property
    def ahead(self) -> int:
        """How many jobs to hold beyond those that run."""
        if self._run_s is None or self._is_jammed:
            return 0
        a_second = self.concurrency / max(self._run_s, _SHORTEST_S)
        if a_second * self._claim_s < 1:
            return 0
        return min(self.most, ceil(a_second * min(_CLAIMS * self._claim_s, _LONGEST_S)))
