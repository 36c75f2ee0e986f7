"""Whether jobs expire as they should, at every commit.

A job is never started for the first time when its time is over, by the clock of the process that
commits. One that ends as expired was never claimed, and its time was over by that clock.
"""

from __future__ import annotations

from datetime import datetime

from bucketq.model.records import JobRecord
from bucketq.model.state import State


def follow_expiry(before: State | None, state: State) -> tuple[str, str] | None:
    """Check one version; return the broken promise and how it was broken, or None."""
    old_jobs = before.jobs.by_id if before is not None else {}
    for job in state.jobs:
        if job.expires_at is None or old_jobs.get(job.id) == job:
            continue
        started_at = _first_start(old_jobs.get(job.id), job)
        if started_at is not None and started_at >= job.expires_at:
            return "an expired job is never started", f"{job.id} expired at {job.expires_at}"
        if job.outcome == "expired":
            if job.attempt:
                return "only a job that was never started expires", f"{job.id} was claimed"
            if job.finished_at is None or job.finished_at < job.expires_at:
                return "a job expires in its time", f"{job.id} ended at {job.finished_at}"
    return None


def _first_start(old: JobRecord | None, job: JobRecord) -> datetime | None:
    """When a version has started a job for the first time; None: it has not, or it has ended."""
    is_first = job.status == "running" and job.attempt == 1 and (old is None or old.attempt == 0)
    return job.claimed_at if is_first else None
