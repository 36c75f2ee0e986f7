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
from examples.indexing.location import Location

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


async def load(location: Location, namespace: str) -> Manifest:
    """Read a manifest; return an empty one if there is none yet."""
    manifest, _ = await _load(location, namespace)
    return manifest


async def change(
    location: Location, namespace: str, alter: Callable[[Manifest], Manifest | None]
) -> Manifest:
    """Change a manifest by compare-and-set, and return the new one.

    ``alter`` returns None if there is nothing to change. It is called again whenever the outcome of
    a write is not certain: if the write landed, the manifest that it gets then shows it, and if the
    manifest has changed otherwise, the write can never land.
    """
    key = _key(location, namespace)
    for number in range(_TRIES):
        before, etag = await _load(location, namespace)
        after = alter(before)
        if after is None:
            return before
        body = msgspec.json.encode(after)
        try:
            if etag is None:
                await location.store.create(key, body)
            else:
                await location.store.replace(key, body, etag)
        except (PreconditionFailedError, ObjectMissingError, UnavailableError) as error:
            if number == _TRIES - 1:
                message = f"{key} was not changed in {_TRIES} tries: try again later ({error})"
                raise UnavailableError(message) from error
            longest_s = min(_LONGEST_PAUSE_S, _SHORTEST_PAUSE_S * 2**number)
            await asyncio.sleep(random.uniform(0, longest_s))
        else:
            return after
    raise AssertionError


async def discard(location: Location, files: Iterable[File], manifest: Manifest) -> None:
    """Delete those of some files that a manifest does not name.

    No key is ever used twice, so a file that it no longer names is never needed again. A file that
    cannot be deleted now takes some space, and does no harm.
    """
    named = manifest.keys
    unnamed = [file.key for file in files if file.key not in named]
    with suppress(UnavailableError):
        await asyncio.gather(*(location.store.delete(key) for key in unnamed))


def numbers(ranges: Iterable[tuple[int, int]]) -> Iterator[int]:
    """Yield every number of some ranges."""
    for first, last in ranges:
        yield from range(first, last + 1)


def ranges(of: Iterable[int]) -> list[tuple[int, int]]:
    """Return numbers as ranges with their ends."""
    found: list[tuple[int, int]] = []
    for number in sorted(of):
        if found and found[-1][1] == number - 1:
            found[-1] = (found[-1][0], number)
        else:
            found.append((number, number))
    return found


async def _load(location: Location, namespace: str) -> tuple[Manifest, str | None]:
    key = _key(location, namespace)
    try:
        stored = await location.store.get(key)
    except ObjectMissingError:
        return Manifest(), None
    try:
        found = msgspec.json.decode(stored.body, type=Manifest)
    except msgspec.DecodeError as error:
        message = (
            f"{key} is not a manifest of an index ({error}): remove index/{namespace}/ and index "
            "it again, the log has all documents"
        )
        raise CorruptStateError(message) from error
    return found, stored.etag


def _key(location: Location, namespace: str) -> str:
    return f"{location.index(namespace)}manifest.json"
