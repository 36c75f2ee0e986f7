"""The ids of a client's requests, so that a retry has the effect of one.

A client numbers its requests within a session, and says with each below which number it has
had every answer, so that the queue can forget them. A request whose outcome stays unknown
would hold that up; so its session is left to itself, and the client goes on under a new one.
"""

from __future__ import annotations

import re
import reprlib
from hashlib import blake2b
from typing import NamedTuple

from bucketq.clock import Clock, crockford, new_id
from bucketq.errors import InvalidRequestError
from bucketq.model.operations import AnyOperation, Operation, Request

_TOKEN = re.compile(r"([a-z]{1,32})\.([0-9A-Z]{26})\.([0-9]{1,18})\.([0-9]{1,18})")
_TIME_LENGTH = 10
_HASH_LENGTH = 16


class RequestId(NamedTuple):
    """The name of a request, the same at every try."""

    session: str
    number: int
    acknowledged_below: int = 0
    since: int | None = None

    def request(self, operation: AnyOperation) -> Request:
        """Give an operation this id."""
        return Request(operation, *self)

    def job_id(self, index: int) -> str:
        """The id of a job that it pushes: the same at every try, like no other job's."""
        name = f"{self.session}/{self.number}/{index}".encode()
        number = int.from_bytes(blake2b(name, digest_size=10).digest())
        return self.session[:_TIME_LENGTH] + crockford(number, _HASH_LENGTH)


def token_of(request: Request, version: int) -> str | None:
    """Name a request for its caller, who may send it again; ``version`` is the newest seen."""
    if not request.session:
        return None
    since = version if request.since is None else request.since
    return f"{_verb(type(request.operation))}.{request.session}.{request.number}.{since}"


def parse_token(token: object, operation: type[Operation]) -> RequestId:
    """Read a token that an error gave to a caller, who does the same operation again.

    Another operation under the same id would be answered as if it had been done.
    """
    found = _TOKEN.fullmatch(token) if isinstance(token, str) else None
    if found is None:
        shown = reprlib.repr(token)
        message = f"bad request {shown}: pass the `request` of an UnavailableError as it is"
        raise InvalidRequestError(message)
    if found[1] != _verb(operation):
        message = f"the request belongs to a {found[1]}: pass it to the verb that raised the error"
        raise InvalidRequestError(message)
    return RequestId(found[2], int(found[3]), since=int(found[4]))


def _verb(operation: type[Operation]) -> str:
    return operation.__name__.lower()


class RequestIds:
    """Gives ids to the requests of one client."""

    def __init__(self, clock: Clock) -> None:
        """Begin a session."""
        self._clock = clock
        self._session = new_id(clock)
        self._next = 1
        self._outstanding: dict[int, None] = {}

    def give(self) -> RequestId:
        """Make a new id."""
        number = self._next
        self._next += 1
        self._outstanding[number] = None
        floor = next(iter(self._outstanding))
        return RequestId(self._session, number, floor)

    def settle(self, request: RequestId) -> None:
        """Note that a request has been answered."""
        if request.session == self._session:
            self._outstanding.pop(request.number, None)

    def abandon(self, request: RequestId) -> None:
        """Note that a request's outcome stays unknown: go on under a new session."""
        if request.session == self._session:
            self._session = new_id(self._clock)
            self._next = 1
            self._outstanding = {}
