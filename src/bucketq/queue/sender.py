"""``Sender``: gives requests their ids, sends them to the committer, and tracks their outcome.

All verbs of a queue use it. It raises ``ClosedError`` if a request could only hang: if the queue is
closed, or is used in a forked process or another event loop.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable
from contextlib import suppress
from hashlib import blake2b
from typing import Any

from msgspec.structs import replace

from bucketq.clock import Clock
from bucketq.commit.base import Committer
from bucketq.commit.outcome_errors import closed, rejected_repeat
from bucketq.commit.request_ids import RequestId, RequestIds, is_unjudged, parse_token, token_of
from bucketq.commit.upkeep.background import Background
from bucketq.errors import BucketQError, ClosedError, RejectedError, UnavailableError
from bucketq.model import operations as ops
from bucketq.queue.joined_calls import ALONE, JoinedCall, JoinedCalls

_KEY_BYTES = 32
"""A key of 256 bits, so that no secret can be guessed from another."""
_SECRET_BYTES = 16
"""As many as ``clock.new_token`` returns."""


class Sender:
    """Sends the requests of one queue."""

    def __init__(self, committer: Committer, clock: Clock, timeout_s: float) -> None:
        """Send to ``committer``, and wait up to ``timeout_s`` for each answer."""
        self.clock = clock
        self._committer = committer
        self.timeout_s = timeout_s
        self._ids = RequestIds(clock)
        self._joined = JoinedCalls(committer, timeout_s)
        self._idle_sessions: list[RequestIds] = []
        """Sessions for claims that wait, one claim each: in the shared session, the number of a
        claim that waits for an hour would be the lowest one without an answer for that hour."""
        self._secret_key = b""
        """Secrets of claims are derived from it; it is made when it is first needed."""
        self._last_secret = ("", "")
        """A session, and the secret of its claims."""
        self._background = Background()
        self._process = os.getpid()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._is_closed = False

    async def open(self) -> None:
        """Open the committer, and begin to send."""
        await self._committer.open()
        self._loop = asyncio.get_running_loop()
        self._is_closed = False

    async def close(self) -> None:
        """Undo cancelled claims, let the committer settle what was sent, and send no more."""
        if os.getpid() != self._process:
            return  # A forked child has none of the threads, and the requests belong to its parent.
        await asyncio.sleep(0)  # Callers that were just cancelled may have claims to undo.
        await self._background.finish(self.timeout_s)
        self._is_closed = self._loop is not None
        await self._committer.close()
        await self._joined.close()

    @property
    def where(self) -> str:
        """What messages call the queue."""
        return self._committer.where

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The loop on which the queue was opened."""
        if self._is_closed or self._loop is None:
            raise closed(self._committer.where)
        return self._loop

    def check_open(self) -> None:
        """Raise ``ClosedError`` if a request could only hang."""
        is_here = os.getpid() == self._process and not self._is_closed
        if not is_here or asyncio.get_running_loop() is not self._loop:
            raise self._unusable()

    def _unusable(self) -> ClosedError:
        """Return why a request could only hang."""
        where = self._committer.where
        if os.getpid() != self._process:
            message = (
                f"the queue {where} was opened by process {self._process} and is used in "
                f"{os.getpid()}: connect again after a fork"
            )
            return ClosedError(message)
        if self._is_closed:
            return closed(where)
        if self._loop is None:
            message = f"the queue {where} is not open yet: use `async with bucketq.connect(...)`"
            return ClosedError(message)
        message = (
            f"the queue {where} belongs to another event loop: connect in the loop "
            "that uses it, or use `bucketq.connect_sync`"
        )
        return ClosedError(message)

    def new_id(self, operation: type[ops.AnyOperation], token: str | None) -> RequestId:
        """Make an id for a request, or decode it from the token of a retry."""
        self.check_open()
        if token is not None:
            return parse_token(token, operation)
        return self._ids.give(self._joined.made_ms)

    def drop_id(self, request_id: RequestId) -> None:
        """Note that a request was never sent."""
        self._ids.settle(request_id)

    def not_sent(
        self, request_id: RequestId, operation: ops.AnyOperation, error: UnavailableError
    ) -> UnavailableError:
        """Return the error of a request that was not sent, because what it needs is unavailable.

        It has the token of this request: an earlier try may have been sent.
        """
        self._ids.abandon(request_id)
        token = token_of(request_id.request(operation), self._committer.version)
        return UnavailableError(str(error), request=token)

    async def send(self, operation: ops.AnyOperation, token: str | None = None) -> Any:
        """Give an operation its id, send it, and return its answer."""
        self.check_open()
        if isinstance(operation, ops.REPEATABLE):
            return await self._committer.submit(ops.Request(operation), self.timeout_s)
        return await self.send_as(self.new_id(type(operation), token), operation)

    def send_later(self, operation: ops.AnyOperation) -> None:
        """Send an operation in the background; closing waits for it, and its errors are ignored."""
        self._background.start(self._send_ignored(operation))

    async def _send_ignored(self, operation: ops.AnyOperation) -> None:
        with suppress(BucketQError):
            await self.send(operation)

    def send_claim(self, claim: ops.Claim, token: str | None) -> Awaitable[Any]:
        """Give a claim its id and its secret, send it, and return its answer."""
        self.check_open()
        ids = self._ids
        if token is None and claim.wait_s:
            ids = self._idle_sessions.pop() if self._idle_sessions else RequestIds(self.clock)
        if token is None:
            request_id = ids.give(self._joined.made_ms)
        else:
            request_id = parse_token(token, ops.Claim)
        secret = self._secret(request_id.session)
        return self._send_as(request_id, replace(claim, secret=secret), ids)

    def send_as(self, request_id: RequestId, operation: ops.AnyOperation) -> Awaitable[Any]:
        """Send an operation under an id, and return its answer."""
        return self._send_as(request_id, operation, self._ids)

    async def _send_as(
        self, request_id: RequestId, operation: ops.AnyOperation, ids: RequestIds
    ) -> Any:
        joined: JoinedCall | None = None
        if self._committer.joins:
            joined = self._joined.add(request_id, operation)
        try:
            answer = ALONE if joined is None else await joined.answer
            if answer is ALONE:
                request = request_id.request(operation)
                answer = await self._committer.submit(request, self.timeout_s)
        except RejectedError as error:
            request = request_id.request(operation)
            if is_unjudged(error, request):
                self._abandon(request_id, ids)
                raise rejected_repeat(self._committer.where, request, error) from error
            self._settle(request_id, ids)
            raise
        except asyncio.CancelledError:
            if isinstance(operation, ops.Claim):
                self._background.start(self._withdraw(request_id, operation, ids, joined))
            else:
                self._abandon(request_id, ids)
            raise
        except BaseException:
            # The outcome is unknown, or this is a bug: no answer will come under this id.
            self._abandon(request_id, ids)
            raise
        self._settle(request_id, ids)
        return answer

    def _secret(self, session: str) -> str:
        """Derive the secret of a session's claims, so that any try of any of them can be undone.

        No other process can derive it from the id of a request.
        """
        if self._last_secret[0] != session:
            if not self._secret_key:
                self._secret_key = self.clock.entropy(_KEY_BYTES)
            made = blake2b(session.encode(), digest_size=_SECRET_BYTES, key=self._secret_key)
            self._last_secret = session, made.hexdigest()
        return self._last_secret[1]

    async def _withdraw(
        self,
        request_id: RequestId,
        claim: ops.Claim,
        ids: RequestIds,
        joined: JoinedCall | None,
    ) -> None:
        """Undo a claim whose caller was cancelled: the jobs that it got are released.

        If that fails, their leases run out by themselves.
        """
        try:
            if joined is not None:
                await joined.group.is_over.wait()  # A withdrawal must not overtake its claim.
            undo = ops.Withdraw(
                session=request_id.session, number=request_id.number, secret=claim.secret
            )
            await self._committer.submit(ops.Request(undo), self.timeout_s)
        except BaseException:
            self._abandon(request_id, ids)
            raise
        self._settle(request_id, ids)

    def _settle(self, request_id: RequestId, ids: RequestIds) -> None:
        ids.settle(request_id)
        self._keep(ids)

    def _abandon(self, request_id: RequestId, ids: RequestIds) -> None:
        ids.abandon(request_id)
        self._keep(ids)

    def _keep(self, ids: RequestIds) -> None:
        if ids is not self._ids:
            self._idle_sessions.append(ids)
