"""The manifest of an index: which parts it has, and which segments of the log they cover.

It is the one object of an index that changes, by compare-and-set. A part belongs to the index when
the manifest names it, and not before. Everything that a search needs to choose what to read is in
it: the numbers of documents and words, and the first and last word of each file.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress

import msgspec
from msgspec import Struct

from bucketq.errors import CorruptStateError, UnavailableError
from bucketq.store.base import ObjectMissingError, PreconditionFailedError
from examples.indexing.home import Home

_TRIES = 60
_SHORTEST_PAUSE_S = 0.01
_LONGEST_PAUSE_S = 0.5


class File(Struct, frozen=True):
    """A Parquet file of a part: rows that are sorted, from the first to the last."""

    key: str
    first: str
    last: str
    rows: int
    size_bytes: int


class Part(Struct, frozen=True):
    """The index of some segments."""

    segments: list[tuple[int, int]]
    """The numbers that it covers, as ranges with their ends."""
    documents: int
    words: int
    postings: list[File]
    """By word."""
    texts: list[File]
    """By place, as ``spell`` writes it."""

    @property
    def files(self) -> list[File]:
        """All of its files."""
        return [*self.postings, *self.texts]

    @property
    def segment_count(self) -> int:
        """How many segments it covers."""
        return sum(last - first + 1 for first, last in self.segments)


class Manifest(Struct, frozen=True):
    """The index of a namespace."""

    parts: list[Part] = []
    format: int = 1

    @property
    def documents(self) -> int:
        """How many documents are in it."""
        return sum(part.documents for part in self.parts)

    @property
    def words(self) -> int:
        """How many words they have."""
        return sum(part.words for part in self.parts)

    @property
    def segments(self) -> set[int]:
        """The numbers of the segments that it covers."""
        return {number for part in self.parts for number in numbers(part.segments)}

    @property
    def keys(self) -> set[str]:
        """The keys of its files."""
        return {file.key for part in self.parts for file in part.files}


async def load(home: Home, namespace: str) -> Manifest:
    """Read a manifest; an empty one where there is none yet."""
    manifest, _ = await _load(home, namespace)
    return manifest


async def change(
    home: Home, namespace: str, alter: Callable[[Manifest], Manifest | None]
) -> Manifest:
    """Change a manifest, however many others do the same, and return what it is then.

    ``alter`` returns None where there is nothing to change. It is asked anew whenever the outcome
    of a write is not certain: what has landed is seen in the manifest that it is given then, and
    where the manifest is another by now, what has not landed never will.
    """
    key = _key(home, namespace)
    for number in range(_TRIES):
        before, etag = await _load(home, namespace)
        after = alter(before)
        if after is None:
            return before
        body = msgspec.json.encode(after)
        try:
            if etag is None:
                await home.store.create(key, body)
            else:
                await home.store.replace(key, body, etag)
        except (PreconditionFailedError, ObjectMissingError, UnavailableError) as error:
            if number == _TRIES - 1:
                message = f"{key} was not changed in {_TRIES} tries: try again later ({error})"
                raise UnavailableError(message) from error
            longest_s = min(_LONGEST_PAUSE_S, _SHORTEST_PAUSE_S * 2**number)
            await asyncio.sleep(random.uniform(0, longest_s))
        else:
            return after
    raise AssertionError


async def discard(home: Home, files: Iterable[File], manifest: Manifest) -> None:
    """Delete those of some files that a manifest does not name.

    No key is ever used twice, so what it does not name any more nobody will. What cannot be deleted
    now takes some space, and harms nobody.
    """
    named = manifest.keys
    unnamed = [file.key for file in files if file.key not in named]
    with suppress(UnavailableError):
        await asyncio.gather(*(home.store.delete(key) for key in unnamed))


def numbers(ranges: Iterable[tuple[int, int]]) -> Iterator[int]:
    """Every number of some ranges."""
    for first, last in ranges:
        yield from range(first, last + 1)


def ranges(of: Iterable[int]) -> list[tuple[int, int]]:
    """Numbers as ranges with their ends."""
    found: list[tuple[int, int]] = []
    for number in sorted(of):
        if found and found[-1][1] == number - 1:
            found[-1] = (found[-1][0], number)
        else:
            found.append((number, number))
    return found


async def _load(home: Home, namespace: str) -> tuple[Manifest, str | None]:
    key = _key(home, namespace)
    try:
        stored = await home.store.get(key)
    except ObjectMissingError:
        return Manifest(), None
    try:
        found = msgspec.json.decode(stored.body, type=Manifest)
    except msgspec.DecodeError as error:
        message = (
            f"{key} is no manifest of an index ({error}): remove index/{namespace}/ and index it "
            "again, the log has all documents"
        )
        raise CorruptStateError(message) from error
    return found, stored.etag


def _key(home: Home, namespace: str) -> str:
    return f"{home.index(namespace)}manifest.json"
