"""``ParkedWaits``: requests that wait until a job is over.

They cost nothing until a commit changes their job: the committer looks up the jobs that a commit
changes, not the waits that are parked.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import cast

from bucketq.commit.parked_timers import ParkedTimers
from bucketq.commit.pending_requests import PendingRequest
from bucketq.model.records import JobRecord, Progress
from bucketq.model.results import Wait, news_of
from bucketq.model.state import Change, State


class ParkedWaits:
    """The parked waits of one queue."""

    def __init__(self) -> None:
        self._by_job: dict[str, dict[int, PendingRequest]] = {}
        self._timers = ParkedTimers()

    def __len__(self) -> int:
        return len(self._timers)

    def __iter__(self) -> Iterator[PendingRequest]:
        """Job by job."""
        for waits in self._by_job.values():
            yield from waits.values()

    def add(self, pending: PendingRequest) -> None:
        """Park a wait."""
        self._by_job.setdefault(_job_of(pending), {})[self._timers.add(pending)] = pending

    def discard(self, pending: PendingRequest) -> None:
        """Remove a wait, if it is parked here."""
        number = self._timers.remove(pending)
        if number is None:
            return
        job = _job_of(pending)
        del self._by_job[job][number]
        if not self._by_job[job]:
            del self._by_job[job]

    def take_changed(self, changes: Iterable[Change]) -> list[PendingRequest]:
        """Remove and return the waits for jobs that were changed."""
        by_job = self._by_job
        changed = dict.fromkeys(row for table, row in changes if table == "jobs" and row in by_job)
        return self._take(changed)

    def take_over(self, state: State) -> list[PendingRequest]:
        """Remove and return the waits that may have an answer in a state that was just read.

        A job that is not in the object itself may wait in a segment, or have left the queue.
        """
        return self._take([job for job in self._by_job if not self._is_quiet(state, job)])

    def take_jobs(self, jobs: Iterable[str]) -> list[PendingRequest]:
        """Remove and return the waits for some jobs."""
        return self._take([job for job in jobs if job in self._by_job])

    def _is_quiet(self, state: State, job_id: str) -> bool:
        """Whether there is nothing to tell the waits for a job."""
        job = state.jobs.by_id.get(job_id)
        if job is None:
            return False
        return not any(has_answer(job, pending) for pending in self._by_job[job_id].values())

    def take_all(self) -> list[PendingRequest]:
        """Remove and return all waits."""
        return self._take(list(self._by_job))

    def take_expired(self, now_s: float) -> list[PendingRequest]:
        """Remove and return the waits whose time is over."""
        expired = []
        while (pending := self._timers.expired(now_s)) is not None:
            self.discard(pending)
            expired.append(pending)
        return expired

    def next_expiry(self) -> float | None:
        """Return when the time of the next wait is over, or None."""
        return self._timers.next_expiry()

    def _take(self, jobs: Iterable[str]) -> list[PendingRequest]:
        taken = [pending for job in jobs for pending in self._by_job.pop(job).values()]
        for pending in taken:
            self._timers.remove(pending)
        return taken


def has_answer(job: JobRecord, pending: PendingRequest, progress: Progress | None = None) -> bool:
    """Whether a wait has an answer: its job is over, or has come further than its caller knows."""
    if job.status not in ("queued", "running"):
        return True
    return news_of(_wait_of(pending), progress or job.progress) is not None


def _wait_of(pending: PendingRequest) -> Wait:
    return cast("Wait", pending.request.operation)


def _job_of(pending: PendingRequest) -> str:
    return _wait_of(pending).job
