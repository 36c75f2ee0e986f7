"""What becomes of a batch whose driver fails again and again: the job that does it goes, alone.

A batch that is claimed again by another driver is counted as a failure of the one before. A batch
with too many is *taken apart*: its jobs are released, it stays open without any until the engine
has repeated it, and then each of them is claimed in a batch of its own. Such a job fails once each
time that its batch is repeated, and in the end it is dead, like the job of any worker.

``settle`` is for engines that know themselves which jobs of a batch failed.
"""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple

from msgspec.structs import replace

from bucketq.errors import InvalidRequestError
from bucketq.model import check
from bucketq.model.effects import leases
from bucketq.model.effects.attempts import start_all
from bucketq.model.effects.limits.limit_room import LimitRoom
from bucketq.model.effects.numbered.batch_members import give_back, is_free, sort_jobs
from bucketq.model.numbered_batches import BatchState, ClaimBatch, ConsumerRecord, SettleBatch
from bucketq.model.operations import CompleteMany, Completion, Fail, Request
from bucketq.model.records import JobRecord
from bucketq.model.state import State


class Alone(NamedTuple):
    """A job that was claimed alone, if there was one, and those that are still to be."""

    job: JobRecord | None
    left: tuple[tuple[str, int], ...]


def count_replay(record: ConsumerRecord, operation: ClaimBatch) -> ConsumerRecord:
    """Count a failure, if the open batch is claimed by another driver than before."""
    batch, epoch, failures = record.replays or (0, 0, 0)
    if batch != record.batch:  # It was claimed by a writer that does not count.
        return replace(record, replays=(record.batch, operation.epoch, 0))
    if epoch == operation.epoch:
        return record
    return replace(record, replays=(batch, operation.epoch, failures + 1))


def is_failed(record: ConsumerRecord, operation: ClaimBatch) -> bool:
    """Whether the open batch has failed too often to be handed out as it is."""
    if not operation.max_failures or not record.jobs:
        return False
    return record.alone == record.batch or record.failures >= operation.max_failures


def take_apart(state: State, record: ConsumerRecord, now: datetime) -> BatchState:
    """Release the jobs of the open batch, which stays open without any, to claim each alone."""
    state.attach_cold()
    state.promote(now)
    held, lost = sort_jobs(state, record, record.jobs)
    known = [state.borrow_job(job_id) for job_id in lost]
    free = [job for job in known if job and record.may_hold(job) and is_free(job, now)]
    places = {job_id: place for place, job_id in enumerate(record.jobs)}
    apart = sorted([*held, *free], key=lambda job: places[job.id])
    give_back(state, held, now)
    added = tuple((job.id, job.seq) for job in apart)
    state.put_row(record.emptied_at(now, apart=(*record.apart, *added)))
    return BatchState(record.batch, 0)


def take_alone(state: State, record: ConsumerRecord, operation: ClaimBatch, now: datetime) -> Alone:
    """Start the next job of a batch that was taken apart, if there is one that can be.

    One that another worker has, or that waits for a time, is an ordinary job from now on. One that
    is paused, of another kind, or held up by a limit, is kept.
    """
    state.attach_cold()
    state.promote(now)
    if state.paused:
        return Alone(None, record.apart)
    room, kept = LimitRoom(state, now), list[tuple[str, int]]()
    for place, (job_id, seq) in enumerate(record.apart):
        job = state.borrow_job(job_id)
        if job is None or job.seq != seq or not is_free(job, now):
            continue
        is_wanted = not operation.kinds or job.kind in operation.kinds
        if not is_wanted or job.kind in state.paused_kinds or not room.has(job):
            kept.append((job_id, seq))
            continue
        room.take(job)
        room.spend()
        state.waiting.take_out([job])
        (running,) = start_all([job], operation, operation.secret, now)
        state.start_jobs([running])
        return Alone(running, (*kept, *record.apart[place + 1 :]))
    return Alone(None, tuple(kept))


def fail_alone(state: State, record: ConsumerRecord, now: datetime) -> ConsumerRecord:
    """Count a failure of the job that was claimed alone; if it is over, its batch has no jobs."""
    state.attach_cold()
    state.promote(now)
    held, lost = sort_jobs(state, record, record.jobs)
    if lost:
        job = state.borrow_job(lost[0])
        is_back = job is not None and record.may_hold(job) and is_free(job, now)
        return record if is_back else record.emptied_at(now)
    [job] = held
    error = (
        f"batch {record.batch} of consumer {record.id!r} had this job alone, and its driver did "
        "not finish it"
    )
    failure = Fail(job=job.id, lease=job.lease or "", error=error, delay_s=0.0)
    return record if leases.fail(state, failure, now) == "queued" else record.emptied_at(now)


def settle(state: State, operation: SettleBatch, now: datetime) -> BatchState:
    """Complete and fail jobs of the open batch one by one; the others stay in it."""
    check.name(operation.consumer, "consumer")
    check.whole_number(operation.batch, "batch", 1)
    record = state.consumers.get(operation.consumer)
    if record is None or not record.is_open or record.batch != operation.batch:
        raise InvalidRequestError(
            f"batch {operation.batch} of consumer {operation.consumer!r} is not open: it was "
            "acknowledged or released, or never claimed"
        )
    named = [each.job for each in operation.jobs]
    if len(set(named)) < len(named):
        raise InvalidRequestError("a job stands twice among those that are settled")
    for each in operation.jobs:
        if each.error is not None:
            check.text(each.error, "error")
    held = {job.id: job.lease for job in sort_jobs(state, record, record.jobs)[0]}
    settled = [each for each in operation.jobs if held.get(each.job) == each.lease]
    completed = [
        Completion(
            job=each.job,
            lease=each.lease,
            result=each.result,
            result_encoding=each.result_encoding,
        )
        for each in settled
        if each.error is None
    ]
    completing = CompleteMany(jobs=tuple(completed))
    leases.complete_many(state, completing, now, Request(completing))
    for each in settled:
        if each.error is not None:
            failure = Fail(job=each.job, lease=each.lease, error=each.error, retry=each.retry)
            leases.fail(state, failure, now)
    names = {each.job for each in settled}
    left = tuple(job_id for job_id in record.jobs if job_id not in names)
    if settled:
        state.put_row(replace(record, jobs=left, at=now) if left else record.emptied_at(now))
    lost = tuple(each for each in named if each not in names)
    return BatchState(record.batch, len(settled), lost)


def remember_settled(_operation: SettleBatch, answer: BatchState) -> tuple[str, ...]:
    """Keep which jobs were not settled."""
    return answer.lost


def recall_settled(_state: State, operation: SettleBatch, stored: tuple[str, ...]) -> BatchState:
    """Answer a retried settling."""
    return BatchState(operation.batch, len(operation.jobs) - len(stored), tuple(stored))
