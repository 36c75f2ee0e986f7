"""The ids of a client's requests, so that a retried request takes effect once.

A client numbers its requests within a session, and each request says below which number every
answer has arrived, so that the queue can forget those. A request whose outcome stays unknown would
hold that up, so its client abandons the session and continues under a new one.

Ids of jobs that are pushed without one are derived from the id of the request, so that a retry
pushes the same ids. They begin with the time at which the request was made, as ULIDs do; a retry
token contains that time.
"""

from __future__ import annotations

import re
import reprlib
from collections.abc import Iterator
from functools import lru_cache

from msgspec import Struct

from bucketq.base32 import crockford
from bucketq.clock import Clock, id_time, new_id
from bucketq.errors import (
    AccessDeniedError,
    ClosedError,
    InvalidRequestError,
    OverloadedError,
    QueueNotFoundError,
    StoreRefusedError,
)
from bucketq.model import job_ids
from bucketq.model.base import Operation
from bucketq.model.operations import AnyOperation, Claim, Request

_FORMAT = r"([a-z]{1,32})\.([0-9A-Z]{26})\.([0-9]{1,18})\.([0-9]{1,18})(?:\.([0-9]{1,15}))?"
"""Verb, session, number, since, and the time; tokens of older releases have no time."""
UNJUDGED = (
    StoreRefusedError,
    OverloadedError,
    AccessDeniedError,
    QueueNotFoundError,
    ClosedError,
)
"""Rejections that are made before a request is compared with those that took effect."""


class RequestId(Struct, frozen=True, gc=False):
    """The id of a request, the same at every try."""

    session: str
    number: int
    acknowledged_below: int = 0
    since: int | None = None
    made_ms: int | None = None
    """When it was made, for the ids of its jobs; None: when its session began."""

    def request(self, operation: AnyOperation) -> Request:
        """Give an operation this id."""
        return Request(
            operation,
            self.session,
            self.number,
            self.acknowledged_below,
            self.since,
            self.made_ms,
        )

    def job_id(self, index: int) -> str:
        """The id of a job that it pushes: the same at every try, like no other job's."""
        return job_ids.job_id(self.time, self.session, self.number, index)

    def job_ids(self) -> Iterator[str]:
        """The ids of all jobs that it pushes, in order."""
        return job_ids.job_ids(self.time, self.session, self.number)

    def joined_job_ids(self, start: int, count: int) -> bytes:
        """Some of these ids, joined; ``start`` is the index of the first."""
        return job_ids.joined_ids(self.time, self.session, self.number, start, count)

    @property
    def time(self) -> str:
        """The first letters of the ids."""
        if self.made_ms is None:
            return self.session[: job_ids.TIME_LENGTH]
        return _letters(self.made_ms)


@lru_cache(maxsize=16)
def _letters(made_ms: int) -> str:
    """Kept, because many requests are made in one millisecond."""
    return crockford(made_ms, job_ids.TIME_LENGTH)


def token_of(request: Request, version: int) -> str | None:
    """Return a token with which a caller can retry; ``version`` is the newest that was seen."""
    if not request.session:
        return None
    since = version if request.since is None else request.since
    token = f"{_verb(type(request.operation))}.{request.session}.{request.number}.{since}"
    return token if request.made_ms is None else f"{token}.{request.made_ms}"


def is_unjudged(error: Exception, request: Request) -> bool:
    """Whether an error rejects this try of a request, and says nothing about an earlier one.

    ``apply`` finds a request that has taken effect before it rejects anything, so its rejections
    are final. A store that refuses, or a broker that denies access, has not checked.
    """
    if request.since is None or not request.session:
        return False  # It was never sent before, or changes nothing (reads have no session).
    if isinstance(error, ClosedError) and isinstance(request.operation, Claim):
        return False  # A claim is withdrawn when its queue is closed.
    return isinstance(error, UNJUDGED)


def parse_token(token: object, operation: type[Operation]) -> RequestId:
    """Decode the token of an error, for a retry of the same operation.

    Another operation under the same id would be answered as if it had been applied.
    """
    found = re.fullmatch(_FORMAT, token) if isinstance(token, str) else None
    if found is None:
        shown = reprlib.repr(token)
        message = f"bad request {shown}: pass the `request` of an UnavailableError as it is"
        raise InvalidRequestError(message)
    if found[1] != _verb(operation):
        message = f"the request belongs to a {found[1]}: pass it to the verb that raised the error"
        raise InvalidRequestError(message)
    made_ms = None if found[5] is None else int(found[5])
    return RequestId(found[2], int(found[3]), since=int(found[4]), made_ms=made_ms)


def _verb(operation: type[Operation]) -> str:
    return operation.__name__.lower()


class RequestIds:
    """Gives ids to the requests of one client."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._session = new_id(clock)
        self._next = 1
        self._outstanding: dict[int, None] = {}

    def give(self, made_ms: int | None = None) -> RequestId:
        """Make a new id; ``made_ms`` is the time, if the caller has asked the clock already."""
        number = self._next
        self._next = number + 1
        self._outstanding[number] = None
        floor = next(iter(self._outstanding))
        if made_ms is None:
            made_ms = id_time(self._clock)
        return RequestId(self._session, number, floor, None, made_ms)

    def settle(self, request: RequestId) -> None:
        """Note that a request has been answered."""
        if request.session == self._session:
            self._outstanding.pop(request.number, None)

    def abandon(self, request: RequestId) -> None:
        """Note that a request's outcome stays unknown: continue under a new session."""
        if request.session == self._session:
            self._session = new_id(self._clock)
            self._next = 1
            self._outstanding = {}
