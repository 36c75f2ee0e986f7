"""``ClientConnection``: commits requests through a stream to a broker, shared by all callers.

Requests that are made while a message is being sent go together in the next one. When the stream is
lost, the outcome of calls without an answer is unknown, and their callers get
``CommitterLostError``.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from msgspec import Struct

from bucketq.client.older_brokers import (
    refuse_batch_filter,
    refuse_follow_ups,
    refuse_options,
    stage_inline,
    without_columns,
)
from bucketq.commit.base import CommitterLostError
from bucketq.commit.outcome_errors import unanswered
from bucketq.commit.request_ids import token_of
from bucketq.errors import AccessDeniedError, BucketQError, RejectedError, UnavailableError
from bucketq.model.numbered_batches import ClaimBatch, PrepareBatch, Publish
from bucketq.model.operations import (
    WAITING,
    Claim,
    Complete,
    CompleteMany,
    Fail,
    List,
    Push,
    Release,
    ReleaseMany,
    Request,
    Withdraw,
)
from bucketq.model.records import JobRecord
from bucketq.model.side_objects import StageObject
from bucketq.rpc.messages import Answer, Call, FlushArchive, Refusal
from bucketq.rpc.refusals import error_of
from bucketq.rpc.transport import Connection, ConnectionLostError

_log = logging.getLogger("bucketq.client")

_MAX_CALLS = 1000
"""How many calls go in one message: enough to share its cost, and a few ms of work."""
_PORTION = 100
"""After answers for how many jobs other tasks run: less than a millisecond of work."""
_SEVERAL = frozenset({list, tuple})
"""The types of answers for several jobs: calls that were joined, or a call for many jobs."""
_FORGET = 0.98
"""How much of the time of a slow answer remains after each faster one: a fifth after eighty."""
_ARCHIVE_S = 600.0
"""How long a broker may take to archive everything: a million jobs take a minute or two."""
_UNDO_S = 60.0
"""How long a broker may take to undo a claim: as long as a lease lasts by default."""
_OPTIONS = frozenset({"unique", "expiry", "groups", "follow_ups", "batches", "after"})
"""What older brokers would ignore of jobs and completions."""
_LAST_MESSAGE_S = 0.2
"""How long closing waits for withdrawals to be sent: a round trip, unless the broker stalls."""


class DeniedError(CommitterLostError):
    """The broker requires a token that this client has not shown; the request was not applied."""


class NotOfferedError(RejectedError):
    """The broker is older than this client and does not know the operation."""


class _Pending(Struct, eq=False):
    """A call without an answer."""

    answer: asyncio.Future[Any]
    request: Request | FlushArchive
    version: int
    asked_at: float
    ttl_s: float

    @property
    def claim(self) -> Claim | None:
        """The claim, if it is one."""
        operation = self.request.operation if isinstance(self.request, Request) else None
        return operation if isinstance(operation, Claim) else None

    @property
    def wait_s(self) -> float:
        """How long the broker may hold its answer back."""
        operation = self.request.operation if isinstance(self.request, Request) else None
        return operation.wait_s if isinstance(operation, WAITING) else 0.0

    @property
    def withdrawals(self) -> list[Withdraw]:
        """The operations that undo it, if it is a claim, or several that are joined."""
        request, claim = self.request, self.claim
        if claim is None or not isinstance(request, Request):
            return []
        numbers = request.numbers or (request.number,)
        return [
            Withdraw(session=request.session, number=number, secret=claim.secret)
            for number in numbers
        ]

    def expired(self, where: str) -> Exception:
        """Return the error of a call that has timed out."""
        limit = f"in {self.ttl_s:g} s"
        if not isinstance(self.request, Request):
            return UnavailableError(f"{where} did not archive everything {limit}; try again")
        return unanswered(where, limit, "", self.request, self.version)

    def error_of(self, refusal: Refusal) -> BucketQError:
        """Convert a refusal to an error, with the token for a retry, which only this side knows."""
        error = error_of(refusal)
        is_unknown = isinstance(error, UnavailableError) and refusal.is_repeatable
        if is_unknown and isinstance(self.request, Request):
            return UnavailableError(str(error), request=token_of(self.request, self.version))
        return error


class ClientConnection:
    """A stream to the broker of one queue."""

    def __init__(self, wire: Connection, address: str, where: str) -> None:
        """Take an open connection; ``where`` is the name of the queue in error messages."""
        self.address = address
        self.where = where
        self.broker = wire.welcome.broker
        self.epoch = wire.welcome.epoch
        self._shows_token = wire.welcome.proof != b""
        self._releases_many = "release_many" in wire.welcome.operations
        self._withdraws = "withdraw" in wire.welcome.operations
        self.joins = "joined" in wire.welcome.operations
        """Whether the broker takes several requests as one."""
        self._joins_batches = "joined_batches" in wire.welcome.operations
        self._snoozes = "snooze" in wire.welcome.operations
        self._acks_and_claims = "ack_and_claim" in wire.welcome.operations
        self._prepares = "prepare_batch" in wire.welcome.operations
        self._reads_columns = "columns" in wire.welcome.operations
        self._knows_payloads = "payloads" in wire.welcome.operations
        self._knows_options = set(wire.welcome.operations) >= _OPTIONS
        self._wire = wire
        self._loop = asyncio.get_running_loop()
        self._version = wire.welcome.version
        self._tag = 0
        self._outbox: list[Call] = []
        self._pending: dict[int, _Pending] = {}
        self._wake = asyncio.Event()
        self._lost: str | None = None
        self._is_closing = False
        self.heard_at = self._loop.time()
        """When the last message of the broker came, by the loop's time."""
        self.answers_in_s = 0.0
        """How long slow answers take; it decreases slowly while answers are faster."""
        self._tasks = [
            self._loop.create_task(self._until_lost(self._send)),
            self._loop.create_task(self._until_lost(self._receive)),
        ]

    @property
    def mode(self) -> str:
        """How it commits, as shown to people."""
        return f"broker at {self.address}"

    @property
    def is_open(self) -> bool:
        """Whether the stream is up."""
        return self._lost is None

    async def open(self) -> None:
        """Do nothing: the stream is open when the connection is made."""

    @property
    def version(self) -> int:
        """The newest version of the object that the broker has named."""
        return self._version

    async def submit(self, request: Request, timeout_s: float) -> Any:
        """Send a request, and wait for its answer."""
        operation = request.operation
        if (missing := self._not_offered(request)) is not None:
            raise NotOfferedError(
                f"the broker at {self.address} does not know {missing}: upgrade it"
            )
        if not self._knows_options:
            if isinstance(operation, Push | Publish):
                refuse_options(operation.jobs, self._wire.welcome.operations, self.address)
            elif isinstance(operation, Complete | CompleteMany):
                refuse_follow_ups(operation, self._wire.welcome.operations, self.address)
        if isinstance(operation, List):
            refuse_batch_filter(operation, self._wire.welcome.operations, self.address)
        if isinstance(operation, StageObject) and not self._knows_payloads:
            return stage_inline(operation, self.address)
        if not self._reads_columns and isinstance(operation, Push | CompleteMany):
            request = without_columns(request, operation)
        wait_s = operation.wait_s if isinstance(operation, WAITING) else 0.0
        try:
            return await self._call(request, timeout_s + wait_s)
        except AccessDeniedError as error:
            if self._shows_token:
                raise
            # The queue requires tokens since this connection was made: a new one shows it.
            raise DeniedError(str(error)) from error

    def _not_offered(self, request: Request) -> str | None:
        """Return the feature that an operation needs and the broker does not have; None: none."""
        operation = request.operation
        if request.numbers and not (self._joins_batches if request.counts else self.joins):
            return "requests that are joined"
        if type(operation) is ReleaseMany and not self._releases_many:
            return "release_many"
        if type(operation) is Fail and operation.snooze and not self._snoozes:
            return "snooze"
        if type(operation) is ClaimBatch and operation.acked and not self._acks_and_claims:
            return "ack_and_claim"
        if type(operation) is PrepareBatch and not self._prepares:
            return "prepare_batch"
        return None

    async def flush_archive(self) -> int:
        """Let the broker archive everything that is finished."""
        count: int = await self._call(FlushArchive(), _ARCHIVE_S)
        return count

    def _send_unanswered(self, operation: Withdraw | Release) -> None:
        """Send a request, and ignore its answer."""
        self._tag += 1
        self._outbox.append(Call(self._tag, Request(operation), _UNDO_S))
        self._wake.set()

    @property
    def waits(self) -> bool:
        """Whether any call has no answer yet."""
        return bool(self._pending)

    def waits_since(self) -> float | None:
        """Return when the oldest call was sent that should be answered at once; None: none."""
        return min(
            (pending.asked_at for pending in self._pending.values() if not pending.wait_s),
            default=None,
        )

    def expire(self, now_s: float) -> None:
        """Time out calls that have waited for too long."""
        late = [t for t, call in self._pending.items() if call.asked_at + call.ttl_s <= now_s]
        for tag in late:
            pending = self._pending.pop(tag)
            if not pending.answer.done():
                pending.answer.set_exception(pending.expired(self.where))

    def lose(self, reason: str) -> None:
        """Fail every call without an answer, and accept no more."""
        if self._lost is not None:
            return
        self._lost = reason
        self._outbox.clear()
        pending, self._pending = self._pending, {}
        for call in pending.values():
            if not call.answer.done():
                call.answer.set_exception(CommitterLostError(reason))
        self._wake.set()

    async def close(self) -> None:
        """Withdraw claims without an answer, and close the stream."""
        if self._lost is None:
            for pending in list(self._pending.values()):
                for withdrawal in pending.withdrawals:
                    self._send_unanswered(withdrawal)
            self._is_closing = True
            self._wake.set()
            await asyncio.wait([self._tasks[0]], timeout=_LAST_MESSAGE_S)
        self.lose("it was closed")
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._wire.close()

    async def _call(self, request: Request | FlushArchive, ttl_s: float) -> Any:
        if self._lost is not None:
            raise CommitterLostError(self._lost)
        self._tag = tag = self._tag + 1
        answer = self._loop.create_future()
        self._pending[tag] = _Pending(answer, request, self._version, self._loop.time(), ttl_s)
        self._outbox.append(Call(tag, request, ttl_s))
        self._wake.set()
        return await answer

    async def _until_lost(self, talk: Callable[[], Awaitable[None]]) -> None:
        """Send or receive until that fails, so that no caller waits for ever."""
        try:
            await talk()
        except ConnectionLostError as error:
            self.lose(str(error))
        except Exception as error:  # noqa: BLE001 - callers must get it, whatever it is
            _log.exception("the connection to %s failed", self.address)
            self.lose(f"the connection to {self.address} failed: {error!r}")

    async def _send(self) -> None:
        while self._lost is None:
            await self._wake.wait()
            self._wake.clear()
            while self._outbox:
                calls = self._outbox[:_MAX_CALLS]
                del self._outbox[:_MAX_CALLS]
                await self._wire.send(calls)
            if self._is_closing:
                return

    async def _receive(self) -> None:
        while True:
            answers = await self._wire.receive()
            self.heard_at = self._loop.time()
            self._version = max(self._version, answers.version)
            jobs = 0
            for answer in answers.answers:
                self._settle(answer)
                jobs += len(answer.value) if type(answer.value) in _SEVERAL else 1
                if jobs >= _PORTION:
                    jobs = 0
                    # Callers that have their answers send the next requests, for the broker to do.
                    await asyncio.sleep(0)

    def _settle(self, answer: Answer) -> None:
        pending = self._pending.pop(answer.tag, None)
        if pending is None:
            return
        claim = pending.claim
        if not pending.wait_s:
            took_s = self._loop.time() - pending.asked_at
            self.answers_in_s = max(took_s, _FORGET * self.answers_in_s)
        if pending.answer.done():
            if claim is not None and not self._withdraws:
                self._release_each(answer.value or ())
        elif answer.refusal is not None:
            pending.answer.set_exception(pending.error_of(answer.refusal))
        else:
            pending.answer.set_result(answer.value)

    def _release_each(self, records: Sequence[JobRecord]) -> None:
        """Release the jobs of a cancelled claim: an older broker cannot withdraw it."""
        for record in records:
            self._send_unanswered(Release(job=record.id, lease=record.lease or ""))
