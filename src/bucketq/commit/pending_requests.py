"""Requests without an answer, and the ``Backlog`` of them that group commit has.

A committer does not know where a ``PendingRequest`` came from: the caller of a ``LocalRequest``
awaits a future, and a broker's client gets its answer in the next message of its connection.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Iterator
from itertools import chain
from math import inf
from typing import Any

from msgspec.structs import replace

from bucketq.errors import OverloadedError
from bucketq.model.history import is_asked
from bucketq.model.numbered_batches import Publish, ReadBatch
from bucketq.model.operations import (
    CLAIMS,
    WAITING,
    Claim,
    List,
    Push,
    ReadSnapshot,
    Request,
    Withdraw,
)
from bucketq.model.transitions import Applied
from bucketq.tracing import find_tracer

MAX_PENDING = 20_000
"""As many as fit in one message of a client."""
MAX_PENDING_BYTES = 256 * 1024 * 1024
"""Payloads in memory: two of the largest requests."""
_ROW_BYTES = 128
"""The estimated size of a row of an answer: until it is encoded, an answer holds references to
rows."""
_MOST_ROWS = 100_000
"""No queue answers more at once, even if its ``max_batch_jobs`` is larger."""
_SNAPSHOT_BYTES = 4 * 1024 * 1024
"""The estimated size of a snapshot, which is not known when it is requested: 64 may be pending at
once (256 MiB)."""


class PendingRequest:
    """A request without an answer."""

    __slots__ = ("applied", "expires_at", "request", "since", "size_bytes", "until")

    def __init__(self, request: Request, since: int, now_s: float) -> None:
        """Note a request that came when ``since`` was the newest version known in the object."""
        self.request = request
        self.since = since if request.since is None else min(since, request.since)
        self.applied: Applied | None = None
        self.size_bytes = _size_bytes(request)
        operation = request.operation
        self.until = now_s + operation.wait_s if isinstance(operation, WAITING) else 0.0
        """How long a claim or a wait may be parked."""
        self.expires_at = inf
        """When its client stops waiting, by the loop's time, if that is known."""

    @property
    def owner(self) -> object:
        """The client that sent it, if known: reads of different owners take turns."""
        return None

    @property
    def by(self) -> str:
        """What the history calls the sender; empty: not known."""
        return ""

    @property
    def is_in_vain(self) -> bool:
        """Whether it is a claim that found no job."""
        is_claim = type(self.request.operation) in CLAIMS
        return is_claim and self.applied is not None and not self.applied.changes

    @property
    def is_resolved(self) -> bool:
        """Whether it was answered, or its caller no longer waits."""
        raise NotImplementedError

    def resolve(self, answer: Any, error: Exception | None) -> None:
        """Answer it, unless it was answered."""
        raise NotImplementedError


class LocalRequest(PendingRequest):
    """A request of this process, whose caller awaits a future."""

    __slots__ = ("_by", "answer", "timeout_s")

    def __init__(
        self, request: Request, since: int, loop: asyncio.AbstractEventLoop, by: str = ""
    ) -> None:
        super().__init__(request, since, loop.time())
        self._by = by
        self.answer: asyncio.Future[Any] = loop.create_future()
        self.timeout_s = inf
        """How long its caller waits for the answer."""

    @property
    def by(self) -> str:
        """User and host of this process, for requests of its callers."""
        return self._by if self.request.session or is_asked(self.request.operation) else ""

    @property
    def is_resolved(self) -> bool:
        """Whether it was answered, or its caller was cancelled or timed out."""
        return self.answer.done()

    def resolve(self, answer: Any, error: Exception | None) -> None:
        """Answer it, unless its caller no longer waits."""
        if self.answer.done():
            return
        if error is not None:
            self.answer.set_exception(error)
        else:
            self.answer.set_result(answer)


def callers(requests: Iterable[PendingRequest]) -> int:
    """How many callers wait for these: several for each that is joined from several requests."""
    return sum([len(pending.request.numbers) or 1 for pending in requests])


