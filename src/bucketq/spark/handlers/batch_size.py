"""How many jobs are sent to Spark together."""

from __future__ import annotations

from math import ceil

_SHORT_S = 0.5
_LONG_S = 2.0
"""Batches are made larger below the first and smaller above the second: handlers are busy for
about a second, ten times what a batch costs Spark."""
_JOBS_MAX = 5000
"""Bounds what the driver holds, and how many jobs wait to be settled with the slowest of them."""
_GROWTH_MAX = 32
"""The largest factor by which a batch grows at once. If handlers prove slower than that one
measurement said, the next batch is as small as what they did of it."""
_SHORTEST_S = 0.001
"""Avoids a division by zero for handlers that take no measurable time."""


class BatchSize:
    """How many jobs go into a batch: so many that handlers are busy for about a second.

    Each batch costs Spark a tenth of a second or more, whatever its size, and much more if the
    cluster is busy; so overhead makes batches larger, not smaller. The jobs of a batch are settled
    together when the last of them has ended.
    """

    def __init__(self, least: int, most: int = _JOBS_MAX) -> None:
        """Begin with ``least``, the number of jobs that run at the same time."""
        self._least = least
        self._most = max(least, most)
        self.jobs = least
        self.is_fast = False
        """Whether batches are short enough that a third one should wait here for its turn."""

    def note(
        self, jobs: int, took_s: float, busy_s: float | None = None, ended: int | None = None
    ) -> None:
        """Adapt to the duration of a batch, and of the part of it in which handlers were busy.

        ``ended`` is how many of its jobs have ended, if tasks did not start all of them.
        """
        busy_s = took_s if busy_s is None else min(busy_s, took_s)
        self.is_fast = busy_s <= _LONG_S
        short_s = min(max(_SHORT_S, took_s - busy_s), _LONG_S / 2)
        if not self.is_fast:
            done = ended if ended is not None and ended < jobs else self.jobs
            self.jobs = max(self._least, min(self.jobs // 2, done))
        elif busy_s < short_s and jobs >= self.jobs:
            # At once to what is not short any more, as each step costs a batch.
            factor = min(_GROWTH_MAX, short_s / max(busy_s, _SHORTEST_S))
            self.jobs = min(self._most, ceil(max(2, factor) * self.jobs))
