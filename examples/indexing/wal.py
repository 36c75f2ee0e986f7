"""The write-ahead log: documents in numbered objects that never change.

``wal/<namespace>/<number>.jsonl`` has a header line, and then one document per line. A number is
created only if it does not exist and the one before it does, so that two writers never overwrite
each other and there are no gaps. So a reader that knows the numbers up to n finds all
others by asking for n + 1 and so on, and needs no listing.

A document is known by its place: the number of its segment, and its line in it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import suppress
from typing import NamedTuple

import msgspec
from msgspec import Struct

from bucketq.clock import SystemClock, new_id
from bucketq.errors import CorruptStateError, UnavailableError
from bucketq.store.base import ObjectMissingError, PreconditionFailedError
from examples.indexing.location import Location

_DIGITS = 12
_AT_ONCE = 16
_TRIES = 5
_PAUSE_S = 0.5


class Document(Struct, frozen=True):
    """What is searched."""

    id: str
    title: str
    text: str


class Place(NamedTuple):
    """Where a document is in the log of its namespace."""

    segment: int
    line: int


class Segment(NamedTuple):
    """Documents that were written together."""

    number: int
    documents: list[Document]


class _Header(Struct, frozen=True):
    segment: int
    write: str
    """Different for every write: by it a writer recognises its own object."""
    documents: int


class Wal:
    """The log of one namespace."""

    def __init__(self, location: Location, namespace: str) -> None:
        """Read nothing yet."""
        self._store = location.store
        self._prefix = location.wal(namespace)
        self._last: int | None = None

    async def append(self, documents: Sequence[Document]) -> int:
        """Write a segment, and return its number. After that its documents are found."""
        if not documents:
            message = "a segment has at least one document"
            raise ValueError(message)
        write = new_id(SystemClock())
        if self._last is None:
            self._last = await self.last()
        number = self._last + 1
        while not await self._create(number, write, documents):
            number += 1
        self._last = number
        return number

    async def last(self) -> int:
        """Return the highest number, or 0 if there is none."""
        last = 0
        async for info in self._store.list(self._prefix):
            name = info.key.removeprefix(self._prefix).removesuffix(".jsonl")
            if len(name) == _DIGITS and name.isdigit():
                last = max(last, int(name))
        return last

    async def read(self, number: int) -> Segment:
        """Read a segment. Raises ``ObjectMissingError``."""
        key = self._key(number)
        stored = await self._store.get(key)
        lines = stored.body.splitlines()
        try:
            header = msgspec.json.decode(lines[0], type=_Header)
            documents = [msgspec.json.decode(line, type=Document) for line in lines[1:]]
        except (IndexError, msgspec.DecodeError) as error:
            message = f"{key} is not a segment of documents: {error}"
            raise CorruptStateError(message) from error
        if (header.segment, header.documents) != (number, len(documents)):
            message = f"{key} is cut off: it has {len(documents)} of {header.documents} documents"
            raise CorruptStateError(message)
        return Segment(number, documents)

    async def missing_from(self, known: Collection[int]) -> AsyncIterator[Segment]:
        """Read the segments whose numbers are not in ``known``, in their order.

        It ends with the first number that does not exist, so it has all that were complete
        when it began.
        """
        highest = max(known, default=0)
        for number in range(1, highest):
            if number not in known:
                yield await self.read(number)
        first = highest + 1
        while True:
            asked = range(first, first + _AT_ONCE)
            for segment in await asyncio.gather(*(self._read_if_there(n) for n in asked)):
                if segment is None:
                    return
                yield segment
            first += _AT_ONCE

    async def _read_if_there(self, number: int) -> Segment | None:
        try:
            return await self.read(number)
        except ObjectMissingError:
            return None

    async def _create(self, number: int, write: str, documents: Sequence[Document]) -> bool:
        """Create a segment; return False if the number is another writer's.

        A lost answer, and even a failed condition, can follow a write that landed. So anything
        but a plain success is decided by reading the object.
        """
        key = self._key(number)
        lines = [_Header(number, write, len(documents)), *documents]
        body = b"".join(msgspec.json.encode(line) + b"\n" for line in lines)
        for _ in range(_TRIES):
            with suppress(PreconditionFailedError, UnavailableError):
                await self._store.create(key, body)
                return True
            with suppress(ObjectMissingError, UnavailableError):
                return (await self._store.get(key)).body == body
            await asyncio.sleep(_PAUSE_S)
        message = (
            f"it is unknown whether {key} was written: check which documents are in the log, and "
            "write those that are not"
        )
        raise UnavailableError(message)

    def _key(self, number: int) -> str:
        return f"{self._prefix}{number:0{_DIGITS}d}.jsonl"
