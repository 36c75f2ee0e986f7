"""Which jobs belong to a batch of a consumer, and which do not any more."""

from __future__ import annotations

from datetime import datetime
from operator import is_
from typing import cast

from msgspec.structs import replace

from bucketq.model.effects import leases
from bucketq.model.effects.attempts import lease_of
from bucketq.model.numbered_batches import ConsumerRecord, PreparedBatch
from bucketq.model.records import HEARD, JobRecord
from bucketq.model.state import State

_BATCHES_KEPT = 8
"""Of how many batches it is remembered which jobs belong to them: those of a few streams."""


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


def sort_jobs(
    state: State, batch: ConsumerRecord | PreparedBatch, ids: tuple[str, ...]
) -> tuple[list[JobRecord], tuple[str, ...]]:
    """The jobs that belong to the batch, and the ids of those that do not any more."""
    held: list[JobRecord] = []
    lost: list[str] = []
    known, secret = state.jobs.by_id, batch.secret
    members = _found_before(state, secret)
    found = [*map(members.get, ids)]
    if all(found) and all(map(is_, found, map(known.get, ids))):
        return cast("list[JobRecord]", found), ()  # As nearly always.
    for job_id in ids:
        job = known.get(job_id)
        if job is None:
            lost.append(job_id)
        elif members.get(job_id) is job:
            held.append(job)
        elif (
            job.status == "running"
            and batch.may_hold(job)
            and job.lease == lease_of(secret, job_id, job.attempt)
        ):
            members[job_id] = job
            held.append(job)
        else:
            lost.append(job_id)
    return held, tuple(lost)


def note_members(state: State, secret: str, taken: tuple[JobRecord, ...]) -> None:
    """Remember that jobs belong to a batch that was just claimed."""
    _found_before(state, secret).update([(job.id, job) for job in taken])


def _found_before(state: State, secret: str) -> dict[str, JobRecord]:
    """The records that were found to belong to the batch with this secret, to be added to."""
    found = state.running.of_batch
    if secret not in found:
        if len(found) == _BATCHES_KEPT:
            del found[next(iter(found))]
        found[secret] = {}
    return found[secret]


def renew(state: State, held: list[JobRecord], lease_s: float | None, now: datetime) -> None:
    """Renew leases, as a heartbeat of the worker does that holds these jobs: it may be another."""
    for job in held:
        heard = replace(job, heartbeat_at=now, silent_s=HEARD, lease_s=lease_s)
        if heard != job:
            state.replace_job(job, heard)
