"""A server with scripted answers."""

from __future__ import annotations

import asyncio

from tests.servers.proxy import ProxyThread
from tests.servers.wire import Message


class Scripted(ProxyThread):
    """A server that gives one answer to everything, and remembers what it was asked."""

    def __init__(self, given: Message | None) -> None:
        super().__init__(0)
        self.given = given
        self.asked: list[Message] = []

    async def handle(self, request: Message, writer: asyncio.StreamWriter) -> None:
        self.asked.append(request)
        if self.given is None:
            await asyncio.Event().wait()
        else:
            writer.write(self.given.encode())
            await writer.drain()
