"""Contents of side objects, which are written in parts: bytes in memory, and files.

A file is read twice, once for its digest and once to be written, and never as a whole.
"""

from __future__ import annotations

import base64
import io
import os
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from threading import Lock
from typing import Any, BinaryIO, TypeGuard, TypeVar

import msgspec
from msgspec import Raw

from bucketq.errors import PayloadError
from bucketq.model.records import Encoding
from bucketq.model.side_objects import PART_BYTES, encoding_inside, new_digest

A = TypeVar("A")

FilePayload = Path | BinaryIO
"""A file as a payload: its bytes are the payload."""


_NO_FILES = frozenset({dict, list, tuple, str, int, float, bool, type(None), bytes})
"""Types of most payloads, which every push looks at."""


def is_file(value: object) -> TypeGuard[FilePayload]:
    """Whether a payload is a file."""
    if type(value) in _NO_FILES:
        return False
    if isinstance(value, Path | io.RawIOBase | io.BufferedIOBase | tempfile.SpooledTemporaryFile):
        return True
    # A wrapper, such as that of a temporary file.
    return isinstance(getattr(value, "file", None), io.RawIOBase | io.BufferedIOBase)


def as_file(payload: Any, payload_type: Any) -> Any:
    """Return bytes that are larger than a part as a file, and any other payload as it is.

    They would be encoded as text first, and decoded again, which holds up the event loop.
    """
    is_bytes = isinstance(payload, bytes | bytearray) and len(payload) > PART_BYTES
    # Other types may ask for something of the bytes, which only the decoded payload shows.
    return io.BytesIO(payload) if is_bytes and payload_type in (Any, bytes) else payload


class SideContent:
    """Bytes that become a side object."""

    def __init__(self, data: bytes, encoding: Encoding | None) -> None:
        """Hold JSON, or bytes if ``encoding`` is ``base64``."""
        self._data = memoryview(data)
        self.encoding = encoding
        self.size_bytes = len(data)
        self.digest = new_digest(data).hexdigest()

    async def part(self, number: int) -> bytes:
        """Return one part."""
        return bytes(self._data[number * PART_BYTES : (number + 1) * PART_BYTES])

    async def close(self) -> None:
        """Release what it holds open."""


class FileContent(SideContent):
    """The rest of a file, from its position on."""

    def __init__(self, file: BinaryIO, *, is_owned: bool) -> None:
        """Read a file that can seek, in a thread; ``load`` reads it first."""
        super().__init__(b"", "base64")
        self._file = file
        self._is_owned = is_owned
        self._start = 0
        self._turn = Lock()
        """Several parts are read at once, in threads, and a file has one position."""

    @classmethod
    async def open(cls, source: FilePayload, what: str) -> FileContent:
        """Open and read a file.

        Raises:
            PayloadError: It cannot be read.
        """
        try:
            return await _in_thread(lambda: cls._load(source))
        except (OSError, ValueError) as error:
            message = f"the file of the {what} cannot be read: {error}"
            raise PayloadError(message) from error

    async def part(self, number: int) -> bytes:
        """Return one part."""
        data = await _in_thread(lambda: self._read(number))
        left = self.size_bytes - number * PART_BYTES
        if len(data) != min(PART_BYTES, left):
            message = "the file of the payload was changed while it was read; push it again"
            raise PayloadError(message)
        return data

    async def whole(self) -> bytes:
        """Return all bytes."""
        parts = range(-(-self.size_bytes // PART_BYTES))
        return b"".join([await self.part(number) for number in parts])

    async def close(self) -> None:
        """Close the file, unless it is the caller's own."""
        if self._is_owned:
            await _in_thread(self._file.close)

    @classmethod
    def _load(cls, source: FilePayload) -> FileContent:
        if isinstance(source, Path):
            content = cls(source.open("rb"), is_owned=True)
        elif not source.seekable():
            content = cls(_spooled(source), is_owned=True)
        else:
            content = cls(source, is_owned=False)
        try:
            content._digest()
        except BaseException:
            with suppress(OSError):
                if content._is_owned:
                    content._file.close()
            raise
        return content

    def _digest(self) -> None:
        file, digest, size_bytes = self._file, new_digest(), 0
        self._start = file.tell()
        while data := file.read(PART_BYTES):
            if not isinstance(data, bytes):
                raise PayloadError("open the file of a payload in binary mode")
            digest.update(data)
            size_bytes += len(data)
        self.size_bytes, self.digest = size_bytes, digest.hexdigest()

    def _read(self, number: int) -> bytes:
        left, parts = PART_BYTES, list[bytes]()
        with self._turn:
            self._file.seek(self._start + number * PART_BYTES, os.SEEK_SET)
            while left and (data := self._file.read(left)):
                parts.append(data)
                left -= len(data)
        return b"".join(parts)


def _spooled(source: BinaryIO) -> BinaryIO:
    """Copy what can be read only once to a temporary file."""
    file: Any = tempfile.TemporaryFile()  # noqa: SIM115 - the content closes it
    while data := source.read(PART_BYTES):
        file.write(data)
    file.seek(0)
    copied: BinaryIO = file
    return copied


async def _in_thread(call: Callable[[], A]) -> A:
    from asyncio import to_thread  # noqa: PLC0415 - the help of a command needs no event loop

    return await to_thread(call)


def content_bytes(raw: Raw, encoding: Encoding | None) -> bytes:
    """Return the content of a payload or result that is in its job."""
    return bytes(raw) if encoding is None else base64.b64decode(msgspec.json.decode(raw, type=str))


def inline_body(data: bytes, encoding: Encoding | None) -> tuple[Raw, Encoding | None]:
    """Return the content of a side object as it would be in its job."""
    inside = encoding_inside(encoding)
    return Raw(data if inside is None else b'"%b"' % base64.b64encode(data)), inside
