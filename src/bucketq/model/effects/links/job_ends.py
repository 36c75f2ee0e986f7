"""What follows from the ends of jobs: batches count them, and jobs that waited for them go on.

It is done by the commit that ends a job, after the operation that does. One end may lead to others:
a job that waited for one that failed is dead, and so are those that waited for it. Nothing here
reads rows of segments: batches, and jobs that wait for others, are in the object.
"""

from __future__ import annotations

from collections import Counter
from datetime import datetime
from operator import attrgetter

from msgspec.structs import replace

from bucketq.model.effects.links.batch_changes import end_if_done, put_batch
from bucketq.model.records import Failure, JobRecord
from bucketq.model.state import State


def follow(state: State, now: datetime) -> None:
    """Do what follows from the ends of jobs that were noted, until nothing more does."""
    followed, counts = state.followed, dict[str, Counter[str]]()
    while followed.ends:
        ends, followed.ends = followed.ends, []
        for job, change in ends:
            batch = state.batches.get(job.batch_id) if job.batch_id is not None else None
            if batch is not None and job.seq >= batch.first_seq:
                outcome = "dead" if change < 0 else job.outcome or "dead"
                counts.setdefault(batch.id, Counter())[outcome] += change
            if change > 0:
                for waiting in list(followed.waiting.get(job.id, ())):
                    _go_on(state, state.jobs.by_id[waiting], job, now)
    for batch in sorted(map(state.batches.by_id.__getitem__, counts), key=attrgetter("seq")):
        if batch.ended_at is None:
            changes = counts[batch.id].items()
            more = {name: getattr(batch, name) + count for name, count in changes}
            counted = replace(batch, **more)
            if counted.fits:  # They were changed by hand otherwise.
                put_batch(state, counted)
                end_if_done(state, batch.id, now)


def why_failed(job: JobRecord) -> str | None:
    """Say why jobs that wait for a job will not run; None: it is not over, or was completed."""
    if job.status == "dead" or job.outcome == "dead":
        return f"job {job.id}, which it was to follow, is dead"
    if job.status == "done" and job.outcome == "expired":
        return f"job {job.id}, which it was to follow, has expired"
    if job.status == "done" and job.outcome != "completed":
        return f"job {job.id}, which it was to follow, was cancelled"
    return None


def give_up(state: State, job: JobRecord, error: str, now: datetime) -> None:
    """End a job that will never run, because one that it waited for was not completed."""
    failure = Failure(now, job.attempt, "failed", error)
    kept = state.settings.max_errors
    errors = (*job.errors, failure)[-kept:] if kept else ()
    state.put_job(replace(job, status="dead", finished_at=now, errors=errors))


def _go_on(state: State, job: JobRecord, ended: JobRecord, now: datetime) -> None:
    """Let a job wait for one job less, or end it."""
    error = why_failed(ended)
    if error is not None and job.on_failed is None:
        give_up(state, job, error, now)
    else:
        left = tuple([name for name in job.after if name != ended.id])
        state.put_job(replace(job, after=left))
