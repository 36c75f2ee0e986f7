"""The ways a client's requests can go: to a broker, to one in this process, or to the object.

A route takes a request as it is, ids and all, so the same request can go another way when one is
lost, to the effect of one. ``RouteLostError`` means: nothing is known of it, try another way.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol, cast

from bucketq.broker.leader import Leader
from bucketq.commit.request_ids import token_of
from bucketq.commit.waiting import Caller
from bucketq.errors import (
    AccessDeniedError,
    BucketQError,
    ClosedError,
    RejectedError,
    SupersededError,
    UnavailableError,
)
from bucketq.model.job import JobRecord
from bucketq.model.operations import Claim, ReleaseMany, Request, Withdraw
from bucketq.queue.direct import DirectQueue
from bucketq.rpc.messages import Answer, Call, FlushArchive, Refusal
from bucketq.rpc.refusals import error_of
from bucketq.rpc.transport import Connection, ConnectionLostError

_log = logging.getLogger("bucketq.client")

_MAX_CALLS = 1000
_PORTION = 100
_ARCHIVE_S = 600.0
_WITHDRAW_S = 60.0
_LAST_MESSAGE_S = 0.2
"""How long closing waits for withdrawals to be sent; a broker that stalls does not hold it up."""


class RouteLostError(Exception):
    """This way is closed; what was sent on it may have taken effect."""


class TurnedAwayError(RouteLostError):
    """This way is closed to us; what was sent on it has not taken effect."""


class NotOfferedError(RejectedError):
    """The broker is older than this client and does not know the operation."""


class Route(Protocol):
    """One way to commit requests."""

    @property
    def is_up(self) -> bool:
        """Whether it makes sense to send anything this way."""
        ...

    @property
    def version(self) -> int:
        """The newest version of the object that was heard of on this way."""
        ...

    async def submit(self, request: Request, ttl_s: float) -> Any:
        """Commit a request; raises ``TimeoutError`` where the time is over."""
        ...

    async def flush_archive(self) -> int:
        """Archive everything that is finished."""
        ...

    def withdraw(self, claim: Claim) -> None:
        """Let a claim wait no longer."""
        ...

    def late_answer(self, claim: Claim) -> asyncio.Future[Any] | None:
        """The answer that is still to come to a claim whose caller was cancelled, if any."""
        ...

    async def close(self) -> None:
        """Leave this way."""
        ...


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

    def error_of(self, refusal: Refusal) -> BucketQError:
        """Read a refusal; only this side knows how to name a request that may be repeated."""
        error = error_of(refusal)
        is_unknown = isinstance(error, UnavailableError) and refusal.is_repeatable
        if is_unknown and isinstance(self.request, Request):
            return UnavailableError(str(error), request=token_of(self.request, self.version))
        return error


class BrokerRoute:
    """A conversation with a broker, shared by all callers of this process.

    What callers ask for while a message is on its way travels together in the next one.
    """

    def __init__(
        self,
        wire: Connection,
        address: str,
        on_stray_jobs: Callable[[Sequence[JobRecord]], None],
    ) -> None:
        """Take a wire that is open.

        Jobs that were handed out to a claim that nobody waits for any more go to
        ``on_stray_jobs``.
        """
        self.address = address
        self.broker = wire.welcome.broker
        self._shows_token = wire.welcome.proof != b""
        self._releases_many = "release_many" in wire.welcome.operations
        self._wire = wire
        self._on_stray_jobs = on_stray_jobs
        self._loop = asyncio.get_running_loop()
        self._version = wire.welcome.version
        self._tag = 0
        self._outbox: list[Call] = []
        self._pending: dict[int, _Pending] = {}
        self._strays: dict[int, None] = {}
        self._wake = asyncio.Event()
        self._lost: str | None = None
        self._is_closing = False
        self.heard_at = self._loop.time()
        """When the broker was last heard of, by the loop's time."""
        self._tasks = [
            self._loop.create_task(self._until_lost(self._send)),
            self._loop.create_task(self._until_lost(self._receive)),
        ]

    @property
    def is_up(self) -> bool:
        """Whether the conversation goes on."""
        return self._lost is None

    @property
    def version(self) -> int:
        """The newest version of the object that the broker has told of."""
        return self._version

    async def submit(self, request: Request, ttl_s: float) -> Any:
        """Send a request, and wait for its answer."""
        if type(request.operation) is ReleaseMany and not self._releases_many:
            message = f"the broker at {self.address} does not know release_many: upgrade it"
            raise NotOfferedError(message)
        try:
            return await self._call(request, ttl_s)
        except AccessDeniedError as error:
            if self._shows_token:
                raise
            # The queue asks for tokens since we came: look again, and hear so or do without.
            raise TurnedAwayError(str(error)) from error

    async def flush_archive(self) -> int:
        """Let the broker archive everything that is finished."""
        count: int = await self._call(FlushArchive(), _ARCHIVE_S)
        return count

    def withdraw(self, claim: Claim) -> None:
        """Let a claim wait no longer: the broker releases what it gets all the same.

        A broker that does not know ``Withdraw`` lets the claim wait on; what it sends is a stray.
        """
        for tag, pending in self._pending.items():
            found = pending.claim
            if found is not None and found.secret == claim.secret:
                del self._pending[tag]
                self._strays[tag] = None
                if not pending.answer.done():
                    pending.answer.set_result(())
                self._send_withdrawal(cast("Request", pending.request), claim.secret)
                return

    def _send_withdrawal(self, claim: Request, secret: str) -> None:
        """Send a ``Withdraw`` after a claim; its answer is of no interest."""
        withdraw = Withdraw(session=claim.session, number=claim.number, secret=secret)
        self._tag += 1
        self._outbox.append(Call(self._tag, Request(withdraw), _WITHDRAW_S))
        self._wake.set()

    def late_answer(self, claim: Claim) -> asyncio.Future[Any] | None:
        """Let somebody else wait for the answer to a claim whose caller was cancelled."""
        for pending in self._pending.values():
            if pending.claim is claim and pending.answer.cancelled():
                pending.answer = self._loop.create_future()
                return pending.answer
        return None

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
                pending.answer.set_exception(TimeoutError())

    def lose(self, reason: str) -> None:
        """Tell every caller that this way is closed."""
        if self._lost is not None:
            return
        self._lost = reason
        self._outbox.clear()
        pending, self._pending = self._pending, {}
        for call in pending.values():
            if not call.answer.done():
                call.answer.set_exception(RouteLostError(reason))
        self._wake.set()

    async def close(self) -> None:
        """End the conversation, once claims that wait for an answer have been withdrawn."""
        if self._lost is None:
            for pending in self._pending.values():
                if (claim := pending.claim) is not None:
                    self._send_withdrawal(cast("Request", pending.request), claim.secret)
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
            raise RouteLostError(self._lost)
        self._tag = tag = self._tag + 1
        answer = self._loop.create_future()
        self._pending[tag] = _Pending(answer, request, self._version, self._loop.time(), ttl_s)
        self._outbox.append(Call(tag, request, ttl_s))
        self._wake.set()
        return await answer

    async def _until_lost(self, talk: Callable[[], Awaitable[None]]) -> None:
        """Send or receive; however that ends, no caller waits for an answer any longer."""
        try:
            await talk()
        except ConnectionLostError as error:
            self.lose(str(error))
        except Exception as error:  # noqa: BLE001 - callers must hear, whatever it is
            _log.exception("the conversation with %s failed", self.address)
            self.lose(f"the conversation with {self.address} failed: {error!r}")

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
                    # Let those go on who have theirs, so that the broker has work meanwhile.
                    await asyncio.sleep(0)

    def _settle(self, answer: Answer) -> None:
        pending = self._pending.pop(answer.tag, None)
        if pending is None:
            if self._strays.pop(answer.tag, 0) is None and answer.value:
                self._on_stray_jobs(answer.value)
            return
        if pending.answer.done():
            if pending.claim is not None and answer.value:
                self._on_stray_jobs(answer.value)
        elif answer.refusal is not None:
            pending.answer.set_exception(pending.error_of(answer.refusal))
        else:
            pending.answer.set_result(answer.value)


