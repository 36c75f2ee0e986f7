"""The finished jobs of a queue, in the order in which they finished.

They wait here to be archived. Nearly all of them finish in order, so they are a run that is sorted
already, with a list beside it for those that came late: a clock was set back, or another host's
is behind. Jobs that have left are skipped, and dropped once they outnumber those that are there,
so adding and removing one costs the same at any size.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from heapq import merge

import msgspec

from bucketq.model.records import JobRecord

_SWEEP_ABOVE = 1024  # So few entries are not worth a sweep.
_encode = msgspec.json.Encoder().encode


class FinishedJobs:
    """Jobs that are done, by id and by the time at which they finished."""

    __slots__ = ("_jobs", "_late", "_left", "_run", "_sizes", "size_bytes")

    def __init__(self) -> None:
        self._jobs: dict[str, JobRecord] = {}
        self._run: list[JobRecord] = []
        self._late: list[JobRecord] = []
        self._left = 0
        self._sizes: dict[str, int] = {}
        self.size_bytes = 0
        """How many bytes they take in the object."""

    def __len__(self) -> int:
        return len(self._jobs)

    def __contains__(self, job_id: str) -> bool:
        return job_id in self._jobs

    def __iter__(self) -> Iterator[JobRecord]:
        """All of them, in the order in which they finished."""
        jobs, entries = self._jobs, iter(self._run)
        if self._late:
            self._late.sort(key=_order)
            entries = merge(self._run, self._late, key=_order)
        return (job for job in entries if jobs.get(job.id) is job)

    def add(self, job: JobRecord) -> None:
        """Add a job that is done."""
        self._jobs[job.id] = job
        self._sizes[job.id] = size_bytes = line_bytes(job)
        self.size_bytes += size_bytes
        if self._run and _order(job) < _order(self._run[-1]):
            self._late.append(job)
        else:
            self._run.append(job)

    def remove(self, job_id: str) -> None:
        """Take out a job that has left."""
        del self._jobs[job_id]
        self.size_bytes -= self._sizes.pop(job_id)
        self._left += 1
        if self._left > len(self._jobs) + _SWEEP_ABOVE:
            jobs = self._jobs
            self._run = [job for job in self._run if jobs.get(job.id) is job]
            self._late = [job for job in self._late if jobs.get(job.id) is job]
            self._left = 0

    def bytes_of(self, job: JobRecord) -> int:
        """How many bytes one of them takes in the object."""
        return self._sizes[job.id]

    def oldest(self) -> JobRecord | None:
        """The one that finished first, or None."""
        return next(iter(self), None)

    def newest(self) -> datetime | None:
        """A moment that none of them finished after; None if there are none."""
        if not self._jobs:
            return None
        return max(map(finished_at, (*self._run[-1:], *self._late)))


def line_bytes(job: JobRecord) -> int:
    """How many bytes a job takes in the object, without fields that this bucketq does not know."""
    return len(_encode(job)) + 2  # A comma and a line feed.


def finished_at(job: JobRecord) -> datetime:
    """When a job that is done finished; one without a time is as old as its push."""
    return job.finished_at or job.pushed_at


def _order(job: JobRecord) -> tuple[datetime, int]:
    return (finished_at(job), job.seq)
