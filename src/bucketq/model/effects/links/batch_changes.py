"""What is done to batches: opening, closing, cancelling, and the push of the callback at the end.

A batch ends once: when it is closed and all its jobs have ended. That commit pushes the callback,
so it is there if and only if the batch is done, and a batch that has ended counts no more.
"""

from __future__ import annotations

from datetime import datetime

from msgspec.structs import replace

from bucketq.base32 import crockford
from bucketq.errors import BatchNotFoundError, InvalidRequestError, KeyConflictError, RejectedError
from bucketq.model import check, job_ids
from bucketq.model.effects.side_refs import refuse_side
from bucketq.model.job_batches import (
    FEATURE,
    BatchRecord,
    Callback,
    CancelBatch,
    CloseBatch,
    OpenBatch,
    ReadBatches,
)
from bucketq.model.partitions import id_made_in
from bucketq.model.records import JobRecord
from bucketq.model.requests.stateless_checks import check_callback
from bucketq.model.settings import KIB
from bucketq.model.state import State

_FORMAT = 2
"""The first format with a list of features."""
_PAYLOAD_BYTES = 16 * KIB
"""The largest payload of a callback: every commit writes it until the batch is done."""
_TEMPLATE = Callback.__struct_fields__
"""What a callback and its job have in common."""
_ROW_BYTES = 200
"""About what the line of a callback's job takes beside its payload."""


def open_batch(state: State, operation: OpenBatch, now: datetime) -> None:
    """Open a batch. If all its places are taken, the one that ended first is forgotten."""
    _check(state, operation)
    given = operation.on_done
    on_done = None if given is None else Callback(**{n: getattr(given, n) for n in _TEMPLATE})
    if on_done is not None:
        on_done = replace(on_done, tags=on_done.tags or None)
    known = state.batches.get(operation.batch)
    if known is not None:
        if known.status == "open" and known.on_done == on_done:
            return
        raise KeyConflictError(f"batch id {operation.batch!r} belongs to another batch")
    limit = state.settings.max_batches
    if len(state.batches) >= limit:
        ended = state.followed.batch_ends.first()
        if ended is None:
            raise RejectedError(
                f"too many batches: the queue has {len(state.batches):,} that are not done, "
                f"{limit:,} are allowed (max_batches); `bucketq batch ls` lists them, and "
                "`bucketq batch close` or `cancel` ends those whose producers are gone"
            )
        state.forget("batches", ended.id)
    batch = BatchRecord(
        id=operation.batch,
        seq=state.batches.next_seq,
        opened_at=now,
        on_done=on_done,
        first_seq=state.next_seq,
    )
    put_batch(state, batch)


def close_batch(state: State, operation: CloseBatch, now: datetime) -> BatchRecord:
    """Let no more jobs be added. If all have ended, the batch is done."""
    batch = existing_batch(state, operation.batch)
    if batch.status == "cancelled":
        raise RejectedError(f"batch {batch.id} was cancelled, so it cannot be closed")
    if batch.closed_at is None:
        put_batch(state, replace(batch, closed_at=now))
        end_if_done(state, batch.id, now)
    return state.batches.by_id[batch.id]


def cancel_batch(state: State, operation: CancelBatch, now: datetime) -> BatchRecord:
    """End a batch without its callback."""
    batch = existing_batch(state, operation.batch)
    if batch.status == "done":
        raise RejectedError(f"batch {batch.id} is done, so it cannot be cancelled")
    if batch.ended_at is None:
        closed_at = batch.closed_at or now
        ended = replace(batch, closed_at=closed_at, ended_at=now, was_cancelled=True, on_done=None)
        put_batch(state, ended)
    return state.batches.by_id[batch.id]


def read_batches(state: State, operation: ReadBatches, _now: datetime) -> tuple[BatchRecord, ...]:
    """Return the batches, or one of them."""
    if operation.batch:
        return (existing_batch(state, operation.batch),)
    return tuple(state.batches)


def recall_batch(state: State, operation: CloseBatch | CancelBatch, _stored: None) -> BatchRecord:
    """Answer a retried request with the batch as it is."""
    return existing_batch(state, operation.batch)


def put_batch(state: State, batch: BatchRecord) -> None:
    """Add a batch, or replace the record of one."""
    state.requires[FEATURE] = None
    state.followed.put_batch(batch)
    state.changes.append(("batches", batch.id))


def existing_batch(state: State, name: str) -> BatchRecord:
    """Return the batch with this id. Raises ``BatchNotFoundError``."""
    check.name(name, "batch")
    batch = state.batches.get(name)
    if batch is None:
        raise BatchNotFoundError(
            f"there is no batch {name!r}: it was never opened, or has ended and been forgotten "
            "(batch_retention_s)"
        )
    return batch


def end_if_done(state: State, name: str, now: datetime) -> None:
    """End a batch if it is closed and all its jobs have ended: push its callback."""
    batch = state.batches.by_id[name]
    if batch.closed_at is None or batch.ended_at is not None or batch.counts.open:
        return
    callback = "" if batch.on_done is None else _push_callback(state, batch, batch.on_done, now)
    put_batch(state, replace(batch, ended_at=now, on_done=None, callback=callback))


def _push_callback(state: State, batch: BatchRecord, on_done: Callback, now: datetime) -> str:
    """Push the callback; it passes the limits of the queue, so that no completion is refused."""
    number = 0
    while (job_id := id_made_in(callback_id(batch, number), state.partition)) in state.jobs:
        number += 1  # A user has pushed a job under the id that this would have.
    job = JobRecord(
        id=job_id,
        status="queued",
        seq=state.next_seq,
        pushed_at=now,
        done_batch=batch.counts,
        **{name: getattr(on_done, name) for name in _TEMPLATE},
    )
    state.add_jobs([job])
    state.next_seq += 1
    state.added_bytes += _ROW_BYTES + len(job.payload)
    return job_id


def callback_id(batch: BatchRecord, number: int) -> str:
    """Make an id that follows from the batch, and that no push makes."""
    opened_ms = max(0, int(batch.opened_at.timestamp() * 1000))
    time = crockford(opened_ms, job_ids.TIME_LENGTH)
    return job_ids.job_id(time, f"batch/{batch.id}", number, 0)


def _check(state: State, operation: OpenBatch) -> None:
    check.name(operation.batch, "batch")
    if state.settings.max_format < _FORMAT:
        raise RejectedError(
            f"batches need max_format {_FORMAT}: run `bucketq upgrade` once every process of the "
            "queue has been upgraded"
        )
    if operation.on_done is not None:
        check_callback(operation.on_done)
        refuse_side(operation.on_done, "the job that a batch ends with")
        size_bytes = check.new_job(replace(operation.on_done, id="callback"), state.settings)
        if size_bytes > _PAYLOAD_BYTES:
            raise InvalidRequestError(
                f"the payload of a callback has {size_bytes:,} bytes, at most {_PAYLOAD_BYTES:,} "
                "are allowed; put the data in an object of its own, and its address here"
            )