class Backlog:
    """The pending requests of one queue: the batch that collects, and the one in flight.

    Both are bounded together, by their number and by the bytes that they hold. Both are
    dictionaries without values, because any of thousands of requests may be the next that leaves.
    """

    def __init__(self) -> None:
        self.batch: dict[PendingRequest, None] = {}
        """What the next write will contain, in the order in which it came."""
        self.in_flight: dict[PendingRequest, None] = {}
        """What the current write contains, or the read that confirms it."""
        self.waiting: dict[int, PendingRequest] = {}
        """What waits for rows of segments, by its identity."""
        self.size_bytes = 0

    def __len__(self) -> int:
        return len(self.batch) + len(self.in_flight) + len(self.waiting)

    def __iter__(self) -> Iterator[PendingRequest]:
        """All of them, in the order in which they are answered."""
        return chain(self.in_flight, self.batch, self.waiting.values())

    @property
    def is_awaited(self) -> bool:
        """Whether a caller still waits for one of them."""
        return any(not pending.is_resolved for pending in self)

    def admit(self, pending: PendingRequest, where: str, retry_after_s: float) -> None:
        """Raise ``OverloadedError`` if it is full; a request that is alone always fits."""
        count = len(self)
        too_large = self.size_bytes + pending.size_bytes > MAX_PENDING_BYTES
        if count >= MAX_PENDING or (too_large and count):
            message = (
                f"{count} requests ({self.size_bytes:,} bytes) wait to be written to {where} "
                "already: wait for some answers before you send more"
            )
            raise OverloadedError(message, retry_after_s=retry_after_s)

    def add(self, pending: PendingRequest) -> None:
        """Add a request to the batch."""
        self.size_bytes += pending.size_bytes
        self.batch[pending] = None

    def drop(self, pending: PendingRequest) -> None:
        """Remove a request from the batch."""
        del self.batch[pending]
        self.size_bytes -= pending.size_bytes

    def send(self) -> None:
        """Move the batch in flight."""
        self.in_flight, self.batch = self.batch, {}

    def note_sent(self, version: int) -> None:
        """Note that what is in flight may have been applied since a version of the object."""
        for pending in self.in_flight:
            since = min(pending.since, version)
            pending.request = replace(pending.request, since=since)

    def traceparents(self) -> list[str]:
        """Return the spans of the pushes in flight, if this program traces."""
        if find_tracer() is None:
            return []
        pushes = (each.request.operation for each in self.in_flight)
        jobs = (job for push in pushes if isinstance(push, Push) for job in push.jobs)
        return list(dict.fromkeys(job.traceparent for job in jobs if job.traceparent is not None))

    def put_back(self) -> None:
        """Move what is in flight back into the batch, before what came later."""
        self.batch = self.in_flight | self.batch
        self.in_flight = {}

    def postpone(self, some: list[PendingRequest]) -> None:
        """Move some of what is in flight back into the batch, before what came later."""
        for pending in some:
            del self.in_flight[pending]
        if some:
            self.batch = dict.fromkeys(some) | self.batch

    def set_aside(self, pending: PendingRequest) -> None:
        """Let a request of the batch, or one in flight, wait for rows of segments."""
        self._take_out(pending)
        self.waiting[id(pending)] = pending

    def take_back(self, pending: PendingRequest) -> bool:
        """Remove a request that waited for rows; return whether it was still there."""
        if self.waiting.pop(id(pending), None) is None:
            return False
        self.size_bytes -= pending.size_bytes
        return True

    def remove(self, some: list[PendingRequest]) -> None:
        """Remove some, in flight or not; those that were removed before are ignored."""
        for pending in some:
            self._take_out(pending)
            self.waiting.pop(id(pending), None)
        self.size_bytes = sum(pending.size_bytes for pending in self)

    def take_in_vain(self, withdraw: Withdraw) -> list[PendingRequest]:
        """Return the copies of a claim that wait for rows, or found nothing: they never will.

        Those that found nothing are removed.
        """
        found = [each for each in self if _is_withdrawn(each.request, withdraw)]
        self.remove([each for each in found if each.is_in_vain])
        return [each for each in found if each.is_in_vain or id(each) in self.waiting]

    def split(self, operations: Collection[type]) -> list[PendingRequest]:
        """Remove those with one of these operations from what is in flight, and return them."""
        found = [each for each in self.in_flight if type(each.request.operation) in operations]
        for each in found:
            del self.in_flight[each]
        return found

    def settle(self) -> list[PendingRequest]:
        """Remove what is in flight, and return it."""
        settled, self.in_flight = self.in_flight, {}
        self.size_bytes -= sum(pending.size_bytes for pending in settled)
        return list(settled)

    def clear(self) -> list[PendingRequest]:
        """Remove everything, and return it."""
        self.put_back()
        left = [*self.batch, *self.waiting.values()]
        self.batch, self.waiting, self.size_bytes = {}, {}, 0
        return left

    def _take_out(self, pending: PendingRequest) -> None:
        self.in_flight.pop(pending, None)
        self.batch.pop(pending, None)


def _is_withdrawn(request: Request, withdraw: Withdraw) -> bool:
    """Whether this is the claim to be undone; one that is joined is that of other callers, too."""
    operation = request.operation
    if type(operation) is not Claim or request.numbers:
        return False
    return operation.secret == withdraw.secret and request.number == withdraw.number


def _size_bytes(request: Request) -> int:
    operation = request.operation
    if isinstance(operation, Push | Publish):
        return sum(len(job.payload) for job in operation.jobs)
    if isinstance(operation, List | ReadBatch):
        # Whether the limit is valid is checked when it is applied.
        limit: object = operation.limit
        return _ROW_BYTES * min(max(0, limit), _MOST_ROWS) if isinstance(limit, int) else 0
    return _SNAPSHOT_BYTES if isinstance(operation, ReadSnapshot) else 0
