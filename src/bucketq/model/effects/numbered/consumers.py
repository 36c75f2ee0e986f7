"""How a consumer claims, reads and closes its batches, one after the other.

A batch number stands for one set of jobs for ever: the set is chosen once, and its ids stay in the
consumer's row until the batch is closed. Only which of them still belong to it is
checked each time: a job does exactly while it is running under the lease that follows from the
batch's secret, the job and its attempt. The others are *lost* to the batch; it leaves them alone.
The set of the next batch may have been reserved before (``prepared_batches``).

Only the driver that opened the consumer last may claim and close; earlier ones are fenced.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from msgspec.structs import replace

from bucketq.errors import ConsumerFencedError, InvalidRequestError, RejectedError
from bucketq.model import check
from bucketq.model.effects import leases
from bucketq.model.effects.attempts import start_all
from bucketq.model.effects.limits.limit_room import LimitRoom
from bucketq.model.effects.numbered import prepared_batches
from bucketq.model.effects.numbered.batch_members import give_back, is_free, renew, sort_jobs
from bucketq.model.effects.numbered.failed_batches import (
    count_replay,
    fail_alone,
    is_failed,
    take_alone,
    take_apart,
)
from bucketq.model.effects.numbered.prepared_batches import Reserved
from bucketq.model.numbered_batches import (
    AckBatch,
    BatchPage,
    BatchState,
    ClaimBatch,
    ConsumerInfo,
    ConsumerRecord,
    ConsumerState,
    OpenConsumer,
    PrepareBatch,
    PreparedBatch,
    ReadBatch,
    ReadConsumers,
    ReleaseBatch,
    RemoveConsumer,
)
from bucketq.model.operations import Completion
from bucketq.model.records import JobRecord
from bucketq.model.state import State

_SIGNS_OF_LIFE = 10
"""How often a consumer that finds no jobs records its use within the retention: often enough to
survive a few missed ones, and rarely enough to cost no commits."""


def open_one(state: State, operation: OpenConsumer, now: datetime) -> ConsumerState:
    """Take a consumer over, or create it; its previous driver is fenced."""
    check.name(operation.consumer, "consumer")
    known = state.consumers.get(operation.consumer)
    if known is not None:
        record = replace(known, epoch=known.epoch + 1, at=now)
    else:
        limit = state.settings.max_consumers
        if len(state.consumers) >= limit:
            raise RejectedError(
                f"too many consumers: the queue has {len(state.consumers):,}, {limit:,} are "
                "allowed (max_consumers); remove those that are not used"
            )
        record = ConsumerRecord(
            id=operation.consumer, seq=state.consumers.next_seq, epoch=1, at=now
        )
    state.put_row(record)
    return ConsumerState(
        record.id,
        record.epoch,
        record.batch,
        len(record.jobs),
        record.is_empty,
        record.info().prepared,
    )


def remember_opening(_operation: OpenConsumer, answer: ConsumerState) -> tuple[int, int, int, bool]:
    """Keep what was opened; it may have been opened again since."""
    return (answer.epoch, answer.batch, answer.pending, answer.is_empty)


def recall_opening(
    state: State, operation: OpenConsumer, stored: tuple[int, int, int, bool]
) -> ConsumerState:
    """Answer a retried opening: with the same epoch, whether or not it is still the newest."""
    record = state.consumers.get(operation.consumer)
    prepared = 0 if record is None else record.info().prepared
    return ConsumerState(operation.consumer, *stored, prepared=prepared)


def claim(state: State, operation: ClaimBatch, now: datetime) -> BatchState:
    """Hand out the next batch, or the open one again; close the one before, if it is done.

    Jobs are taken before others are completed: a claim that needs rows of segments must not have
    changed anything. So it does not get jobs that waited for those of the batch before.
    """
    leases.check_claim(state, operation)
    record = _opened(state, operation)
    check.whole_number(operation.max_failures, "max_failures", 0)
    check.whole_number(operation.max_bytes, "max_bytes", 0)
    _check_acked(operation)
    if record.is_open and operation.batch == record.batch:
        return _replay(state, record, operation, now)
    closes = record.is_open and operation.acked == record.batch
    if (record.is_open and not closes) or operation.batch != record.batch + 1:
        raise _wrong_number(record, operation.batch)
    alone, apart = take_alone(state, record, operation, now) if record.apart else (None, ())
    ahead = prepared_batches.look(state, record, operation)
    if alone is not None:
        ahead = Reserved((), (*ahead.taken, *ahead.unwanted))
    taken = ahead.taken or ((alone,) if alone else leases.hand_out(state, operation, now))
    prepared, had_ahead = record.ahead if ahead.taken else None, record.ahead is not None
    prepared_batches.hand_over(state, record, ahead, operation, now)
    record = replace(record, prepared=None)
    done, lost = sort_jobs(state, record, record.jobs)
    if closes:
        _complete(state, done, now)
        state.running.of_batch.pop(record.secret, None)
        record = record.closed(now)
    if taken:
        claimed = replace(
            record,
            batch=operation.batch,
            secret=prepared.secret if prepared else operation.secret,
            jobs=tuple(job.id for job in taken),
            seq_limit=(operation.batch, prepared.seq_limit if prepared else state.next_seq),
            replays=(operation.batch, operation.epoch, 0),
            alone=0 if alone is None else operation.batch,
            apart=apart,
            at=now,
        )
        state.put_row(claimed)
    elif closes or had_ahead or apart != record.apart:
        state.put_row(replace(record, apart=apart, at=now))
    elif (now - record.at).total_seconds() > state.settings.consumer_retention_s / _SIGNS_OF_LIFE:
        state.put_row(replace(record, at=now))
    return BatchState(operation.batch, len(taken), (), len(done), lost, len(ahead.taken))


def prepare(state: State, operation: PrepareBatch, now: datetime) -> BatchState:
    """Reserve jobs for the batch after the open one."""
    leases.check_claim(state, operation)
    record = _opened(state, operation)
    check.whole_number(operation.max_bytes, "max_bytes", 0)
    if not record.is_open or operation.batch != record.batch + 1:
        raise InvalidRequestError(
            f"batch {operation.batch} of consumer {record.id!r} cannot be prepared: that is for "
            f"the batch after the open one, and batch {record.batch} is "
            f"{'open' if record.is_open else 'closed'}"
        )
    return prepared_batches.prepare(state, record, operation, now)


def _replay(
    state: State, record: ConsumerRecord, operation: ClaimBatch, now: datetime
) -> BatchState:
    """Hand out the open batch again, unless it has failed too often."""
    counted = count_replay(record, operation)
    if counted.failures > record.failures and is_failed(counted, operation):
        if record.alone != record.batch:
            return take_apart(state, counted, now)
        counted = fail_alone(state, counted, now)
    if not counted.jobs:
        state.put_row(replace(counted, at=now))
        return BatchState(counted.batch, 0)
    return _claim_again(state, counted, operation, now)


def _claim_again(
    state: State, record: ConsumerRecord, operation: ClaimBatch, now: datetime
) -> BatchState:
    """Hand out the same jobs, and renew their leases.

    Those that no worker holds any more are taken back, even while the queue is paused, because the
    batch was handed out before; but for those that a limit holds up.
    """
    state.attach_cold()
    state.promote(now)
    held, lost = sort_jobs(state, record, record.jobs)
    known = [state.borrow_job(job_id) for job_id in lost]
    renew(state, held, operation.lease_s, now)
    prepared_batches.renew_ahead(state, record, operation, now)
    room, free = LimitRoom(state, now), list[JobRecord]()
    for each in known:
        if each and record.may_hold(each) and is_free(each, now) and room.has(each):
            room.take(each)
            free.append(each)
    if free:
        room.spend()
        # They are started at once: a job that waits has exactly one entry in its lane.
        state.waiting.take_out(free)
        state.start_jobs(start_all(free, operation, record.secret, now))
        held, lost = sort_jobs(state, record, record.jobs)
    if record != state.consumers.get(record.id) or record.at != now:
        state.put_row(replace(record, at=now))
    return BatchState(record.batch, len(held), lost)


def read(state: State, operation: ReadBatch, _now: datetime) -> BatchPage:
    """Read a slice of the open batch or the prepared one, in the order of its claim."""
    _check_name_and_number(operation)
    check.whole_number(operation.start, "start", 0)
    check.whole_number(operation.limit, "limit", 1, state.settings.max_batch_jobs)
    record = state.consumers.get(operation.consumer)
    batch: ConsumerRecord | PreparedBatch | None = record
    if record is not None and operation.batch > record.batch:
        batch = record.ahead
    elif record is not None and not record.is_open:
        batch = None
    if batch is None or batch.batch != operation.batch:
        raise InvalidRequestError(
            f"batch {operation.batch} of consumer {operation.consumer!r} is not open: it was "
            "acknowledged or released, or never claimed"
        )
    end = operation.start + operation.limit
    held, lost = sort_jobs(state, batch, batch.jobs[operation.start : end])
    return BatchPage(tuple(held), lost, end if end < len(batch.jobs) else None)


def acknowledge(state: State, operation: AckBatch, now: datetime) -> BatchState:
    """Complete what still belongs to a batch, and close it. It is idempotent."""
    return _close(state, operation, now, lambda held: _complete(state, held, now))


def release(state: State, operation: ReleaseBatch, now: datetime) -> BatchState:
    """Release what still belongs to a batch, and close it. It is idempotent."""
    record = _opened(state, operation)
    if record.ahead is not None and operation.batch == record.ahead.batch:
        return prepared_batches.release_ahead(state, record, now)
    return _close(state, operation, now, lambda held: give_back(state, held, now))


def remember_closing(
    _operation: AckBatch | ReleaseBatch, answer: BatchState
) -> tuple[int, tuple[str, ...]]:
    """Keep what became of the jobs."""
    return (answer.jobs, answer.lost)


def recall_closing(
    _state: State, operation: AckBatch | ReleaseBatch, stored: tuple[int, tuple[str, ...]]
) -> BatchState:
    """Answer a retried acknowledgement or release."""
    jobs, lost = stored
    return BatchState(operation.batch, jobs, tuple(lost))


def read_all(state: State, _operation: ReadConsumers, _now: datetime) -> tuple[ConsumerInfo, ...]:
    """The consumers, in the order in which they were first opened."""
    return tuple(consumer.info() for consumer in state.consumers)


def remove(state: State, operation: RemoveConsumer, now: datetime) -> bool:
    """Give back what a consumer holds, and forget it."""
    check.name(operation.consumer, "consumer")
    record = state.consumers.get(operation.consumer)
    if record is None:
        return False
    held, _ = sort_jobs(state, record, record.jobs)
    give_back(state, held, now)
    prepared_batches.release_ahead(state, record, now)
    state.forget("consumers", record.id)
    return True


def _complete(state: State, held: list[JobRecord], now: datetime) -> None:
    """Complete jobs of a batch, without results."""
    nothing = Completion(job="", lease="")
    state.finish_jobs([leases.finished_with(job, nothing, now) for job in held])


def _check_acked(operation: ClaimBatch) -> None:
    """Check that a claim acknowledges the batch before, or none."""
    check.whole_number(operation.acked, "acked", 0)
    if operation.acked and operation.acked != operation.batch - 1:
        raise InvalidRequestError(
            f"a claim of batch {operation.batch} can acknowledge batch {operation.batch - 1}, and "
            f"not batch {operation.acked}"
        )


def _check_name_and_number(
    operation: ClaimBatch | PrepareBatch | ReadBatch | AckBatch | ReleaseBatch,
) -> None:
    check.name(operation.consumer, "consumer")
    check.whole_number(operation.batch, "batch", 1)


def _opened(
    state: State, operation: ClaimBatch | PrepareBatch | AckBatch | ReleaseBatch
) -> ConsumerRecord:
    """The consumer, if it is the caller's."""
    _check_name_and_number(operation)
    check.whole_number(operation.epoch, "epoch", 1)
    record = state.consumers.get(operation.consumer)
    if record is None:
        raise ConsumerFencedError(
            f"no consumer {operation.consumer!r} in the queue: it was removed, or not used for "
            "long; stop, or open it again"
        )
    if record.epoch != operation.epoch:
        raise ConsumerFencedError(
            f"another driver has opened consumer {operation.consumer!r} (epoch {record.epoch}, "
            f"yours is {operation.epoch}); stop"
        )
    return record


def _close(
    state: State,
    operation: AckBatch | ReleaseBatch,
    now: datetime,
    settle: Callable[[list[JobRecord]], None],
) -> BatchState:
    """Settle the jobs that belong to a batch, and close it, unless it was closed before."""
    record = _opened(state, operation)
    if operation.batch > record.batch:
        raise _wrong_number(record, operation.batch)
    if not record.is_open or operation.batch != record.batch:
        return BatchState(operation.batch, 0)
    held, lost = sort_jobs(state, record, record.jobs)
    settle(held)
    state.running.of_batch.pop(record.secret, None)
    state.put_row(record.closed(now))
    return BatchState(record.batch, len(held), lost)


def _wrong_number(record: ConsumerRecord, batch: int) -> InvalidRequestError:
    name = f"consumer {record.id!r}"
    if record.is_open:
        message = (
            f"batch {batch} of {name} cannot be next: batch {record.batch} is open; claim that "
            "one again, and acknowledge or release it first"
        )
    else:
        message = (
            f"batch {batch} of {name} is not open; the next one to claim is {record.batch + 1}"
        )
    return InvalidRequestError(message)
