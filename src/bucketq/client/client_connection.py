"""``ClientConnection``: the committer at the other end of a stream, shared by all callers.

What callers ask for while a message is on its way travels together in the next one. When the
stream is lost, what became of the calls without an answer is unknown, and their callers get
``CommitterLostError``.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from bucketq.commit.base import CommitterLostError
from bucketq.commit.outcome_errors import unanswered
from bucketq.commit.request_ids import token_of
from bucketq.errors import AccessDeniedError, BucketQError, RejectedError, UnavailableError
from bucketq.model.operations import Claim, Release, ReleaseMany, Request, Withdraw
from bucketq.model.records import JobRecord
from bucketq.rpc.messages import Answer, Call, FlushArchive, Refusal
from bucketq.rpc.refusals import error_of
from bucketq.rpc.transport import Connection, ConnectionLostError

_log = logging.getLogger("bucketq.client")

_MAX_CALLS = 1000
"""How many calls travel in one message: enough to share its cost, and a few ms of work."""
_PORTION = 100
_FORGET = 0.98
"""What is left of a slow answer after each that is faster: a fifth after eighty."""
_ARCHIVE_S = 600.0
"""How long a broker may take to archive everything: a million jobs take a minute or two."""
_UNDO_S = 60.0
_LAST_MESSAGE_S = 0.2
"""How long closing waits for withdrawals to be sent; a broker that stalls does not hold it up."""


class DeniedError(CommitterLostError):
    """The broker asks for a token that this client has not shown; the request was not applied."""


class NotOfferedError(RejectedError):
    """The broker is older than this client and does not know the operation."""


class _Pending:
    """A call without an answer."""

    __slots__ = ("answer", "asked_at", "expires_at", "request", "version")

    def __init__(
        self,
        answer: asyncio.Future[Any],
        request: Request | FlushArchive,
        version: int,
        now_s: float,
        ttl_s: float,
    ) -> None:
        self.answer = answer
        self.request = request
        self.version = version
        self.asked_at = now_s
        self.expires_at = now_s + ttl_s

    @property
    def claim(self) -> Claim | None:
        """The claim, if it is one."""
        operation = self.request.operation if isinstance(self.request, Request) else None
        return operation if isinstance(operation, Claim) else None

    @property
    def withdraw(self) -> Withdraw | None:
        """What undoes it, if it is a claim."""
        if self.claim is None or not isinstance(self.request, Request):
            return None
        request = self.request
        return Withdraw(session=request.session, number=request.number, secret=self.claim.secret)

    def expired(self, where: str) -> Exception:
        """The error of a call whose time is over."""
        limit = f"in {self.expires_at - self.asked_at:g} s"
        if not isinstance(self.request, Request):
            return UnavailableError(f"{where} did not archive everything {limit}; try again")
        return unanswered(where, limit, "", self.request, self.version)

    def error_of(self, refusal: Refusal) -> BucketQError:
        """Read a refusal; only this side can name a token for a retry."""
        error = error_of(refusal)
        is_unknown = isinstance(error, UnavailableError) and refusal.is_repeatable
        if is_unknown and isinstance(self.request, Request):
            return UnavailableError(str(error), request=token_of(self.request, self.version))
        return error


class ClientConnection:
    """A stream to the broker of one queue."""

    def __init__(self, wire: Connection, address: str, where: str) -> None:
        """Take a wire that is open; ``where`` is what messages call the queue."""
        self.address = address
        self.where = where
        self.broker = wire.welcome.broker
        self.epoch = wire.welcome.epoch
        self._shows_token = wire.welcome.proof != b""
        self._releases_many = "release_many" in wire.welcome.operations
        self._withdraws = "withdraw" in wire.welcome.operations
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
        """When the broker was last heard of, by the loop's time."""
        self.answers_in_s = 0.0
        """How long slow answers take here; one that was slow once is forgotten slowly."""
        self._tasks = [
            self._loop.create_task(self._until_lost(self._send)),
            self._loop.create_task(self._until_lost(self._receive)),
        ]

    @property
    def mode(self) -> str:
        """How it commits, for people."""
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
        if type(operation) is ReleaseMany and not self._releases_many:
            message = f"the broker at {self.address} does not know release_many: upgrade it"
            raise NotOfferedError(message)
        wait_s = operation.wait_s if type(operation) is Claim else 0.0
        try:
            return await self._call(request, timeout_s + wait_s)
        except AccessDeniedError as error:
            if self._shows_token:
                raise
            # The queue has required tokens since we came: connect again and show one.
            raise DeniedError(str(error)) from error

    async def flush_archive(self) -> int:
        """Let the broker archive everything that is finished."""
        count: int = await self._call(FlushArchive(), _ARCHIVE_S)
        return count

    def _send_unanswered(self, operation: Withdraw | Release) -> None:
        """Send a request whose answer is of no interest."""
        self._tag += 1
        self._outbox.append(Call(self._tag, Request(operation), _UNDO_S))
        self._wake.set()

    @property
    def waits(self) -> bool:
        """Whether any call is without an answer."""
        return bool(self._pending)

    def waits_since(self) -> float | None:
        """Since when the oldest call waits that has no reason to wait; None: there is none."""
        return min(
            (
                pending.asked_at
                for pending in self._pending.values()
                if pending.claim is None or not pending.claim.wait_s
            ),
            default=None,
        )

    def expire(self, now_s: float) -> None:
        """Give up on calls whose time is over."""
        for tag in [t for t, pending in self._pending.items() if pending.expires_at <= now_s]:
            pending = self._pending.pop(tag)
            if not pending.answer.done():
                pending.answer.set_exception(pending.expired(self.where))

    def lose(self, reason: str) -> None:
        """Fail every call without an answer, and take no more."""
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
        """Withdraw the claims without an answer, and close the stream."""
        if self._lost is None:
            for pending in list(self._pending.values()):
                if (withdraw := pending.withdraw) is not None:
                    self._send_unanswered(withdraw)
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
        """Send or receive; however that ends, no caller is left waiting."""
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
            for place, answer in enumerate(answers.answers, start=1):
                self._settle(answer)
                if place % _PORTION == 0:
                    # Callers that have theirs send their next request, so the broker has work.
                    await asyncio.sleep(0)

    def _settle(self, answer: Answer) -> None:
        pending = self._pending.pop(answer.tag, None)
        if pending is not None and (pending.claim is None or not pending.claim.wait_s):
            took_s = self._loop.time() - pending.asked_at
            self.answers_in_s = max(took_s, _FORGET * self.answers_in_s)
        if pending is None:
            return
        if pending.answer.done():
            if pending.claim is not None and not self._withdraws:
                self._release_each(answer.value or ())
        elif answer.refusal is not None:
            pending.answer.set_exception(pending.error_of(answer.refusal))
        else:
            pending.answer.set_result(answer.value)

    def _release_each(self, records: Sequence[JobRecord]) -> None:
        """Release what a cancelled claim got; an older broker cannot be asked to withdraw it."""
        for record in records:
            self._send_unanswered(Release(job=record.id, lease=record.lease or ""))
