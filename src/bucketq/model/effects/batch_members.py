"""Which jobs belong to the open batch of a consumer, and which do not any more."""

from __future__ import annotations

from datetime import datetime

from bucketq.model.effects import leases
from bucketq.model.numbered_batches import ConsumerRecord
from bucketq.model.records import JobRecord
from bucketq.model.state import State


def give_back(state: State, held: list[JobRecord], now: datetime) -> None:
    """Release jobs at no cost."""
    for job in held:
        leases.give_back(state, job, now)


def is_free(job: JobRecord, now: datetime) -> bool:
    """Whether no worker holds a job of a batch, so that it can be taken back.

    It was claimed at least once. One that never was came later under an id used before, in a batch
    of a writer that does not keep ``seq_limit``.
    """
    is_due = job.run_at is None or job.run_at <= now
    return job.status == "queued" and is_due and job.attempt > 0


def _claimed(state: State, record: ConsumerRecord, job_id: str) -> JobRecord | None:
    """The job that a batch has claimed under an id, or None if it has left the queue."""
    job = state.jobs.get(job_id)
    return job if job is not None and record.may_hold(job) else None


def sort_jobs(
    state: State, record: ConsumerRecord, ids: tuple[str, ...]
) -> tuple[list[JobRecord], tuple[str, ...]]:
    """The jobs that belong to the batch, and the ids of those that do not any more."""
    held: list[JobRecord] = []
    lost: list[str] = []
    for job_id in ids:
        job = _claimed(state, record, job_id)
        if (
            job is not None
            and job.status == "running"
            and job.lease == leases.lease_of(record.secret, job_id, job.attempt)
        ):
            held.append(job)
        else:
            lost.append(job_id)
    return held, tuple(lost)
