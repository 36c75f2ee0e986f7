"""Counts what a worker has done."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from bucketq.model.queue_stats import Stats
from bucketq.worker.attempt import Attempt, End, Ended

OnEnd = Callable[[Attempt, Ended], None]
"""Called with an attempt that has ended, on the event loop of the engine; it must not raise."""


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

    on_end: OnEnd | None = None

    def add(self, attempt: Attempt, ended: Ended) -> None:
        """Count an attempt that has ended."""
        self.ends[ended.end] = self.ends.get(ended.end, 0) + 1
        if self.on_end is not None:
            self.on_end(attempt, ended)

    def count(self, end: End) -> int:
        """How many attempts ended this way."""
        return self.ends.get(end, 0)
