"""The next batch of a consumer, which is claimed while its engine works on the one before.

An engine that has much to do would wait for each claim, so it may have the next one made ahead. Its
jobs run under leases of their own, and can be read; the claim with its number hands them out, and
only then it is a batch. Until then it is a reservation, of which no engine has seen a job: one that
was lost meanwhile is not part of the batch, one whose lease expires is released at no cost
(``leases.expire``), and to release all of them does not use up the number.
"""

from __future__ import annotations

from datetime import datetime
from math import inf
from typing import NamedTuple

from msgspec.structs import replace

from bucketq.model.effects import leases
from bucketq.model.effects.numbered.batch_members import (
    give_back,
    note_members,
    renew,
    sort_jobs,
)
from bucketq.model.numbered_batches import (
    BatchState,
    ClaimBatch,
    ConsumerRecord,
    PrepareBatch,
    PreparedBatch,
)
from bucketq.model.records import JobRecord
from bucketq.model.side_objects import payload_size
from bucketq.model.state import State


def prepare(
    state: State, record: ConsumerRecord, operation: PrepareBatch, now: datetime
) -> BatchState:
    """Reserve jobs for the next batch, unless that was done, or jobs are to come alone."""
    ahead = record.ahead
    if ahead is not None:
        held, lost = sort_jobs(state, ahead, ahead.jobs)
        return BatchState(ahead.batch, len(held), lost)
    taken = () if record.apart else leases.hand_out(state, operation, now)
    if taken:
        prepared = PreparedBatch(
            batch=operation.batch,
            epoch=operation.epoch,
            secret=operation.secret,
            jobs=tuple(job.id for job in taken),
            seq_limit=state.next_seq,
        )
        state.put_row(replace(record, prepared=prepared, at=now))
        note_members(state, operation.secret, taken)
    return BatchState(operation.batch, len(taken))


class Reserved(NamedTuple):
    """What is still held of a prepared batch."""

    taken: tuple[JobRecord, ...] = ()
    """The jobs of the batch from now on."""
    unwanted: tuple[JobRecord, ...] = ()
    """Jobs to be released: what the claim asks for, or the queue, has changed meanwhile."""


def look(state: State, record: ConsumerRecord, operation: ClaimBatch) -> Reserved:
    """Return which jobs of the prepared batch a claim gets; it changes nothing.

    It gets none that another claim could not: of kinds that it does not ask for, that are paused or
    to be cancelled, or beyond its limits.
    """
    ahead = record.ahead
    if ahead is None:
        return Reserved()
    held, _ = sort_jobs(state, ahead, ahead.jobs)
    if _are_all_wanted(state, held, operation):
        return Reserved(tuple(held))
    taken, unwanted = list[JobRecord](), list[JobRecord]()
    bytes_left = operation.max_bytes or inf
    for job in held:
        if (
            state.paused
            or job.kind in state.paused_kinds
            or (operation.kinds and job.kind not in operation.kinds)
            or job.cancel_requested
            or len(taken) == operation.limit
            or (bytes_left < (size_bytes := payload_size(job)) and taken)
        ):
            unwanted.append(job)
        else:
            taken.append(job)
            bytes_left -= size_bytes
    return Reserved(tuple(taken), tuple(unwanted))


def _are_all_wanted(state: State, held: list[JobRecord], operation: ClaimBatch) -> bool:
    """Whether a claim surely gets all of them, as nearly every one does."""
    if state.paused or len(held) > operation.limit:
        return False
    for kind in {job.kind for job in held}:
        if kind in state.paused_kinds or (operation.kinds and kind not in operation.kinds):
            return False
    if any(job.cancel_requested or job.payload_encoding for job in held):
        return False  # An encoded payload is not as long as it is in the object.
    size_bytes = state.running.bytes_of(job.id for job in held)
    return not operation.max_bytes or size_bytes <= operation.max_bytes


def hand_over(
    state: State,
    record: ConsumerRecord,
    reserved: Reserved,
    operation: ClaimBatch,
    now: datetime,
) -> None:
    """Release what a claim does not get; what it gets is renewed if its driver is another."""
    give_back(state, [*reserved.unwanted], now)
    if record.ahead is not None and record.ahead.epoch != operation.epoch:
        renew(state, [*reserved.taken], operation.lease_s, now)


def renew_ahead(state: State, record: ConsumerRecord, operation: ClaimBatch, now: datetime) -> None:
    """Renew the leases of the prepared batch with those of the open one."""
    if record.ahead is not None:
        held, _ = sort_jobs(state, record.ahead, record.ahead.jobs)
        renew(state, held, operation.lease_s, now)


def release_ahead(state: State, record: ConsumerRecord, now: datetime) -> BatchState:
    """Release the jobs of the prepared batch; its number is that of the next one again."""
    ahead = record.ahead
    if ahead is None:
        return BatchState(record.batch + 1, 0)
    held, lost = sort_jobs(state, ahead, ahead.jobs)
    give_back(state, held, now)
    state.running.of_batch.pop(ahead.secret, None)
    state.put_row(replace(record, prepared=None, at=now))
    return BatchState(ahead.batch, len(held), lost)
