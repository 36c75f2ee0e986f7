"""A bare broker: the least that a durable queue in Python over gRPC can cost, without any feature.

Two lists in memory and a log. All calls that a client process makes in one turn of its event loop
are one message, and all messages that arrive while the log is synced share the next sync. Jobs are
bytes to it. It does not read its log back, remembers no request, and no job has an id.

``python -m benchmarks.peers.bare_broker PORT LOG`` is the server, and ``BareBroker`` its client.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections import deque
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc.aio
import msgspec
from benchmarks.peers.adapter import Adapter, Payload
from grpc.aio import EOF  # type: ignore[attr-defined]  # not in the stubs

STREAM = "/bare/Stream"
PUSH, CLAIM, COMPLETE = range(3)
Call = tuple[int, list[bytes], int]
"""What to do, the jobs to push or to complete, and how many to claim."""

_calls = msgspec.msgpack.Decoder(list[Call])
_answers = msgspec.msgpack.Decoder(list[list[bytes]])
_encode = msgspec.msgpack.Encoder().encode


class Server:
    """Answers every stream, and writes one log for all of them."""

    def __init__(self, log: int) -> None:
        self._log = log
        self._thread = ThreadPoolExecutor(1)
        self._waiting: deque[bytes] = deque()
        self._running: set[bytes] = set()
        self._arrived: list[tuple[bytes, asyncio.Queue[bytes]]] = []
        self._wake = asyncio.Event()

    async def stream(self, messages: AsyncIterator[bytes], _: Any) -> AsyncIterator[bytes]:
        """Take the messages of a client process, and answer them in order."""
        answers: asyncio.Queue[bytes] = asyncio.Queue()

        async def receive() -> None:
            async for message in messages:
                self._arrived.append((message, answers))
                self._wake.set()

        task = asyncio.create_task(receive())
        try:
            while True:
                yield await answers.get()
        finally:
            task.cancel()

    async def commit(self) -> None:
        """Apply what has arrived, sync it, answer; again and again."""
        loop = asyncio.get_running_loop()
        while True:
            await self._wake.wait()
            self._wake.clear()
            batch, self._arrived = self._arrived, []
            applied = [
                _encode([self._apply(*call) for call in _calls.decode(message)])
                for message, _ in batch
            ]
            await loop.run_in_executor(self._thread, self._sync, [message for message, _ in batch])
            for answer, (_, answers) in zip(applied, batch, strict=True):
                answers.put_nowait(answer)

    def _apply(self, verb: int, jobs: list[bytes], limit: int) -> list[bytes]:
        if verb == PUSH:
            self._waiting.extend(jobs)
            return []
        if verb == CLAIM:
            claimed = [self._waiting.popleft() for _ in range(min(limit, len(self._waiting)))]
            self._running.update(claimed)
            return claimed
        self._running.difference_update(jobs)
        return []

    def _sync(self, messages: list[bytes]) -> None:
        os.writev(self._log, messages)
        os.fdatasync(self._log)


async def serve(port: str, path: str) -> None:
    """Serve until SIGTERM."""
    server = grpc.aio.server()
    bare = Server(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600))
    handler = grpc.stream_stream_rpc_method_handler(bare.stream)
    server.add_generic_rpc_handlers(
        [grpc.method_handlers_generic_handler("bare", {"Stream": handler})]
    )
    server.add_insecure_port(f"127.0.0.1:{port}")
    await server.start()
    commits = asyncio.create_task(bare.commit())
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, commits.cancel)
    try:
        await commits
    except asyncio.CancelledError:
        await server.stop(None)


class BareBroker(Adapter):
    """A stream, which all callers of a process share."""

    has_bulk = True

    async def setup(self, *, is_first: bool) -> None:
        """Open the stream."""
        del is_first
        self.channel = grpc.aio.insecure_channel(self.address)
        method: Any = self.channel.stream_stream(STREAM, None, None)
        self.stream = method()
        self.calls: list[tuple[Call, asyncio.Future[list[bytes]]]] = []
        self.sent: deque[list[asyncio.Future[list[bytes]]]] = deque()
        self.wake = asyncio.Event()
        self.tasks = [asyncio.create_task(self.send()), asyncio.create_task(self.receive())]

    def call(self, *call: Any) -> asyncio.Future[list[bytes]]:
        """Send a call with all others of this turn of the loop."""
        answer: asyncio.Future[list[bytes]] = asyncio.get_running_loop().create_future()
        self.calls.append((call, answer))
        self.wake.set()
        return answer

    async def send(self) -> None:
        """Send the calls of a turn as one message."""
        while True:
            await self.wake.wait()
            self.wake.clear()
            calls, self.calls = self.calls, []
            self.sent.append([answer for _, answer in calls])
            await self.stream.write(_encode([call for call, _ in calls]))

    async def receive(self) -> None:
        """Hand answers to their callers."""
        while (message := await self.stream.read()) is not EOF:
            for future, answer in zip(self.sent.popleft(), _answers.decode(message), strict=True):
                future.set_result(answer)

    async def push(self, payload: Payload) -> None:
        """Push a job."""
        await self.call(PUSH, [json.dumps(payload).encode()], 0)

    async def push_many(self, payloads: list[Payload]) -> None:
        """Push jobs."""
        await self.call(PUSH, [json.dumps(payload).encode() for payload in payloads], 0)

    async def claim(self, limit: int) -> list[bytes]:
        """Claim jobs."""
        return await self.call(CLAIM, [], limit)

    async def complete(self, jobs: list[bytes]) -> None:
        """Complete jobs."""
        await self.call(COMPLETE, jobs, 0)

    async def close(self) -> None:
        """Disconnect."""
        for task in self.tasks:
            task.cancel()
        await self.channel.close(None)


if __name__ == "__main__":
    asyncio.run(serve(*sys.argv[1:]))
