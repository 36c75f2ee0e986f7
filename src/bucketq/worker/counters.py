"""Counts what a worker has done."""

from __future__ import annotations

from dataclasses import dataclass, field

from bucketq.model.queue_stats import Stats
from bucketq.worker.attempt import End


@dataclass
class WorkerCounters:
    """What a worker has done so far, in one run."""

    claimed: int = 0
    running: int = 0
    waiting: int = 0
    """Claimed, but not started yet."""
    ends: dict[End, int] = field(default_factory=dict)
    left: Stats | None = None
    """The queue at the end of a burst, if it could be read: the jobs left are not due yet."""

    def count(self, end: End) -> int:
        """How many attempts ended this way."""
        return self.ends.get(end, 0)
