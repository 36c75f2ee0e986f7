"""A service that answers as a test says, and keeps the calls that it gets."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from bucketq.errors import BucketQError
from bucketq.rpc.messages import Answer, Answers, Call, Hello, Ping, Pong, Welcome
from bucketq.rpc.refusals import refusal_of

WELCOME = Welcome(incarnation="i1", broker="b1", epoch=2, version=7)
PONG = Pong(incarnation="i1", broker="b1", role="leading", epoch=2, version=7)


class FakeConnection:
    """One connection; by default every call is answered at once, by ``FakeService.answer``."""

    def __init__(self, service: FakeService, hello: Hello, send: Callable[[Answers], None]) -> None:
        self.service = service
        self.hello = hello
        self.send = send
        self.calls: list[Call] = []
        self.shown: list[str] = []
        self.messages: list[int] = []
        self.closed = asyncio.Event()
        self.heard = asyncio.Event()

    @property
    def welcome(self) -> Welcome:
        return WELCOME

    @property
    def is_admitted(self) -> bool:
        return self.service.is_open or bool(self.shown)

    def show(self, token: str) -> None:
        self.shown.append(token)

    def receive(self, calls: Sequence[Call]) -> None:
        self.calls.extend(calls)
        self.messages.append(len(calls))
        self.heard.set()
        if self.service.answers_at_once:
            self.send(Answers([self.service.answer(call) for call in calls], version=8))

    def close(self) -> None:
        self.closed.set()


class FakeService:
    """A broker of no queue at all."""

    def __init__(self) -> None:
        self.value: Any = None
        self.error: BucketQError | None = None
        self.at_open: Exception | None = None
        self.at_ping: Exception | None = None
        self.answers_at_once = True
        self.is_open = True
        self.connections: list[FakeConnection] = []
        self._opened: asyncio.Queue[FakeConnection] = asyncio.Queue()

    async def next_connection(self) -> FakeConnection:
        """Wait until one begins."""
        return await self._opened.get()

    def answer(self, call: Call) -> Answer:
        if self.error is not None:
            return Answer(call.tag, None, refusal_of(self.error))
        return Answer(call.tag, self.value)

    def trusts(self, token: str) -> bool:
        del token
        return self.is_open

    def ping(self, ping: Ping) -> Pong:
        del ping
        if self.at_ping is not None:
            raise self.at_ping
        return PONG

    def open(self, hello: Hello, send: Callable[[Answers], None]) -> FakeConnection:
        if self.at_open is not None:
            raise self.at_open
        connection = FakeConnection(self, hello, send)
        self.connections.append(connection)
        self._opened.put_nowait(connection)
        return connection
