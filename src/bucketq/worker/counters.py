"""``WorkerCounters``: what a worker has done so far."""

from __future__ import annotations

from dataclasses import dataclass, field

from bucketq.model.operations import Stats
from bucketq.worker.attempt import End


@dataclass
class WorkerCounters:
    """What a worker has done so far."""

    claimed: int = 0
    running: int = 0
    waiting: int = 0
    """Claimed, and not yet begun."""
    ends: dict[End, int] = field(default_factory=dict)
    left: Stats | None = None
    """The queue at the end of a burst, where it could be read: what is left is not due yet."""

    def count(self, end: End) -> int:
        """How many attempts ended so."""
        return self.ends.get(end, 0)
