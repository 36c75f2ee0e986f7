"""Just enough of HTTP/1.1 for a proxy: whole requests and whole answers."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

from tests.servers.process import HOST

_HOP_HEADERS = {"connection", "keep-alive", "transfer-encoding", "content-length", "expect"}
_BODILESS = {204, 304}
_NO_SUCH_RANGE = 416


class BrokenOffError(Exception):
    """The other side closed the connection."""


@dataclass
class Message:
    """A request or an answer: its first line, its headers in small letters, its body."""

    first: str
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""

    @property
    def method(self) -> str:
        return self.first.split(" ", 2)[0]

    @property
    def target(self) -> str:
        return self.first.split(" ", 2)[1]

    @property
    def status(self) -> int:
        return int(self.first.split(" ", 2)[1])

    def encode(self) -> bytes:
        """The bytes on the wire; HEAD answers keep the length of what they do not send."""
        headers = {name: text for name, text in self.headers.items() if name not in _HOP_HEADERS}
        length = str(len(self.body))
        if not self.body and "content-length" in self.headers:
            length = self.headers["content-length"]
        if not (self.first.startswith("HTTP/") and self.status in _BODILESS):
            headers["content-length"] = length
        lines = [self.first, *(f"{name}: {text}" for name, text in headers.items()), "", ""]
        return "\r\n".join(lines).encode("latin-1") + self.body


def answer(status: int, body: bytes = b"", **headers: str) -> Message:
    """Make an answer; ``_`` in a header's name stands for ``-``."""
    named = {name.replace("_", "-"): text for name, text in headers.items()}
    return Message(f"HTTP/1.1 {status} Status", named, body)


async def read_message(reader: asyncio.StreamReader, *, has_body: bool = True) -> Message:
    """Read a message; raises ``BrokenOffError`` where none comes, or not all of it."""
    try:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        first, *lines = head.split("\r\n")[:-2]
        pairs = (line.partition(":") for line in lines)
        message = Message(first, {name.lower(): text.strip() for name, _, text in pairs})
        if first.startswith("HTTP/") and message.status in _BODILESS:
            has_body = False
        if has_body:
            message.body = await _read_body(reader, message.headers)
    except (asyncio.IncompleteReadError, ConnectionError) as error:
        raise BrokenOffError from error
    return message


async def _read_body(reader: asyncio.StreamReader, headers: dict[str, str]) -> bytes:
    if headers.get("transfer-encoding", "").lower() != "chunked":
        return await reader.readexactly(int(headers.get("content-length", "0")))
    chunks = []
    while size := int((await reader.readline()).split(b";")[0], 16):
        chunks.append(await reader.readexactly(size))
        await reader.readexactly(2)
    while (await reader.readline()).strip():
        pass
    return b"".join(chunks)


class Upstream:
    """Connections to a server behind a proxy, used again and again."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._idle: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []

    async def forward(self, request: Message) -> Message:
        """Send a request on, and return the answer."""
        async with self._connection() as (reader, writer):
            writer.write(request.encode())
            await writer.drain()
            found = await read_message(reader, has_body=request.method != "HEAD")
            if found.status == _NO_SUCH_RANGE:
                writer.close()  # After it fake-gcs-server ends the connection, and does not say so.
            return found

    @contextlib.asynccontextmanager
    async def _connection(
        self,
    ) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
        while self._idle:
            reader, writer = self._idle.pop()
            if not (reader.at_eof() or writer.is_closing()):
                break
            writer.close()
        else:
            reader, writer = await asyncio.open_connection(HOST, self._port, limit=1 << 26)
        try:
            yield reader, writer
        except BaseException:
            writer.close()
            raise
        self._idle.append((reader, writer))

    def close(self) -> None:
        """Let go of idle connections."""
        while self._idle:
            self._idle.pop()[1].close()
