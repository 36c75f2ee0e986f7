"""``apply``: the one function that changes a queue.

It is deterministic (what is random comes in with the operation), costs the same at any size of
the queue, and is total: an operation that cannot be granted changes nothing and is answered
with a ``RejectedError``, so that one bad request fails alone. It never judges time on behalf
of a worker: the writer decides whether a lease is stale, and submits ``Expire``.
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
    access,
    archiving,
    brokers,
    check,
    consumers,
    leases,
    operators,
    pushes,
    reads,
    request_digest,
    timekeeping,
    writers,
)
from bucketq.model.base import Operation
from bucketq.model.numbered_batches import (
    AckBatch,
    ClaimBatch,
    OpenConsumer,
    Publish,
    ReadBatch,
    ReadConsumers,
    ReleaseBatch,
    RemoveConsumer,
)
from bucketq.model.operations import (
    REPEATABLE,
    Archived,
    Cancel,
    Claim,
    Complete,
    CompleteMany,
    Configure,
    Expire,
    Fail,
    Get,
    GrantToken,
    Heartbeat,
    Lead,
    List,
    NoteTime,
    Pause,
    Persist,
    Purge,
    Push,
    ReadOutbox,
    ReadSnapshot,
    ReadStats,
    ReadTokens,
    Redrive,
    Release,
    ReleaseMany,
    Request,
    Resume,
    Retire,
    RevokeToken,
    Tidy,
    Withdraw,
)
from bucketq.model.sessions import MISSING
from bucketq.model.state import Change, State


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


_MAX_NUMBER = 2**63 - 1
_UNRECORDED = frozenset(REPEATABLE)

_Handler = Callable[[State, Any, datetime], Any]

_HANDLERS: dict[type[Operation], _Handler] = {
    Push: pushes.push,
    Claim: leases.claim,
    Heartbeat: leases.heartbeat,
    Complete: leases.complete,
    CompleteMany: leases.complete_many,
    Fail: leases.fail,
    Release: leases.release,
    Withdraw: leases.withdraw,
    ReleaseMany: leases.release_many,
    Expire: leases.expire,
    Persist: brokers.persist,
    Lead: brokers.lead,
    Retire: brokers.retire,
    Cancel: operators.cancel,
    Redrive: operators.redrive,
    Purge: operators.purge,
    Pause: operators.pause,
    Resume: operators.resume,
    Configure: operators.configure,
    GrantToken: access.grant,
    RevokeToken: access.revoke,
    NoteTime: timekeeping.note,
    Tidy: operators.tidy,
    Archived: archiving.remove_archived,
    ReadOutbox: archiving.read_outbox,
    Get: reads.get,
    List: reads.page,
    ReadStats: reads.stats,
    ReadSnapshot: reads.snapshot,
    ReadTokens: access.read_tokens,
    OpenConsumer: consumers.open_one,
    ClaimBatch: consumers.claim,
    ReadBatch: consumers.read,
    AckBatch: consumers.acknowledge,
    ReleaseBatch: consumers.release,
    ReadConsumers: consumers.read_all,
    RemoveConsumer: consumers.remove,
    Publish: writers.publish,
}

_RECALL: dict[type[Operation], Callable[[State, Any, Any], Any]] = {
    Push: pushes.recall,
    Claim: leases.recall_claim,
    CompleteMany: leases.recall_completions,
    ReleaseMany: leases.recall_releases,
    Configure: operators.recall_settings,
    GrantToken: access.recall_grant,
    OpenConsumer: consumers.recall_opening,
    AckBatch: consumers.recall_closing,
    ReleaseBatch: consumers.recall_closing,
}
_REMEMBER: dict[type[Operation], Callable[[Any, Any], Any]] = {
    Push: pushes.remember,
    Claim: leases.remember_claim,
    CompleteMany: leases.remember_lost,
    ReleaseMany: leases.remember_lost,
    Configure: lambda _operation, _answer: None,
    GrantToken: access.remember_grant,
    OpenConsumer: consumers.remember_opening,
    AckBatch: consumers.remember_closing,
    ReleaseBatch: consumers.remember_closing,
}


def apply(state: State, request: Request, now: datetime) -> Applied:
    """Apply a request to a state, or answer it again if it was applied before."""
    mark = len(state.changes)
    operation = request.operation
    is_recorded = bool(request.session) and type(operation) not in _UNRECORDED
    try:
        if is_recorded:
            _check_id(request)
            answer = _find_earlier(state, request)
            if answer is not MISSING:
                return Applied(answer, None, [])
        answer = _HANDLERS[type(operation)](state, operation, now)
    except (RejectedError, SupersededError, UnavailableError) as error:
        if len(state.changes) != mark:
            raise AssertionError(f"{operation!r} was refused half way") from error
        _drop_frames(error)
        return Applied(None, error, [])
    if is_recorded and len(state.changes) != mark:
        _remember(state, request, answer, now)
    return Applied(answer, None, state.changes[mark:])


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
    number, floor = request.number, request.acknowledged_below
    check.name(request.session, "session")
    if type(number) is not int or not 0 <= number <= _MAX_NUMBER:
        check.whole_number(number, "number", 0, _MAX_NUMBER)
    if type(floor) is not int or not 0 <= floor <= number:
        check.whole_number(floor, "acknowledged_below", 0, _MAX_NUMBER)
    if request.since is not None:
        check.whole_number(request.since, "since", 0, _MAX_NUMBER)


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
            message = (
                f"request {request.number} of session {request.session} was already "
                "acknowledged by its client; send a new request"
            )
            raise InvalidRequestError(message)
        stored = session.find(request.number)
        if stored is not MISSING:
            _check_same(request, session.digests.get(request.number))
            recall = _RECALL.get(type(request.operation))
            return stored if recall is None else recall(state, request.operation, stored)
    if request.since is not None and state.sessions.horizon > request.since:
        message = (
            f"request {request.number} of session {request.session} is older than what the "
            "queue remembers of its clients, so whether it took effect is unknown; "
            "look for its effect before you send a new one"
        )
        raise UnavailableError(message)
    return MISSING


def _check_same(request: Request, digest: str | None) -> None:
    """Reject a request whose id was used for another: its answer would be that of the other."""
    if digest is not None and not request_digest.is_same(request.operation, digest):
        message = (
            f"request id reused: number {request.number} of session {request.session} was another "
            "request, which took effect; send this one under an id of its own"
        )
        raise InvalidRequestError(message)


def _remember(state: State, request: Request, answer: object, now: datetime) -> None:
    remember = _REMEMBER.get(type(request.operation))
    stored = answer if remember is None else remember(request.operation, answer)
    version, floor = state.version + 1, request.acknowledged_below
    state.sessions.write(
        request.session,
        request.number,
        stored,
        request_digest.digest(request.operation),
        now,
        version=version,
        floor=floor,
    )
    state.changes.append(("sessions", request.session))
