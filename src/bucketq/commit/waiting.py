"""A request that has not been answered yet, and how its answer is handed over.

Group commit holds requests as ``Waiting`` and does not know who asked: a caller of this process
awaits a future; a client of a broker gets its answer in the next message of its connection.
"""

from __future__ import annotations

import asyncio
from math import inf
from typing import Any

from bucketq.model.numbered_batches import Publish, ReadBatch
from bucketq.model.operations import CLAIMS, Claim, List, Push, ReadSnapshot, Request
from bucketq.model.transitions import Applied

_ROW_BYTES = 128
"""What a row of an answer is counted with. An answer holds references to rows until it is encoded,
and short-lived encoded ones after that."""
_MOST_ROWS = 100_000
"""No queue answers more at once, however its ``max_batch_jobs`` is set."""
_SNAPSHOT_BYTES = 4 * 1024 * 1024
"""The same for a whole queue, of which the size is not known when it is asked for: 64 may wait at
once (256 MiB)."""


class Waiting:
    """A request that has not been answered yet."""

    __slots__ = ("applied", "expires_at", "request", "since", "size_bytes", "until")

    def __init__(self, request: Request, since: int, now_s: float) -> None:
        """Note a request that came when ``since`` was the newest version known in the object."""
        self.request = request
        self.since = since if request.since is None else min(since, request.since)
        self.applied: Applied | None = None
        self.size_bytes = _size_bytes(request)
        operation = request.operation
        self.until = now_s + operation.wait_s if type(operation) is Claim else 0.0
        """How long a claim may be parked."""
        self.expires_at = inf
        """When its client gives up, by the loop's time, if that is known."""

    @property
    def owner(self) -> object:
        """Who asked, if that is known: reads of different owners take turns."""
        return None

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kinds that a claim wants."""
        operation = self.request.operation
        return operation.kinds if isinstance(operation, Claim) else ()

    @property
    def secret(self) -> str:
        """The secret of a claim."""
        operation = self.request.operation
        return operation.secret if isinstance(operation, Claim) else ""

    @property
    def is_in_vain(self) -> bool:
        """Whether it is a claim that found nothing."""
        is_claim = type(self.request.operation) in CLAIMS
        return is_claim and self.applied is not None and not self.applied.changes

    @property
    def is_resolved(self) -> bool:
        """Whether it was answered, or its caller no longer waits."""
        raise NotImplementedError

    def resolve(self, answer: Any, error: Exception | None) -> None:
        """Hand over the answer, or the reason why there is none."""
        raise NotImplementedError


class Caller(Waiting):
    """A request of this process, whose caller awaits a future."""

    __slots__ = ("answer",)

    def __init__(self, request: Request, since: int, loop: asyncio.AbstractEventLoop) -> None:
        """Make the future; it is this caller's alone."""
        super().__init__(request, since, loop.time())
        self.answer: asyncio.Future[Any] = loop.create_future()

    @property
    def is_resolved(self) -> bool:
        """Whether he was answered, was cancelled or has given up."""
        return self.answer.done()

    def resolve(self, answer: Any, error: Exception | None) -> None:
        """Wake him, unless he has gone."""
        if self.answer.done():
            return
        if error is not None:
            self.answer.set_exception(error)
        else:
            self.answer.set_result(answer)


def _size_bytes(request: Request) -> int:
    operation = request.operation
    if isinstance(operation, Push | Publish):
        return sum(len(memoryview(job.payload)) for job in operation.jobs)
    if isinstance(operation, List | ReadBatch):
        # Whether the limit makes sense is found out when it is read.
        limit: object = operation.limit
        return _ROW_BYTES * min(max(0, limit), _MOST_ROWS) if isinstance(limit, int) else 0
    return _SNAPSHOT_BYTES if isinstance(operation, ReadSnapshot) else 0
