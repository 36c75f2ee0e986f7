"""Limits for a listener: on all calls, and stricter ones before a token was shown.

A client that has not shown a token yet is a *stranger*. gRPC buffers the message that a client is
sending, so each stranger may cost the broker one message of the largest size. Only a few of them
are read from at once, the others wait for their turn; what they have sent meanwhile stays within
the window of their stream. While others wait, a stranger keeps its place for a moment only: an
honest client needs milliseconds to introduce itself, so it gets in although others hold their
places for as long as they can.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable
from contextlib import suppress
from typing import Any, TypeVar

from bucketq.errors import BucketQError, OverloadedError, UnavailableError

T = TypeVar("T")

MAX_ACTIVE = 10_000
"""How many sessions and unary calls one listener has at once."""
MAX_ACTIVE_OF_A_HOST = 1000
"""A tenth of that, so that one host cannot lock out the others."""
MAX_UNAUTHENTICATED = 8
"""How many strangers are read from at once. With messages of 16 MiB they cost 128 MiB at most."""
MAX_WAITING = 32
"""How many more strangers wait for a turn. At worst, each of those before them keeps its turn for
_PATIENCE_S, so that the last gets one after 2 s; clients give up after 5 s."""
MAX_UNAUTHENTICATED_EACH = 4
"""A client introduces itself once on each connection. With so few, one connection cannot take all
places."""
TOKEN_S = 5.0
"""How long a client may take to send its request and show its token. Two round trips are needed."""
MAX_PARTS_BYTES = 512 * 1024 * 1024
"""How many bytes of unfinished requests, which come in parts, are kept: four of the largest."""
_PATIENCE_S = 0.5
"""How long a stranger keeps its turn if others wait. A handshake takes two round trips."""
_TURN_S = 3.0
"""How long a stranger waits for its turn; a little more than it takes at worst."""
_RETRY_AFTER_S = 1.0
"""When rejected clients should retry: after _PATIENCE_S most strangers have gone."""


class ActiveCall:
    """A session or a unary call."""

    def __init__(self) -> None:
        self.stopped: asyncio.Future[BucketQError] = asyncio.get_running_loop().create_future()
        """Set when the call has to end at once, with the reason."""

    def finish(self) -> None:
        """End the call once its pending requests are answered."""

    def stop(self, reason: BucketQError) -> None:
        """End the call at once."""
        if not self.stopped.done():
            self.stopped.set_result(reason)

    async def within(self, timeout_s: float, work: Awaitable[T]) -> T:
        """Await ``work``; raises the reason if the call is stopped, or ``TimeoutError``."""
        task = asyncio.ensure_future(work)
        try:
            both: list[asyncio.Future[Any]] = [task, self.stopped]
            await asyncio.wait(both, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
            if task.done():
                return task.result()
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        if self.stopped.done():
            raise self.stopped.result()
        raise TimeoutError


class Admission:
    """The calls of one listener, so that they can be limited and ended."""

    def __init__(self) -> None:
        self._hosts: dict[ActiveCall, str] = {}
        """Authenticated calls, and the host of each."""
        self._strangers: dict[ActiveCall, tuple[str, float]] = {}
        """Strangers that have a turn, oldest first: the connection of each, and since when."""
        self._waiting: dict[ActiveCall, tuple[str, asyncio.Future[None]]] = {}
        """Strangers that wait for a turn."""
        self._eviction: asyncio.TimerHandle | None = None
        self._of_host: Counter[str] = Counter()
        self._of_connection: Counter[str] = Counter()
        self._parts_bytes = 0
        self._empty = asyncio.Event()
        self._empty.set()
        self._closing = False

    async def enter(self, active: ActiveCall, peer: str, *, is_known: bool) -> None:
        """Count a call; one that is not known is a stranger until it is admitted.

        Raises ``OverloadedError`` if there are too many, ``UnavailableError`` while it closes.
        """
        if self._closing:
            raise stopping()
        if is_known:
            self._add(active, peer)
            self._empty.clear()
        else:
            await self._wait_for_turn(active, peer)

    def admit(self, active: ActiveCall) -> None:
        """Note that the client of a call has shown its token, or needs none.

        Raises ``OverloadedError`` if there are too many.
        """
        if active in self._strangers:
            self._add(active, self._strangers[active][0])
            self._forget_stranger(active)

    def leave(self, active: ActiveCall) -> None:
        """Stop counting a call."""
        if active in self._strangers:
            self._forget_stranger(active)
        else:
            _decrease(self._of_host, self._hosts.pop(active))
        if not self._hosts and not self._strangers:
            self._empty.set()

    def keep_part(self, size_bytes: int) -> None:
        """Count a part of an unfinished request. Raises ``OverloadedError`` if too much is kept."""
        if self._parts_bytes + size_bytes > MAX_PARTS_BYTES:
            message = (
                f"{self._parts_bytes:,} bytes of unfinished requests are kept already, "
                f"{MAX_PARTS_BYTES:,} are allowed: try again in a moment"
            )
            raise OverloadedError(message, retry_after_s=_RETRY_AFTER_S)
        self._parts_bytes += size_bytes

    def drop_parts(self, size_bytes: int) -> None:
        """Stop counting parts."""
        self._parts_bytes -= size_bytes

    async def close(self, grace_s: float) -> None:
        """Accept no more calls, wait until all have their answers, and stop the others."""
        self._closing = True
        for active in list(self._hosts):
            active.finish()
        for stranger in list(self._strangers):
            stranger.stop(stopping())
        for _, turn in self._waiting.values():
            turn.set_exception(stopping())
        self._waiting.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(grace_s):
                await self._empty.wait()
        for active in (*self._hosts, *self._strangers):
            active.stop(stopping())
        await self._empty.wait()

    def _add(self, active: ActiveCall, peer: str) -> None:
        host = peer.rpartition(":")[0]
        if len(self._hosts) >= MAX_ACTIVE or self._of_host[host] >= MAX_ACTIVE_OF_A_HOST:
            message = (
                f"too many connections: {len(self._hosts):,} at this broker, "
                f"{self._of_host[host]:,} of this host; {MAX_ACTIVE:,} and "
                f"{MAX_ACTIVE_OF_A_HOST:,} are allowed: let the callers of a process share a "
                "connection"
            )
            raise OverloadedError(message, retry_after_s=_RETRY_AFTER_S)
        self._hosts[active] = host
        self._of_host[host] += 1

    async def _wait_for_turn(self, active: ActiveCall, peer: str) -> None:
        """Wait until a stranger has its turn; raises ``OverloadedError`` if that takes too long."""
        if self._of_connection[peer] >= MAX_UNAUTHENTICATED_EACH:
            message = (
                f"{MAX_UNAUTHENTICATED_EACH} calls and sessions of this connection have shown "
                "no valid token: show one, or wait until they have ended"
            )
            raise OverloadedError(message, retry_after_s=_RETRY_AFTER_S)
        if len(self._waiting) >= MAX_WAITING:
            raise _too_many_strangers()
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting[active] = (peer, turn)
        self._of_connection[peer] += 1
        self._give_turns()
        try:
            async with asyncio.timeout(_TURN_S):
                await turn
        except BaseException as error:
            if active in self._strangers:  # It got its turn and was cancelled at the same time.
                self.leave(active)
            else:
                self._waiting.pop(active, None)
                _decrease(self._of_connection, peer)
            if isinstance(error, TimeoutError):
                raise _too_many_strangers() from error
            raise

    def _give_turns(self) -> None:
        """Give free turns to strangers that wait, and schedule that more become free."""
        now_s = asyncio.get_running_loop().time()
        while self._waiting and len(self._strangers) < MAX_UNAUTHENTICATED:
            active = next(iter(self._waiting))
            peer, turn = self._waiting.pop(active)
            self._strangers[active] = (peer, now_s)
            self._empty.clear()
            if not turn.done():
                turn.set_result(None)
        self._schedule_eviction()

    def _schedule_eviction(self) -> None:
        staying = [stranger for stranger in self._strangers if not stranger.stopped.done()]
        leaving = len(self._strangers) - len(staying)
        if self._eviction is None and staying and leaving < len(self._waiting):
            _, since_s = self._strangers[staying[0]]
            loop = asyncio.get_running_loop()
            self._eviction = loop.call_at(since_s + _PATIENCE_S, self._evict)

    def _evict(self) -> None:
        """Stop strangers that have had their time, as many as others wait.

        A turn passes on only when its stranger has left and its message was dropped.
        """
        self._eviction = None
        now_s = asyncio.get_running_loop().time()
        leaving = sum(stranger.stopped.done() for stranger in self._strangers)
        for stranger, (_, since_s) in self._strangers.items():
            if leaving >= len(self._waiting) or now_s < since_s + _PATIENCE_S:
                break
            if not stranger.stopped.done():
                stranger.stop(_too_many_strangers())
                leaving += 1
        self._schedule_eviction()

    def _forget_stranger(self, active: ActiveCall) -> None:
        peer, _ = self._strangers.pop(active)
        _decrease(self._of_connection, peer)
        self._give_turns()


def _too_many_strangers() -> OverloadedError:
    message = (
        f"{MAX_UNAUTHENTICATED} clients that have shown no valid token are at this broker already, "
        "which is the limit: try again in a moment"
    )
    return OverloadedError(message, retry_after_s=_RETRY_AFTER_S)


def _decrease(counter: Counter[str], key: str) -> None:
    counter[key] -= 1
    if not counter[key]:
        del counter[key]


def stopping() -> UnavailableError:
    """Return the error for calls that are still open when a broker stops."""
    return UnavailableError("the broker is stopping: look up its successor")
