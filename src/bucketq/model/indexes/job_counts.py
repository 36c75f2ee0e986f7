"""``JobCounts``: how many jobs of each kind have each status, in the object and in segments."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from operator import attrgetter

from bucketq.model.records import JobRecord, Status

_kind = attrgetter("kind")


class JobCounts(dict[tuple[str, Status], int]):
    """The counts by kind and status; those that are 0 are left out."""

    __slots__ = ()

    def add(self, kind: str, status: Status, more: int) -> None:
        """Count jobs that have come, or with a negative number that have left."""
        count = self.get((kind, status), 0) + more
        if count:
            self[kind, status] = count
        else:
            del self[kind, status]

    def add_all(self, jobs: Collection[JobRecord], status: Status, sign: int = 1) -> None:
        """Count jobs of any kinds that have come, or with -1 that have left."""
        kinds = {*map(_kind, jobs)}
        if len(kinds) == 1:  # As nearly always, and twice as fast.
            self.add(kinds.pop(), status, sign * len(jobs))
            return
        for kind, count in Counter(map(_kind, jobs)).items():
            self.add(kind, status, sign * count)
