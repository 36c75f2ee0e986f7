"""Who is at a listener: all are counted, and clients without a token are few and do not stay.

A client that has not shown a token yet is a *stranger*. gRPC buffers the message that a client is
sending, so each stranger may cost the broker one message of the largest size. Their number is
limited, in all and for each connection. When the last place is taken, a newcomer replaces the
stranger that has been there for longest, unless that one came a moment ago: an honest client needs
milliseconds to introduce itself, so it gets in although others hold their places for as long as
they can.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any, TypeVar

from bucketq.errors import BucketQError, OverloadedError, UnavailableError

T = TypeVar("T")

MAX_GUESTS = 10_000
"""How many sessions and unary calls one listener has at once."""
MAX_GUESTS_OF_A_HOST = 1000
MAX_STRANGERS = 64
"""How many of them have shown no token. With messages of 2 MiB they cost 128 MiB at most."""
MAX_STRANGERS_OF_A_CONNECTION = 16
TOKEN_S = 5.0
"""How long a client may take until it has said what it wants and shown its token."""
MAX_PARTS_BYTES = 512 * 1024 * 1024
"""How much of unfinished requests, which come in parts, is kept at once: four of the largest."""
_PATIENCE_S = 1.0
"""How long a stranger keeps its place when others want it. A handshake takes two round trips."""
_RETRY_AFTER_S = 1.0


class Guest:
    """A session or a unary call."""

    def __init__(self) -> None:
        """Begin; nothing has stopped it."""
        self.stopped: asyncio.Future[BucketQError] = asyncio.get_running_loop().create_future()
        """Done when it has to end now, with the reason."""

    def finish(self) -> None:
        """End it when everything that is under way has its answer."""

    def stop(self, reason: BucketQError) -> None:
        """End it now."""
        if not self.stopped.done():
            self.stopped.set_result(reason)

    async def within(self, timeout_s: float, work: Coroutine[Any, Any, T]) -> T:
        """Run ``work`` until it is done; raises why it was stopped, or ``TimeoutError``."""
        task = asyncio.get_running_loop().create_task(work)
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
    """Everything that is under way at one listener, so that it can be limited and ended."""

    def __init__(self) -> None:
        """Begin with no guests."""
        self._hosts: dict[Guest, str] = {}
        """Clients that may be here, and the host of each."""
        self._strangers: dict[Guest, tuple[str, float]] = {}
        """Clients without a token, oldest first: the connection of each, and when it came."""
        self._of_host: Counter[str] = Counter()
        self._of_connection: Counter[str] = Counter()
        self._parts_bytes = 0
        self._empty = asyncio.Event()
        self._empty.set()
        self._closing = False

    def enter(self, guest: Guest, peer: str, *, is_known: bool) -> None:
        """Count a guest; one that is not known is a stranger until it is admitted.

        Raises ``OverloadedError`` if there are too many, ``UnavailableError`` while it closes.
        """
        if self._closing:
            raise stopping()
        if is_known:
            self._add(guest, peer)
        else:
            self._make_room(peer)
            self._strangers[guest] = (peer, asyncio.get_running_loop().time())
            self._of_connection[peer] += 1
        self._empty.clear()

    def admit(self, guest: Guest) -> None:
        """Note that a guest has shown its token, or needs none.

        Raises ``OverloadedError`` if too many others are here.
        """
        if guest in self._strangers:
            self._add(guest, self._strangers[guest][0])
            self._forget_stranger(guest)

    def leave(self, guest: Guest) -> None:
        """Count a guest no more."""
        if guest in self._strangers:
            self._forget_stranger(guest)
        else:
            _decrease(self._of_host, self._hosts.pop(guest))
        if not self._hosts and not self._strangers:
            self._empty.set()

    def keep_part(self, size_bytes: int) -> None:
        """Count a part of an unfinished request; ``OverloadedError`` if too much is kept."""
        if self._parts_bytes + size_bytes > MAX_PARTS_BYTES:
            message = (
                f"{self._parts_bytes:,} bytes of unfinished requests are kept here already, "
                f"{MAX_PARTS_BYTES:,} are allowed: try again in a moment"
            )
            raise OverloadedError(message, retry_after_s=_RETRY_AFTER_S)
        self._parts_bytes += size_bytes

    def drop_parts(self, size_bytes: int) -> None:
        """Count parts no more."""
        self._parts_bytes -= size_bytes

    async def close(self, grace_s: float) -> None:
        """Let no more guests in, wait until all have their answers, and stop the others."""
        self._closing = True
        for guest in list(self._hosts):
            guest.finish()
        for stranger in list(self._strangers):
            stranger.stop(stopping())
        with suppress(TimeoutError):
            async with asyncio.timeout(grace_s):
                await self._empty.wait()
        for guest in (*self._hosts, *self._strangers):
            guest.stop(stopping())
        await self._empty.wait()

    def _add(self, guest: Guest, peer: str) -> None:
        host = peer.rpartition(":")[0]
        if len(self._hosts) >= MAX_GUESTS or self._of_host[host] >= MAX_GUESTS_OF_A_HOST:
            message = (
                f"too many conversations: {len(self._hosts):,} at this broker, "
                f"{self._of_host[host]:,} of this host; {MAX_GUESTS:,} and "
                f"{MAX_GUESTS_OF_A_HOST:,} are allowed: let the callers of a process share a "
                "connection"
            )
            raise OverloadedError(message, retry_after_s=_RETRY_AFTER_S)
        self._hosts[guest] = host
        self._of_host[host] += 1

    def _make_room(self, peer: str) -> None:
        """Make room for a stranger, or raise ``OverloadedError``."""
        if self._of_connection[peer] >= MAX_STRANGERS_OF_A_CONNECTION:
            message = (
                f"{MAX_STRANGERS_OF_A_CONNECTION} calls and sessions of this connection have shown "
                "no good token: show one, or wait until they have ended"
            )
            raise OverloadedError(message, retry_after_s=_RETRY_AFTER_S)
        # Those that were stopped are about to leave.
        active = [guest for guest in self._strangers if not guest.stopped.done()]
        if len(active) < MAX_STRANGERS:
            return
        _, came_at = self._strangers[active[0]]
        message = (
            f"{MAX_STRANGERS} clients that have shown no good token are at this broker already, "
            "which is the limit: try again in a moment"
        )
        error = OverloadedError(message, retry_after_s=_RETRY_AFTER_S)
        if asyncio.get_running_loop().time() - came_at < _PATIENCE_S:
            raise error
        active[0].stop(error)

    def _forget_stranger(self, guest: Guest) -> None:
        peer, _ = self._strangers.pop(guest)
        _decrease(self._of_connection, peer)


def _decrease(counter: Counter[str], key: str) -> None:
    counter[key] -= 1
    if not counter[key]:
        del counter[key]


def stopping() -> UnavailableError:
    """The error of every call that is still open when a broker stops."""
    return UnavailableError("the broker is stopping: find the one that follows it")
