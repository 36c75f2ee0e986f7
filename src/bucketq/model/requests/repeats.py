"""Finds requests that took effect before, answers them again, and remembers new ones.

A client may join requests that its callers make at the same time (``Request.numbers``): one
operation on several jobs, with the number of one request for each job, or for as many as the
request has (``Request.counts``). They are remembered as if each had come alone, so that each can be
retried alone. If only some of them are known, all are
rejected, and the client sends each by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from itertools import chain, compress, islice, repeat
from operator import ge
from typing import Any

from msgspec import structs

from bucketq.errors import InvalidRequestError, RejectedError, UnavailableError
from bucketq.model import check, job_batches, schedules
from bucketq.model import numbered_batches as batches
from bucketq.model import operations as ops
from bucketq.model.base import Operation
from bucketq.model.effects import (
    access,
    leases,
    operators,
    pushes,
    schedule_changes,
)
from bucketq.model.effects.links import batch_changes
from bucketq.model.effects.numbered import consumers, failed_batches
from bucketq.model.operations import Request
from bucketq.model.requests import request_digest
from bucketq.model.requests.sessions import MISSING, Record, Session
from bucketq.model.state import State

MAX_JOINED = 1000
"""How many requests may be joined, all of which are looked up and remembered in one turn. Clients
join 200."""

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


def check_id(request: Request) -> None:
    """Validate the id of a request, or the ids of those that are joined in it."""
    check.name(request.session, "session")
    check.whole_number(request.number, "number", 0)
    check.whole_number(request.acknowledged_below, "acknowledged_below", 0)
    if request.since is not None:
        check.whole_number(request.since, "since", 0)
    if request.numbers or request.counts:
        _check_joined(request)


def _check_joined(request: Request) -> None:
    operation, count = request.operation, 0
    if isinstance(operation, ops.Push | ops.CompleteMany):
        count = len(operation.jobs)
    elif isinstance(operation, ops.Claim) and not operation.wait_s:
        count = operation.limit
    if not count:
        raise InvalidRequestError("only pushes, completions and claims that do not wait are joined")
    if request.counts:
        count = _check_counts(request.counts, operation)
    _check_numbers(request.numbers, request.number, count)


def refuse_joined(request: Request) -> None:
    """Reject joined requests that would not be remembered."""
    if request.numbers or request.counts:
        raise InvalidRequestError(
            "joined requests need a session: each is remembered by its number in it"
        )


def _check_numbers(numbers: tuple[int, ...], first: int, count: int) -> None:
    if len(numbers) > MAX_JOINED:
        raise InvalidRequestError(
            f"{len(numbers)} joined requests, at most {MAX_JOINED} are allowed: join fewer"
        )
    if not numbers:
        raise InvalidRequestError("pushes are joined by their counts, but have no numbers")
    if {*map(type, numbers)} != {int} or min(numbers) < 0 or max(numbers) > check.MAX_INTEGER:
        for number in numbers:
            check.whole_number(number, "number", 0)
    if len(numbers) != count or numbers[0] != first:
        raise InvalidRequestError(
            f"{len(numbers)} numbers for {count} joined requests, the first of which has number "
            f"{first}: each needs one"
        )
    if any(map(ge, numbers, numbers[1:])):
        raise InvalidRequestError("the numbers of joined requests must rise")


def _check_counts(counts: tuple[int, ...], operation: Operation) -> int:
    """Return how many pushes are joined, if their counts are those of the jobs."""
    if not isinstance(operation, ops.Push):
        raise InvalidRequestError("only joined pushes have several jobs each")
    for count in counts:
        check.whole_number(count, "count", 1)
    if sum(counts) != len(operation.jobs):
        raise InvalidRequestError(
            f"joined pushes of {sum(counts)} jobs in all, but there are {len(operation.jobs)}"
        )
    return len(counts)


def find_earlier(state: State, request: Request) -> object:
    """Return the answer to the same request if it was applied before, or MISSING.

    Raises:
        InvalidRequestError: The client said that it had the answer already, or asked for something
            else under this id.
        RejectedError: Some of the requests that are joined in it were applied before.
        UnavailableError: It may have been applied and forgotten: the outcome is unknown.
    """
    session = state.sessions.table.by_id.get(request.session)
    if session is not None:
        if request.number < session.floor:
            raise InvalidRequestError(
                f"request {request.number} of session {request.session} was already "
                "acknowledged by its client; send a new request"
            )
        if request.numbers:
            answer = _find_joined(state, request, session)
        else:
            answer = _find_alone(state, request.operation, request.number, session)
        if answer is not MISSING:
            return answer
    if request.since is not None and state.sessions.horizon > request.since:
        raise UnavailableError(
            f"request {request.number} of session {request.session} is older than what the "
            "queue remembers of its clients, so whether it took effect is unknown; "
            "look for its effect before you send a new one"
        )
    return MISSING


def _find_alone(state: State, operation: Operation, number: int, session: Session) -> Any:
    stored = session.find(number)
    if stored is MISSING:
        return MISSING
    digest = session.digests.get(number)
    if digest is not None and not request_digest.is_same(operation, digest):
        raise InvalidRequestError(
            f"request id reused: number {number} of session {session.id} was another "
            "request, which took effect; send this one under an id of its own"
        )
    codec = _STORED.get(type(operation))
    return stored if codec is None else codec[1](state, operation, stored)


def _find_joined(state: State, request: Request, session: Session) -> object:
    numbers = request.numbers
    if session.is_above(numbers[0]):
        return MISSING
    known = [session.find(number) is not MISSING for number in numbers]
    if not any(known):
        return MISSING
    if not all(known):
        raise RejectedError(
            f"some of the requests {numbers[0]} to {numbers[-1]} of session {session.id} took "
            "effect before: send each by itself"
        )
    alone = zip(_each_alone(request), numbers, strict=True)
    answers = [_find_alone(state, operation, number, session) for operation, number in alone]
    if isinstance(request.operation, ops.CompleteMany):
        return (True,) * len(answers)
    if not all(answers):
        raise RejectedError(
            f"some jobs of the claims {numbers[0]} to {numbers[-1]} of session {session.id} are "
            "held no longer: send each by itself"
        )
    return tuple(chain.from_iterable(answers))


def remember(state: State, request: Request, answer: Any, now: datetime) -> None:
    """Note that a request has taken effect."""
    operation = request.operation
    if request.numbers:
        records = _joined_records(request, answer)
    else:
        codec = _STORED.get(type(operation))
        stored = answer if codec is None else codec[0](operation, answer)
        records = [(request.number, stored, request_digest.digest(operation))]
    state.sessions.write(
        request.session,
        records,
        now,
        version=state.version + 1,
        floor=request.acknowledged_below,
    )
    state.changes.append(("sessions", request.session))


def _joined_records(request: Request, answer: Any) -> list[Record]:
    """Return what is remembered of each request that has taken effect: others may be repeated."""
    operation: Any = request.operation
    numbers = request.numbers
    if isinstance(operation, ops.Claim):
        same = request_digest.digest(_each_alone(request)[0])
        jobs = leases.remember_claim(operation, answer)
        return [(number, [job], same) for number, job in zip(numbers, jobs, strict=False)]
    digests = None if request.counts else request_digest.plain_digests(operation)
    digests = digests or request_digest.digests(_each_alone(request))
    if isinstance(operation, ops.CompleteMany):
        return [*compress(zip(numbers, repeat(None), digests, strict=False), answer)]
    if pushes.remember(operation, answer) is None:
        return [*zip(numbers, repeat(None), digests, strict=False)]
    ids = iter(answer)
    alone = [(each, tuple(islice(ids, len(each.jobs)))) for each in _each_alone(request)]
    stored = [pushes.remember(each, answered) for each, answered in alone]
    return [*zip(numbers, stored, digests, strict=True)]


def _each_alone(request: Request) -> Sequence[Any]:
    """Return the operations that are joined in one."""
    operation: Any = request.operation
    if isinstance(operation, ops.Claim):
        return (structs.replace(operation, limit=1),) * operation.limit
    if isinstance(operation, ops.Push):
        kind, jobs = type(operation.jobs), iter(operation.jobs)
        counts = request.counts or repeat(1, len(operation.jobs))
        return [ops.Push(jobs=kind(islice(jobs, count))) for count in counts]
    return [
        ops.Complete(
            job=done.job,
            lease=done.lease,
            result=done.result,
            result_encoding=done.result_encoding,
            follow_ups=done.follow_ups,
        )
        for done in operation.jobs
    ]
