"""``RunningJobs``: the jobs that workers hold, and about how many bytes they take.

They are always in the queue object, which every commit writes again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from operator import attrgetter

from bucketq.model.records import JobRecord

_ROW_BYTES = 400
"""About what the line of a running job takes beside its payload."""

_id = attrgetter("id")


def running_bytes(job: JobRecord) -> int:
    """About how many bytes a job takes in the object while it is running."""
    return len(job.payload) + _ROW_BYTES


class RunningJobs:
    """The ids of the running jobs of one state, in the order in which they were claimed."""

    __slots__ = ("_groups", "_sizes", "freed", "in_group", "of_batch", "size_bytes")

    def __init__(self) -> None:
        """Begin without jobs."""
        self._sizes: dict[str, int] = {}
        self.size_bytes = 0
        self._groups: dict[str, str] = {}
        """The groups of the jobs that have one."""
        self.in_group: dict[str, int] = {}
        """How many jobs of each group are running."""
        self.freed: set[str] = set()
        """The groups of which a job has ended since this was last emptied."""
        self.of_batch: dict[str, dict[str, JobRecord]] = {}
        """By the secret of a consumer's batch, records that were found to belong to it: that
        follows from their leases, which are hashes. One that was replaced is checked again."""

    def __len__(self) -> int:
        return len(self._sizes)

    def __iter__(self) -> Iterator[str]:
        return iter(self._sizes)

    def __contains__(self, job_id: str) -> bool:
        return job_id in self._sizes

    def add_all(self, jobs: Collection[JobRecord]) -> None:
        """Add jobs that were claimed."""
        sizes = {job.id: len(job.payload) + _ROW_BYTES for job in jobs}
        self._sizes.update(sizes)
        self.size_bytes += sum(sizes.values())
        for job in jobs:
            if job.group:
                self._groups[job.id] = job.group
                self.in_group[job.group] = self.in_group.get(job.group, 0) + 1

    def remove_all(self, jobs: Collection[JobRecord]) -> None:
        """Take out jobs that are not running any more."""
        self.size_bytes -= sum(map(self._sizes.pop, map(_id, jobs)))
        for job in jobs if self._groups else ():
            if group := self._groups.pop(job.id, ""):
                self.freed.add(group)
                self.in_group[group] -= 1
                if not self.in_group[group]:
                    del self.in_group[group]

    def bytes_of(self, ids: Iterable[str]) -> int:
        """About how many bytes some of them take in the object."""
        return sum(map(self._sizes.__getitem__, ids))