class LeaderRoute:
    """The broker that runs in this process: no message is needed to reach it."""

    def __init__(self, leader: Leader) -> None:
        """Take a leader that is open; it belongs to its broker."""
        self._leader = leader

    @property
    def is_up(self) -> bool:
        """Whether it still leads."""
        return self._leader.is_leading

    @property
    def version(self) -> int:
        """The newest version that it has seen or written."""
        return self._leader.version

    async def submit(self, request: Request, ttl_s: float) -> Any:
        """Commit a request."""
        loop = asyncio.get_running_loop()
        waiting = Caller(request, self._leader.version, loop)
        waiting.expires_at = loop.time() + ttl_s
        try:
            self._leader.admit(waiting)
            self._leader.accept(waiting)
            async with asyncio.timeout(ttl_s):
                return await waiting.answer
        except (SupersededError, ClosedError) as error:
            raise RouteLostError(str(error)) from error

    async def flush_archive(self) -> int:
        """Archive everything that is finished."""
        try:
            return await self._leader.flush_archive()
        except (SupersededError, ClosedError) as error:
            raise RouteLostError(str(error)) from error

    def withdraw(self, claim: Claim) -> None:
        """Let a claim wait no longer."""
        self._leader.withdraw(claim)

    def late_answer(self, claim: Claim) -> None:
        """Claims that go this way have a task of their own, which waits on."""

    async def close(self) -> None:
        """Leave it to its broker."""


class DirectRoute:
    """No broker: every request is a compare-and-set of the object."""

    is_up = True

    def __init__(self, queue: DirectQueue[Any]) -> None:
        """Take a direct queue that is open; it is closed with the route."""
        self._queue = queue

    @property
    def version(self) -> int:
        """The newest version that it has seen or written."""
        return self._queue.version

    @property
    def sees_broker(self) -> bool:
        """Whether the object names a broker by now."""
        return self._queue.sees_broker

    async def submit(self, request: Request, ttl_s: float) -> Any:
        """Commit a request; the queue has the time limit of the client."""
        del ttl_s
        return await self._queue.submit(request)

    async def flush_archive(self) -> int:
        """Archive everything that is finished."""
        return await self._queue.flush_archive()

    def withdraw(self, claim: Claim) -> None:
        """Let a claim wait no longer."""
        self._queue.withdraw(claim)

    def late_answer(self, claim: Claim) -> None:
        """Claims that go this way have a task of their own, which waits on."""

    async def close(self) -> None:
        """Close the queue."""
        await self._queue.__aexit__()
