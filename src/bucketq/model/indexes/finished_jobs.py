"""The finished jobs of a queue, in the order in which they finished.

They wait here to be archived, each with the line that the object and the archive have of it, which
is made once. Nearly all of them finish in order, so they are a run that is sorted
already, with others beside it that came late: a clock was set back, or another host's is behind.
Adding and removing one costs the same at any size.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from datetime import datetime
from heapq import merge
from itertools import chain
from operator import le
from typing import cast

import msgspec

from bucketq.model.records import JobRecord

_encoder = msgspec.json.Encoder()
_BETWEEN_LINES = 2
"""A comma and a line feed, in the object."""


class FinishedJobs:
    """Jobs that are done, by id and by the time at which they finished."""

    __slots__ = ("_late", "_lines", "_run", "size_bytes")

    def __init__(self) -> None:
        self._run: dict[str, JobRecord] = {}
        self._late: dict[str, JobRecord] = {}
        self._lines: dict[str, bytes] = {}
        self.size_bytes = 0
        """How many bytes they take in the object."""

    def __len__(self) -> int:
        return len(self._lines)

    def __iter__(self) -> Iterator[JobRecord]:
        """All of them, in the order in which they finished."""
        if not self._late:
            return iter(self._run.values())
        return merge(self._run.values(), sorted(self._late.values(), key=_order), key=_order)

    def add_all(self, jobs: Collection[JobRecord]) -> None:
        """Add jobs that are done."""
        lines = (_encode_together(jobs) if len(jobs) > 1 else None) or [*map(_encode_one, jobs)]
        ids = [job.id for job in jobs]
        self._lines.update(zip(ids, lines, strict=True))
        self.size_bytes += sum(map(len, lines)) + _BETWEEN_LINES * len(lines)
        orders = [(job.finished_at or job.pushed_at, job.seq) for job in jobs]
        last = self._last()
        before = orders[:1] if last is None else [_order(last)]
        if all(map(le, chain(before, orders), orders)):
            self._run.update(zip(ids, jobs, strict=True))
            return
        for job, order in zip(jobs, orders, strict=True):
            last = self._last()
            kept = self._run if last is None or order >= _order(last) else self._late
            kept[job.id] = job

    def remove_all(self, jobs: Iterable[JobRecord]) -> int:
        """Take out jobs that have left; return how many bytes they took."""
        run, lines, size_bytes = self._run, self._lines, 0
        for job in jobs:
            size_bytes += len(lines.pop(job.id)) + _BETWEEN_LINES
            if run.pop(job.id, None) is None:
                del self._late[job.id]
        self.size_bytes -= size_bytes
        return size_bytes

    def bytes_of(self, job: JobRecord) -> int:
        """How many bytes one of them takes in the object, without fields that are not known."""
        return len(self._lines[job.id]) + _BETWEEN_LINES

    def lines_of(self, jobs: Sequence[JobRecord]) -> list[bytes] | None:
        """The lines of jobs, without fields that are not known; None if not all of them are done.

        Those of the queue are mostly not, and the first and the last show it.
        """
        known = self._lines
        if not jobs or jobs[0].id not in known or jobs[-1].id not in known:
            return None
        found = [known.get(job.id) for job in jobs]
        return None if None in found else cast("list[bytes]", found)

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


def _encode_together(jobs: Collection[JobRecord]) -> list[bytes] | None:
    """Encode jobs in half the time; None: not each of them is on one line."""
    lines = _encoder.encode_lines(jobs).splitlines()
    return lines if len(lines) == len(jobs) else None


def _encode_one(job: JobRecord) -> bytes:
    line = _encoder.encode(job)
    # A payload may have come with line breaks between its values.
    return msgspec.json.format(line, indent=-1) if b"\n" in line else line


def finished_at(job: JobRecord) -> datetime:
    """When a job that is done finished; one without a time is as old as its push."""
    return job.finished_at or job.pushed_at


def _order(job: JobRecord) -> tuple[datetime, int]:
    return (finished_at(job), job.seq)
