"""A proxy between bucketq and a server, which loses answers and delays requests.

It understands HTTP, so that it can strike at a chosen moment of a chosen request: the write
has landed, or has not, or will later, and the client sees the same broken connection.

It runs on an event loop in a thread of its own: what a test does to its loop does not reach it.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
import threading
from collections.abc import Awaitable, Callable, Iterator
from typing import Self

from tests.servers.process import HOST
from tests.servers.wire import BrokenOffError, Message, Upstream, answer, read_message

Handler = Callable[[Message, asyncio.StreamWriter], Awaitable[None]]
"""Answers one request, or does not."""

Fault = Callable[["FaultProxy", Message, asyncio.StreamWriter], Awaitable[None]]

_LATE_S = 0.25


class ProxyThread:
    """A loopback HTTP server in a thread; subclasses answer requests in ``handle``."""

    def __init__(self, target_port: int) -> None:
        self.target_port = target_port
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._tasks: set[asyncio.Task[None]] = set()
        self.port = 0

    def __enter__(self) -> Self:
        self._thread.start()
        self._run(self._open())
        return self

    def __exit__(self, *_: object) -> None:
        self._run(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _run(self, work: Awaitable[None]) -> None:
        async def do() -> None:
            await work

        asyncio.run_coroutine_threadsafe(do(), self._loop).result(30)

    async def _open(self) -> None:
        self.upstream = Upstream(self.target_port)
        self._server = await asyncio.start_server(self._accept, HOST, 0, limit=1 << 26)
        self.port = self._server.sockets[0].getsockname()[1]

    async def _close(self) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self.upstream.close()
        await asyncio.sleep(0)  # Closed transports say so in the next round of the loop.

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            # The client can end the connection while it is answered: then nobody waits.
            while not writer.is_closing():
                request = await read_message(reader)
                await self.handle(request, writer)
        except (BrokenOffError, ConnectionError, asyncio.CancelledError):
            pass
        finally:
            self._tasks.discard(task)
            writer.close()

    def spawn(self, work: Awaitable[object]) -> None:
        """Go on with something after the connection it came from is gone."""

        async def do() -> None:
            with contextlib.suppress(BrokenOffError, ConnectionError):
                await work

        task = self._loop.create_task(do())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def handle(self, request: Message, writer: asyncio.StreamWriter) -> None:
        """Answer a request."""
        writer.write((await self.upstream.forward(request)).encode())
        await writer.drain()


class FaultProxy(ProxyThread):
    """A proxy that takes the next fault of a plan for each write; None is no fault.

    What happened is counted in ``struck``. Reads go through, unless ``strikes`` says otherwise.
    """

    def __init__(
        self,
        target_port: int,
        plan: Iterator[Fault | None],
        strikes: Callable[[Message], bool] = lambda request: request.method == "PUT",
    ) -> None:
        super().__init__(target_port)
        self._plan = plan
        self._strikes = strikes
        self.struck: dict[str, int] = {}

    async def handle(self, request: Message, writer: asyncio.StreamWriter) -> None:
        fault = next(self._plan, None) if self._strikes(request) else None
        if fault is None:
            await super().handle(request, writer)
            return
        name = fault.__name__
        self.struck[name] = self.struck.get(name, 0) + 1
        await fault(self, request, writer)


async def closed(proxy: FaultProxy, request: Message, writer: asyncio.StreamWriter) -> None:
    """The write reaches the server, and the connection ends instead of an answer."""
    await proxy.upstream.forward(request)
    writer.close()


async def reset(proxy: FaultProxy, request: Message, writer: asyncio.StreamWriter) -> None:
    """The write reaches the server, and the connection is reset."""
    await proxy.upstream.forward(request)
    one: socket.socket = writer.get_extra_info("socket")
    one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


async def cut(proxy: FaultProxy, request: Message, writer: asyncio.StreamWriter) -> None:
    """The write reaches the server, and half of its answer comes back."""
    found = (await proxy.upstream.forward(request)).encode()
    writer.write(found[: len(found) // 2])
    await writer.drain()
    writer.close()


def _instead(status: int, body: bytes) -> Fault:
    async def fault(proxy: FaultProxy, request: Message, writer: asyncio.StreamWriter) -> None:
        await proxy.upstream.forward(request)
        writer.write(answer(status, body).encode())
        await writer.drain()

    fault.__name__ = f"landed_{status}"
    return fault


def _unheard(status: int, code: str) -> Fault:
    async def fault(_: FaultProxy, __: Message, writer: asyncio.StreamWriter) -> None:
        body = f"<Error><Code>{code}</Code></Error>".encode()
        writer.write(answer(status, body, content_type="application/xml").encode())
        await writer.drain()

    fault.__name__ = f"unheard_{status}"
    return fault


landed_500 = _instead(500, b"<Error><Code>InternalError</Code></Error>")
landed_502 = _instead(502, b"<html>bad gateway</html>")
landed_503 = _instead(503, b"<Error><Code>ServiceUnavailable</Code></Error>")
landed_429 = _instead(429, b"<Error><Code>TooManyRequests</Code></Error>")
landed_409 = _instead(409, b"<Error><Code>ConditionalRequestConflict</Code></Error>")
landed_412 = _instead(412, b"<Error><Code>PreconditionFailed</Code></Error>")
unheard_409 = _unheard(409, "ConditionalRequestConflict")
unheard_404 = _unheard(404, "NoSuchKey")
unheard_412 = _unheard(412, "PreconditionFailed")
unheard_500 = _unheard(500, "InternalError")
unheard_503 = _unheard(503, "SlowDown")


async def lost(_: FaultProxy, __: Message, writer: asyncio.StreamWriter) -> None:
    """The write reaches nobody, and the connection ends."""
    writer.close()


async def mute(proxy: FaultProxy, request: Message, _: asyncio.StreamWriter) -> None:
    """The write reaches the server, and no answer ever comes."""
    await proxy.upstream.forward(request)
    await asyncio.Event().wait()


async def late(proxy: FaultProxy, request: Message, writer: asyncio.StreamWriter) -> None:
    """The connection ends, and the write reaches the server some time after that."""

    async def land() -> None:
        await asyncio.sleep(_LATE_S)
        await proxy.upstream.forward(request)

    proxy.spawn(land())
    writer.close()


async def late_504(proxy: FaultProxy, request: Message, writer: asyncio.StreamWriter) -> None:
    """A gateway gives up, and the write reaches the server some time after that."""

    async def land() -> None:
        await asyncio.sleep(_LATE_S)
        await proxy.upstream.forward(request)

    proxy.spawn(land())
    writer.write(answer(504, b"<html>gateway timeout</html>").encode())
    await writer.drain()
