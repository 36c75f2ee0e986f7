"""What can be read of a queue. Nothing in here changes anything."""

from __future__ import annotations

from datetime import datetime
from itertools import islice

from bucketq.errors import InvalidRequestError, JobNotFoundError
from bucketq.model import check
from bucketq.model.operations import (
    Get,
    List,
    Page,
    ReadSnapshot,
    ReadStats,
    Snapshot,
    Stats,
)
from bucketq.model.records import STATUSES, JobRecord
from bucketq.model.state import State


def get(state: State, operation: Get, _now: datetime) -> JobRecord:
    """Read one job."""
    return existing(state, operation.job)


def existing(state: State, job_id: str) -> JobRecord:
    """Return the job with this id; raises ``JobNotFoundError`` if there is none."""
    job = state.jobs.get(job_id)
    if job is None:
        raise JobNotFoundError(
            f"no job {job_id!r} in the queue: it was never pushed, or has been archived"
        )
    return job


def page(state: State, operation: List, _now: datetime) -> Page:
    """Read a page of jobs, in the order of their pushes."""
    check.kinds(operation.kinds)
    check.whole_number(operation.limit, "limit", 1, state.settings.max_batch_jobs)
    check.whole_number(operation.after, "after", 0, 2**63)
    for status in operation.statuses:
        if status not in STATUSES:
            raise InvalidRequestError(f"unknown status {status!r}; a job is {', '.join(STATUSES)}")
    matching = (job for job in state.jobs.after(operation.after) if _matches(job, operation))
    jobs = tuple(islice(matching, operation.limit))
    more = next(matching, None) is not None
    return Page(jobs, jobs[-1].seq if more else None)


def stats(state: State, _operation: ReadStats, now: datetime) -> Stats:
    """Count the jobs."""
    counts: dict[str, dict[str, int]] = {}
    for (kind, status), count in sorted(state.counts.items()):
        counts.setdefault(kind, {})[status] = count
    oldest = state.oldest_queued()
    return Stats(
        version=state.version,
        counts=counts,
        oldest_queued_s=None if oldest is None else (now - oldest.pushed_at).total_seconds(),
        bytes=state.size_bytes,
        paused=state.paused,
        paused_kinds=tuple(state.paused_kinds),
        broker=state.broker,
        keys=len(state.keys),
        sessions=len(state.sessions),
    )


def snapshot(state: State, _operation: ReadSnapshot, now: datetime) -> Snapshot:
    """Read everything."""
    return Snapshot(
        version=state.version,
        incarnation=state.incarnation,
        at=now,
        settings=state.settings,
        paused=state.paused,
        paused_kinds=tuple(state.paused_kinds),
        jobs=tuple(state.jobs),
    )


def _matches(job: JobRecord, operation: List) -> bool:
    return (
        (not operation.statuses or job.status in operation.statuses)
        and (not operation.kinds or job.kind in operation.kinds)
        and all((job.tags or {}).get(tag) == value for tag, value in operation.tags.items())
    )
