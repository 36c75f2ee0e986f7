"""``CommitMeter``: how the commits of a leader went, for those who ask for its stats.

Metrics have the same and more, but only a process that exposes them counts them, and only
Prometheus reads them. This costs one entry of a ring for each commit.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from typing import Any, NamedTuple

from bucketq.commit.objects.register import Register
from bucketq.model.queue_stats import CommitStats
from bucketq.store.resolve_write import Verdict

_MOST = 500
"""Enough for a percentile 99; sorting them takes a tenth of a millisecond."""
_LATELY_S = 60.0
"""How old a commit may be: what was slow before does not say how it is now."""


class _Write(NamedTuple):
    at_s: float
    took_s: float
    size_bytes: int
    requests: int


class CommitMeter:
    """Counts the commits of one leader, and remembers the latest."""

    def __init__(self, register: Register) -> None:
        self._register = register
        self._failures_before = register.failures
        self._latest: deque[_Write] = deque(maxlen=_MOST)
        self._commits = 0
        self._conflicts = 0

    def wrote(self, verdict: Verdict, took_s: float, size_bytes: int, requests: int) -> None:
        """Note a write of the object for so many requests, and what became of it."""
        if verdict is Verdict.LANDED:
            self._commits += 1
            now_s = asyncio.get_running_loop().time()
            self._latest.append(_Write(now_s, took_s, size_bytes, requests))
        else:
            self._conflicts += 1

    def measure(self) -> CommitStats:
        """Return the counts since the leader leads, and percentiles of the last minute."""
        since_s = asyncio.get_running_loop().time() - _LATELY_S
        latest = [write for write in self._latest if write.at_s >= since_s]
        return CommitStats(
            commits=self._commits,
            conflicts=self._conflicts,
            storage_errors=self._register.failures - self._failures_before,
            measured=len(latest),
            took_s=_percentiles([round(write.took_s, 6) for write in latest]),
            size_bytes=_percentiles([write.size_bytes for write in latest]),
            requests=_percentiles([write.requests for write in latest]),
        )


def _percentiles(values: Sequence[Any]) -> tuple[Any, Any]:
    """Return the smallest values at or below which 50 and 99 percent of the values lie."""
    if not values:
        return 0, 0
    ordered = sorted(values)
    middle, high = (-(-len(ordered) * percent // 100) - 1 for percent in (50, 99))
    return ordered[middle], ordered[high]
