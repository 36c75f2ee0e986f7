"""The finished jobs of a queue, in the order in which they finished.

They wait here to be archived. Nearly all of them finish in order, so they are a run that is sorted
already, with others beside it that came late: a clock was set back, or another host's is behind.
Adding and removing one costs the same at any size.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime
from heapq import merge

import msgspec

from bucketq.model.records import JobRecord

_encode_into = msgspec.json.Encoder().encode_into


class FinishedJobs:
    """Jobs that are done, by id and by the time at which they finished."""

    __slots__ = ("_late", "_run", "_sizes", "size_bytes")

    def __init__(self) -> None:
        self._run: dict[str, JobRecord] = {}
        self._late: dict[str, JobRecord] = {}
        self._sizes: dict[str, int] = {}
        self.size_bytes = 0
        """How many bytes they take in the object."""

    def __len__(self) -> int:
        return len(self._sizes)

    def __iter__(self) -> Iterator[JobRecord]:
        """All of them, in the order in which they finished."""
        if not self._late:
            return iter(self._run.values())
        return merge(self._run.values(), sorted(self._late.values(), key=_order), key=_order)

    def add_all(self, jobs: Iterable[JobRecord]) -> None:
        """Add jobs that are done."""
        run, sizes, line = self._run, self._sizes, bytearray()
        last = self._last()
        newest = None if last is None else _order(last)
        for job in jobs:
            _encode_into(job, line)
            sizes[job.id] = size_bytes = len(line) + 2  # A comma and a line feed.
            self.size_bytes += size_bytes
            order = _order(job)
            if newest is None or order >= newest:
                run[job.id], newest = job, order
            else:
                self._late[job.id] = job

    def remove_all(self, jobs: Iterable[JobRecord]) -> int:
        """Take out jobs that have left; return how many bytes they took."""
        run, sizes, size_bytes = self._run, self._sizes, 0
        for job in jobs:
            size_bytes += sizes.pop(job.id)
            if run.pop(job.id, None) is None:
                del self._late[job.id]
        self.size_bytes -= size_bytes
        return size_bytes

    def bytes_of(self, job: JobRecord) -> int:
        """How many bytes one of them takes in the object, without fields that are not known."""
        return self._sizes[job.id]

    def oldest(self) -> JobRecord | None:
        """The one that finished first, or None."""
        return next(iter(self), None)

    def newest(self) -> datetime | None:
        """When the last of them finished; None if there are none."""
        last = self._last()
        there = self._late.values() if last is None else (last, *self._late.values())
        return max(map(finished_at, there), default=None)

    def _last(self) -> JobRecord | None:
        return next(reversed(self._run.values()), None)


def finished_at(job: JobRecord) -> datetime:
    """When a job that is done finished; one without a time is as old as its push."""
    return job.finished_at or job.pushed_at


def _order(job: JobRecord) -> tuple[datetime, int]:
    return (finished_at(job), job.seq)
