"""Which actions the audit table has, and how they are noted.

An action is noted in the commit that has its effect, if it has one: neither a request that is
refused, nor one that is repeated, is noted.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import msgspec
from msgspec.structs import replace

from bucketq.model import check
from bucketq.model import operations as ops
from bucketq.model.audit_records import AuditRecord, ReadAudit
from bucketq.model.base import Operation
from bucketq.model.history import ForgetHistory, client_of, is_asked
from bucketq.model.job_batches import CancelJobs, CancelledJobs
from bucketq.model.limits import RemoveLimit, SetLimit
from bucketq.model.numbered_batches import RemoveConsumer
from bucketq.model.schedules import (
    PauseSchedule,
    RemoveSchedule,
    ResumeSchedule,
    RunSchedule,
    SetSchedule,
)
from bucketq.model.state import State
from bucketq.model.worker_records import DrainWorker

_MOST_ABOUT = 10
"""How many jobs or settings a row names: every commit writes it."""
_LONGEST = 200
"""How many characters of a name are kept."""
_TOGETHER = timedelta(seconds=60)
"""What the same operator repeats within this time is one row: a program may cancel thousands of
jobs one by one, and a redrive is done in pages."""

_Described = tuple[tuple[str, ...], int]
"""What an action was done to, and how many were changed."""


def _chosen(operation: ops.Redrive | ops.Purge, answer: int) -> _Described:
    kinds = tuple(f"kind {kind}" for kind in operation.kinds)
    return (*operation.jobs, *kinds), answer


def _settings(operation: ops.Configure, _answer: object) -> _Described:
    changes = operation.changes.items()
    shown = (f"{name}={msgspec.json.encode(value).decode()}" for name, value in changes)
    return tuple(shown), len(changes)


def _kind(operation: ops.Pause | ops.Resume, _answer: object) -> _Described:
    return (() if operation.kind is None else (f"kind {operation.kind}",)), 0


def _schedule(operation: Any, _answer: object) -> _Described:
    return (operation.schedule,), 0


def _token(operation: ops.GrantToken, _answer: object) -> _Described:
    return (operation.id, operation.name, *operation.rights), 0


def _batch(operation: CancelJobs, answer: CancelledJobs) -> _Described:
    return (f"batch {operation.batch}",), answer.cancelled + answer.requested


DESCRIBED: dict[type[Operation], Callable[[Any, Any], _Described]] = {
    ops.Cancel: lambda operation, _: ((operation.job,), 1),
    CancelJobs: _batch,
    ops.SetPriority: lambda operation, _: ((operation.job, f"priority {operation.priority}"), 1),
    ops.Redrive: _chosen,
    ops.Purge: _chosen,
    ops.Pause: _kind,
    ops.Resume: _kind,
    ops.Configure: _settings,
    ops.GrantToken: _token,
    ops.RevokeToken: lambda operation, _: ((operation.id,), 0),
    SetSchedule: _schedule,
    RemoveSchedule: _schedule,
    PauseSchedule: _schedule,
    ResumeSchedule: _schedule,
    RunSchedule: _schedule,
    SetLimit: lambda operation, _: ((operation.target,), 0),
    RemoveLimit: lambda operation, _: ((operation.target,), 0),
    RemoveConsumer: lambda operation, _: ((operation.consumer,), 0),
    ForgetHistory: lambda operation, _: ((f"before version {operation.before}",), 0),
    DrainWorker: lambda operation, answer: ((operation.worker,), answer),
}
"""What the table says of each operation that it has; a test holds that none is forgotten."""

_REPEATED = frozenset({"cancel", "canceljobs", "setpriority", "redrive", "purge"})
"""Actions that are one row if they follow each other soon."""


def note(state: State, request: ops.Request, answer: Any, now: datetime, by: str) -> None:
    """Note an operation that was just applied, and has changed something."""
    operation = request.operation
    if isinstance(operation, ForgetHistory) and not is_asked(operation):
        return  # The queue has forgotten what was too old.
    about, count = DESCRIBED[type(operation)](operation, answer)
    who = by or (f"client {client_of(request.session)}" if request.session else "unknown")
    note_action(state, str(operation.__struct_config__.tag), about, now, by=who, count=count)


def note_action(
    state: State, action: str, about: tuple[str, ...], now: datetime, *, by: str, count: int = 0
) -> None:
    """Add a row, or to the last one if that is the same action; drop the oldest beyond the limit.

    Commands that write the object by themselves call this too.
    """
    shown = tuple(name[:_LONGEST] for name in about[:_MOST_ABOUT])
    last = _last(state)
    if last is not None and _is_repeated(last, action, by, now):
        names = tuple(dict.fromkeys((*last.about, *shown)))[:_MOST_ABOUT]
        _put(state, replace(last, about=names, count=last.count + count, until=now))
        return
    seq = state.audit.next_seq
    _put(
        state,
        AuditRecord(
            id=f"{seq:08d}", seq=seq, at=now, action=action, by=by, about=shown, count=count
        ),
    )
    while len(state.audit) > state.settings.max_audit:
        state.forget("audit", next(iter(state.audit)).id)


def read_audit(state: State, operation: ReadAudit, _now: datetime) -> tuple[AuditRecord, ...]:
    """Return the rows, oldest first."""
    check.whole_number(operation.limit, "limit", 0, 2**31)
    rows = tuple(state.audit)
    return rows[-operation.limit :] if operation.limit else rows


def _last(state: State) -> AuditRecord | None:
    block = next(reversed(state.audit.blocks.values()), None)
    return None if block is None else block[-1]


def _is_repeated(last: AuditRecord, action: str, by: str, now: datetime) -> bool:
    is_soon = timedelta(0) <= now - (last.until or last.at) <= _TOGETHER
    return is_soon and (last.action, last.by) == (action, by) and action in _REPEATED


def _put(state: State, row: AuditRecord) -> None:
    state.audit.put(row)
    state.changes.append(("audit", row.id))
