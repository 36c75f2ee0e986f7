"""How finished jobs leave: read from the outbox, and let go once they are in the archive."""

from __future__ import annotations

from datetime import datetime, timedelta

from bucketq.model import check
from bucketq.model.operations import Archived, Outbox, ReadOutbox
from bucketq.model.state import State


def outbox(state: State, operation: ReadOutbox, now: datetime) -> Outbox:
    """Read the finished jobs that have waited long enough, in the order of their pushes."""
    check.delay(operation.min_age_s, "min_age_s")
    check.whole_number(operation.limit, "limit", 1, 1_000_000)
    before = now - timedelta(seconds=operation.min_age_s)
    jobs = sorted((state.jobs.by_id[job_id] for job_id in state.done), key=lambda job: job.seq)
    ready = [
        (job, state.extra.get(("jobs", job.id)))
        for job in jobs
        if not operation.min_age_s or job.finished_at is None or job.finished_at <= before
    ]
    return Outbox(state.version, tuple(ready[: operation.limit]))


def let_go(state: State, operation: Archived, now: datetime) -> int:
    """Remove jobs that are done.

    One that is gone already or not done is left alone, and so is a later job under the same id.
    """
    del now
    jobs = state.jobs.by_id
    ready = [
        job_id
        for job_id, seq in dict.fromkeys(operation.jobs)
        if job_id in state.done and jobs[job_id].seq == seq
    ]
    for job_id in ready:
        state.remove_job(job_id)
    return len(ready)
