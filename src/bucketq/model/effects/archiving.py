"""How finished jobs are read from the outbox, and removed once they are in the archive."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from itertools import islice

from bucketq.model import check
from bucketq.model.indexes.finished_jobs import FinishedJobs, finished_at, line_bytes
from bucketq.model.operations import Archived, Outbox, ReadOutbox
from bucketq.model.records import JobRecord
from bucketq.model.state import State


def read_outbox(state: State, operation: ReadOutbox, now: datetime) -> Outbox:
    """Read the finished jobs that are to be archived, in the order in which they finished."""
    check.delay(operation.min_age_s, "min_age_s")
    check.whole_number(operation.limit, "limit", 0)
    if operation.keep_bytes is not None:
        check.whole_number(operation.keep_bytes, "keep_bytes", 0)
    chosen = islice(_leaving(state.done, operation, now), operation.limit or None)
    return Outbox(state.version, tuple((job, state.extra.get(("jobs", job.id))) for job in chosen))


def is_due(done: FinishedJobs, age_s: float, now: datetime) -> bool:
    """Whether a finished job has waited for this long, or finished that far in the future."""
    oldest, newest, age = done.oldest(), done.newest(), timedelta(seconds=age_s)
    if oldest is None or newest is None:
        return False
    return now - finished_at(oldest) >= age or newest - now >= age


def _leaving(done: FinishedJobs, operation: ReadOutbox, now: datetime) -> Iterator[JobRecord]:
    age = timedelta(seconds=operation.min_age_s)
    newest = done.newest()
    is_any_ahead = newest is not None and newest - now >= age
    left_bytes, keep_bytes = done.size_bytes, operation.keep_bytes
    for job in done:
        is_over = keep_bytes is not None and left_bytes > keep_bytes
        if is_over or abs(now - finished_at(job)) >= age:
            left_bytes -= line_bytes(job) if keep_bytes is not None else 0
            yield job
        elif not is_any_ahead:
            return  # They come in order: the others are younger still.


def remove_archived(state: State, operation: Archived, _now: datetime) -> int:
    """Remove jobs that are done.

    A job that is gone already or not done is skipped, and so is a later job with the same id.
    """
    jobs = state.jobs.by_id
    ready = [
        job_id
        for job_id, seq in dict.fromkeys(operation.jobs)
        if job_id in state.done and jobs[job_id].seq == seq
    ]
    for job_id in ready:
        state.remove_job(job_id)
    return len(ready)
