"""The waiting jobs of one kind and group, smallest (priority, number) first.

Nearly every job arrives in order, so a lane is a run of jobs that is already sorted, with a
heap beside it for those that came late: retries, releases, redrives, more urgent ones. A job
costs eight bytes in the run, and ten times that in the heap.

A lane may hold jobs that were cancelled since, or that got another priority and have a second
entry; these entries are skipped when they come to its head, so leaving costs nothing.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from heapq import heapify, heappop, heappush
from operator import attrgetter

from bucketq.model.records import JobRecord

FirstOfLane = tuple[tuple[int, int], str, JobRecord | None]
"""What no job of a lane comes before in the order of claims, the lane, and the job that has this
order; None: the next job has to be decoded."""

_BEFORE_ALL: tuple[int, int] = (-(2**63), -1)
_SWEEP_ABOVE = 1024  # So few entries are not worth a sweep.

_order = attrgetter("order")


def lane_of(kind: str, group: str) -> str:
    """Return the name of the lane of a kind and a group: that of the kind, if there is no group.

    No kind has a line feed, so no two lanes have the same name.
    """
    return f"{kind}\n{group}" if group else kind


class Lane:
    """Jobs in the order in which they are to be claimed."""

    __slots__ = ("_head", "_heap", "_kept", "_last", "_run")

    def __init__(self, jobs: Sequence[JobRecord] = ()) -> None:
        """Take jobs that are in the order of their numbers."""
        self._run: list[JobRecord] = []
        self._head = 0
        self._last = _BEFORE_ALL
        self._heap: list[tuple[int, int, str]] = []
        self._kept = 0
        """How many entries the last sweep has left."""
        self.extend(jobs)

    def __len__(self) -> int:
        """How many entries it has, counting jobs that have left."""
        return len(self._run) - self._head + len(self._heap)

    def add(self, job: JobRecord) -> None:
        """Add a job that waits."""
        order = (job.priority, job.seq)
        if order > self._last:
            self._run.append(job)
            self._last = order
        else:
            heappush(self._heap, (*order, job.id))

    def extend(self, jobs: Sequence[JobRecord]) -> None:
        """Add jobs that wait, in the order of their numbers."""
        if len({job.priority for job in jobs}) == 1 and jobs[0].order > self._last:
            self._run.extend(jobs)
            self._last = jobs[-1].order
        else:
            for job in jobs:
                self.add(job)

    def insert(self, jobs: Sequence[JobRecord]) -> None:
        """Add jobs that wait, in the order of their numbers, before those that come after them.

        Jobs that come from a segment are older than those of the object, which wait here already.
        """
        numbers = [job.seq for job in jobs]
        is_run = len({job.priority for job in jobs}) == 1 and numbers == sorted(numbers)
        if is_run and jobs[0].order > self._last:
            self.extend(jobs)
            return
        place = bisect_left(self._run, jobs[0].order, self._head, key=_order)
        follows = self._run[place] if place < len(self._run) else None
        if not is_run or follows is None or follows.order <= jobs[-1].order:
            for job in jobs:
                self.add(job)
        elif place == self._head and self._head >= len(jobs):
            self._head -= len(jobs)
            self._run[self._head : place] = jobs
        else:
            self._run[place:place] = jobs

    def head(self, jobs: dict[str, JobRecord]) -> JobRecord | None:
        """The next job to claim, or None. Entries of jobs that have left are dropped."""
        if not self._heap and self._head < len(self._run):
            entry = self._run[self._head]
            if jobs.get(entry.id) is entry:
                return entry  # Records never change, so it waits as it did when it was added.
        first = self._first_of_run(jobs)
        late = self._first_of_heap(jobs)
        if first is None or late is None:
            return first or late
        return first if first.order < late.order else late

    def pop(self, job: JobRecord) -> None:
        """Take out the job that ``head`` has just returned."""
        if self._heap and self._heap[0][2] == job.id:
            heappop(self._heap)
        else:
            self.skip(1)

    def next_run(
        self, jobs: dict[str, JobRecord], most: int, before: tuple[int, int] | None
    ) -> list[JobRecord]:
        """The next jobs to claim, up to ``most``, that stand before a place in the order.

        It ends at a job that is to be looked at by itself: it has left, has a time, or came late.
        """
        if self._heap:
            late = self._heap[0][:2]
            before = late if before is None else min(before, late)
        first = self._run[self._head : self._head + most]
        if before is not None and first and first[-1].order >= before:
            first = first[: bisect_left(first, before, key=_order)]
        found = []
        for job in first:
            if jobs.get(job.id) is not job or job.run_at is not None or job.expires_at is not None:
                break
            found.append(job)
        return found

    def skip(self, count: int) -> None:
        """Take out jobs that ``next_run`` has just returned, the first ones."""
        self._head += count
        if self._head == len(self._run):
            self._run, self._head, self._last = [], 0, _BEFORE_ALL
        elif self._head > _SWEEP_ABOVE and 2 * self._head > len(self._run):
            del self._run[: self._head]
            self._head = 0

    def remove(self, numbers: set[int]) -> None:
        """Take out the jobs with these numbers, wherever they stand; it looks at every entry."""
        self._run = [job for job in self._run[self._head :] if job.seq not in numbers]
        self._head = 0
        self._last = self._run[-1].order if self._run else _BEFORE_ALL
        self._heap = [entry for entry in self._heap if entry[1] not in numbers]
        heapify(self._heap)

    def sweep(self, jobs: dict[str, JobRecord], waiting_count: int | None) -> None:
        """Drop the entries of jobs that have left, once they outnumber those that wait.

        If it is not known how many wait, those are counted that the last sweep has left.
        """
        length = len(self._run) - self._head + len(self._heap)
        if length <= 2 * (self._kept if waiting_count is None else waiting_count) + _SWEEP_ABOVE:
            return
        self._run = [job for job in self._run[self._head :] if _waiting(jobs, job.id, *job.order)]
        self._head = 0
        in_run = {job.seq for job in self._run}  # A job that was replaced may stand here twice.
        late = {entry for entry in self._heap if entry[1] not in in_run}
        self._heap = [entry for entry in late if _waiting(jobs, entry[2], *entry[:2])]
        heapify(self._heap)
        self._kept = len(self)

    def _first_of_run(self, jobs: dict[str, JobRecord]) -> JobRecord | None:
        while self._head < len(self._run):
            entry = self._run[self._head]
            job = _waiting(jobs, entry.id, entry.priority, entry.seq)
            if job is not None:
                return job
            self.skip(1)
        return None

    def _first_of_heap(self, jobs: dict[str, JobRecord]) -> JobRecord | None:
        while self._heap:
            priority, seq, job_id = self._heap[0]
            job = _waiting(jobs, job_id, priority, seq)
            if job is not None:
                return job
            heappop(self._heap)
        return None


def _waiting(jobs: dict[str, JobRecord], job_id: str, priority: int, seq: int) -> JobRecord | None:
    """The job of an entry, if it still waits in this place; its id may be that of a later job."""
    job = jobs.get(job_id)
    if job is None or job.status != "queued":
        return None
    return job if job.seq == seq and job.priority == priority else None
