"""``apply``: the one function that changes a queue.

It is deterministic (what is random comes in with the operation), costs the same at any size of
the queue, and is total: an operation that cannot be granted changes nothing and is answered
with a ``RejectedError``, so that one bad request fails alone. It never decides that a
worker has been silent for too long: the writer does, and submits ``Expire``.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any

from msgspec import Struct

from bucketq.errors import (
    InvalidRequestError,
    RejectedError,
    SupersededError,
    UnavailableError,
)
from bucketq.model import (
    check,
    history,
    job_batches,
    limits,
    request_digest,
    reservations,
    results,
    schedules,
    segments,
    side_objects,
)
from bucketq.model import numbered_batches as batches
from bucketq.model import operations as ops
from bucketq.model.audit_records import ReadAudit
from bucketq.model.base import Operation
from bucketq.model.effects import (
    access,
    adoption,
    archiving,
    brokers,
    consumers,
    failed_batches,
    history_changes,
    leases,
    operators,
    pushes,
    reads,
    schedule_changes,
    segment_changes,
    side_refs,
    timekeeping,
)
from bucketq.model.effects.limits import limit_changes
from bucketq.model.effects.links import batch_changes, job_ends
from bucketq.model.operations import REPEATABLE, Request
from bucketq.model.oversight import announcements, audit_notes
from bucketq.model.results import SpillResults
from bucketq.model.sessions import MISSING
from bucketq.model.state import Change, State
from bucketq.model.worker_records import Announce, DrainWorker, ReadWorkers


class Applied(Struct, frozen=True):
    """What became of a request: its answer or the reason against it, and what it changed."""

    answer: Any
    error: RejectedError | SupersededError | UnavailableError | None
    changes: list[Change]

    def result(self) -> Any:
        """Return the answer, or raise the reason against it."""
        if self.error is not None:
            raise self.error
        return self.answer


_UNRECORDED = frozenset(REPEATABLE)
_AUDITED = frozenset(audit_notes.DESCRIBED)

_Handler = Callable[[State, Any, datetime], Any]

_HANDLERS: dict[type[Operation], _Handler] = {
    ops.Claim: leases.claim,
    ops.Heartbeat: leases.heartbeat,
    ops.Complete: leases.complete,
    ops.CompleteMany: leases.complete_many,
    ops.Fail: leases.fail,
    ops.Release: leases.release,
    ops.Withdraw: leases.withdraw,
    ops.ReleaseMany: leases.release_many,
    ops.Expire: leases.expire,
    ops.Persist: brokers.persist,
    ops.Lead: brokers.lead,
    ops.Retire: brokers.retire,
    ops.Cancel: operators.cancel,
    job_batches.CancelJobs: operators.cancel_jobs,
    ops.SetPriority: operators.set_priority,
    ops.Redrive: operators.redrive,
    ops.Purge: operators.purge,
    ops.Pause: operators.pause,
    ops.Resume: operators.resume,
    ops.Configure: operators.configure,
    ops.GrantToken: access.grant,
    ops.RevokeToken: access.revoke,
    ops.NoteTime: timekeeping.note,
    ops.Tidy: operators.tidy,
    ops.Archived: archiving.remove_archived,
    reservations.Reserve: adoption.reserve,
    reservations.RenewReservation: adoption.renew,
    reservations.DropReservation: adoption.drop,
    schedules.SetSchedule: schedule_changes.set_schedule,
    schedules.RemoveSchedule: schedule_changes.remove_schedule,
    schedules.PauseSchedule: schedule_changes.pause_schedule,
    schedules.ResumeSchedule: schedule_changes.resume_schedule,
    schedules.ReadSchedules: schedule_changes.read_schedules,
    schedules.Fire: schedule_changes.fire,
    limits.SetLimit: limit_changes.set_limit,
    limits.RemoveLimit: limit_changes.remove_limit,
    limits.ReadLimits: limit_changes.read_limits,
    job_batches.OpenBatch: batch_changes.open_batch,
    job_batches.CloseBatch: batch_changes.close_batch,
    job_batches.CancelBatch: batch_changes.cancel_batch,
    job_batches.ReadBatches: batch_changes.read_batches,
    Announce: announcements.announce,
    DrainWorker: announcements.drain,
    ReadWorkers: announcements.read_workers,
    ReadAudit: audit_notes.read_audit,
    segments.Spill: segment_changes.spill,
    segments.SpillKeys: segment_changes.spill_keys,
    SpillResults: archiving.spill_results,
    segments.Merge: segment_changes.merge,
    segments.NameVector: segment_changes.name_vector,
    segments.TidySegments: operators.tidy_segments,
    segments.ForgetFormer: segment_changes.forget_former,
    history.DropChanges: history_changes.drop_changes,
    history.NameCopy: history_changes.name_copy,
    history.ForgetHistory: history_changes.forget_history,
    side_objects.StageObject: side_refs.stage,
    ops.ReadOutbox: archiving.read_outbox,
    ops.Get: reads.get,
    results.Wait: reads.wait,
    ops.List: reads.page,
    ops.ReadStats: reads.stats,
    ops.ReadSnapshot: reads.snapshot,
    ops.ReadTokens: access.read_tokens,
    batches.OpenConsumer: consumers.open_one,
    batches.ClaimBatch: consumers.claim,
    batches.ReadBatch: consumers.read,
    batches.AckBatch: consumers.acknowledge,
    batches.ReleaseBatch: consumers.release,
    batches.SettleBatch: failed_batches.settle,
    batches.ReadConsumers: consumers.read_all,
    batches.RemoveConsumer: consumers.remove,
}
_PUSHES: dict[type[Operation], Callable[[State, Any, datetime, Request], Any]] = {
    ops.Push: pushes.push,
    batches.Publish: pushes.publish,
    reservations.Adopt: adoption.adopt,
    schedules.RunSchedule: schedule_changes.run_schedule,
}
"""Handlers that need the request: ids of jobs are made for it, and rows may be written for it."""

_Remember = Callable[[Any, Any], Any]
_Recall = Callable[[State, Any, Any], Any]

_STORED: dict[type[Operation], tuple[_Remember, _Recall]] = {
    ops.Push: (pushes.remember, pushes.recall),
    ops.Claim: (leases.remember_claim, leases.recall_claim),
    ops.CompleteMany: (leases.remember_lost, leases.recall_lost),
    ops.ReleaseMany: (leases.remember_lost, leases.recall_lost),
    ops.Configure: (lambda _operation, _answer: None, operators.recall_settings),
    ops.GrantToken: (access.remember_grant, access.recall_grant),
    schedules.RunSchedule: (lambda _operation, _answer: None, schedule_changes.recall_run),
    job_batches.CancelJobs: (operators.remember_cancelled, operators.recall_cancelled),
    job_batches.CloseBatch: (lambda _operation, _answer: None, batch_changes.recall_batch),
    job_batches.CancelBatch: (lambda _operation, _answer: None, batch_changes.recall_batch),
    batches.OpenConsumer: (consumers.remember_opening, consumers.recall_opening),
    batches.AckBatch: (consumers.remember_closing, consumers.recall_closing),
    batches.ReleaseBatch: (consumers.remember_closing, consumers.recall_closing),
    batches.SettleBatch: (failed_batches.remember_settled, failed_batches.recall_settled),
}
"""What a session stores of an answer, and how the answer is made again; others are stored whole."""


def apply(state: State, request: Request, now: datetime, by: str = "") -> Applied:
    """Apply a request to a state, or answer it again if it was applied before.

    ``by`` is what the history and the audit table call the sender, if it is known.
    """
    mark = len(state.changes)
    operation = request.operation
    kind = type(operation)
    is_recorded = bool(request.session) and kind not in _UNRECORDED
    try:
        if is_recorded:
            _check_id(request)
            answer = _find_earlier(state, request)
            if answer is not MISSING:
                return Applied(answer, None, [])
        if kind in _PUSHES:
            answer = _PUSHES[kind](state, operation, now, request)
        else:
            answer = _HANDLERS[kind](state, operation, now)
    except (RejectedError, SupersededError, UnavailableError) as error:
        if len(state.changes) != mark:
            raise AssertionError(f"{operation!r} was refused half way") from error
        _drop_frames(error)
        return Applied(None, error, [])
    if state.followed.ends:
        job_ends.follow(state, now)
    if kind in _AUDITED and len(state.changes) != mark:
        audit_notes.note(state, request, answer, now, by)
    if is_recorded and len(state.changes) != mark:
        _remember(state, request, answer, now)
    changes = state.changes[mark:]
    if changes and state.recorder is not None:
        state.recorder.note(operation, request.session, changes, by)
    return Applied(answer, None, changes)


def _drop_frames(error: BaseException) -> None:
    """Make an error one that can be kept: from now on it is an answer.

    Its traceback would keep the frames of the caller, and with them the whole state,
    in a circle that only the garbage collector can break, which in a broker hardly ever runs.
    """
    link: BaseException | None = error
    while link is not None:
        link.__traceback__ = None
        link = link.__cause__ or link.__context__


def _check_id(request: Request) -> None:
    check.name(request.session, "session")
    check.whole_number(request.number, "number", 0)
    check.whole_number(request.acknowledged_below, "acknowledged_below", 0)
    if request.since is not None:
        check.whole_number(request.since, "since", 0)


def _find_earlier(state: State, request: Request) -> object:
    """Return the answer to the same request if it was applied before, or MISSING.

    Raises:
        InvalidRequestError: The client said that it had the answer already, or asked for something
            else under this id.
        UnavailableError: It may have been applied and forgotten: the outcome is unknown.
    """
    session = state.sessions.table.by_id.get(request.session)
    if session is not None:
        if request.number < session.floor:
            raise InvalidRequestError(
                f"request {request.number} of session {request.session} was already "
                "acknowledged by its client; send a new request"
            )
        stored = session.find(request.number)
        if stored is not MISSING:
            _check_same(request, session.digests.get(request.number))
            codec = _STORED.get(type(request.operation))
            return stored if codec is None else codec[1](state, request.operation, stored)
    if request.since is not None and state.sessions.horizon > request.since:
        raise UnavailableError(
            f"request {request.number} of session {request.session} is older than what the "
            "queue remembers of its clients, so whether it took effect is unknown; "
            "look for its effect before you send a new one"
        )
    return MISSING


def _check_same(request: Request, digest: str | None) -> None:
    """Reject a request whose id was used for another: its answer would be that of the other."""
    if digest is not None and not request_digest.is_same(request.operation, digest):
        raise InvalidRequestError(
            f"request id reused: number {request.number} of session {request.session} was another "
            "request, which took effect; send this one under an id of its own"
        )


def _remember(state: State, request: Request, answer: object, now: datetime) -> None:
    codec = _STORED.get(type(request.operation))
    stored = answer if codec is None else codec[0](request.operation, answer)
    state.sessions.write(
        request.session,
        request.number,
        stored,
        request_digest.digest(request.operation),
        now,
        version=state.version + 1,
        floor=request.acknowledged_below,
    )
    state.changes.append(("sessions", request.session))
