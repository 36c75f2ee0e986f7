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
    RejectedError,
    SupersededError,
    UnavailableError,
)
from bucketq.model import (
    history,
    job_batches,
    limits,
    outbox,
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
from bucketq.model.effects.numbered import consumers, failed_batches
from bucketq.model.operations import REPEATABLE, Request
from bucketq.model.oversight import announcements, audit_notes
from bucketq.model.requests import repeats
from bucketq.model.requests.sessions import MISSING
from bucketq.model.results import SpillResults
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
    ops.Heartbeat: leases.heartbeat,
    ops.Complete: leases.complete,
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
    outbox.Archived: archiving.remove_archived,
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
    outbox.ReadOutbox: archiving.read_outbox,
    ops.Get: reads.get,
    results.Wait: reads.wait,
    ops.List: reads.page,
    ops.ReadStats: reads.stats,
    ops.ReadSnapshot: reads.snapshot,
    ops.ReadTokens: access.read_tokens,
    batches.OpenConsumer: consumers.open_one,
    batches.ClaimBatch: consumers.claim,
    batches.PrepareBatch: consumers.prepare,
    batches.ReadBatch: consumers.read,
    batches.AckBatch: consumers.acknowledge,
    batches.ReleaseBatch: consumers.release,
    batches.SettleBatch: failed_batches.settle,
    batches.ReadConsumers: consumers.read_all,
    batches.RemoveConsumer: consumers.remove,
}
_WITH_REQUEST: dict[type[Operation], Callable[[State, Any, datetime, Request], Any]] = {
    ops.Push: pushes.push,
    ops.Claim: leases.claim,
    ops.CompleteMany: leases.complete_many,
    batches.Publish: pushes.publish,
    reservations.Adopt: adoption.adopt,
    schedules.RunSchedule: schedule_changes.run_schedule,
}
"""Handlers that need the request: it may be several that are joined, ids of jobs are made for it,
and rows may be written for it."""


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
            repeats.check_id(request)
            answer = repeats.find_earlier(state, request)
            if answer is not MISSING:
                return Applied(answer, None, [])
        else:
            repeats.refuse_joined(request)
        if kind in _WITH_REQUEST:
            answer = _WITH_REQUEST[kind](state, operation, now, request)
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
        repeats.remember(state, request, answer, now)
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
