"""The history of one incarnation of a queue, as objects in its store.

``jobs/queue.json`` keeps it under ``jobs/queue/history/<incarnation>/``::

    00000000000000000002-00000000000000000641-9f86d081884c7d65.jsonl   what versions changed
    00000000000000000512.head.json                                     a copy of a version

Guarantees:

* An object with changes holds versions that have landed, and no others. So a version reads the same
  in every object that holds it, and two processes may write overlapping ones.
* A version is deleted only if the queue has forgotten it, or another object holds it. That is so
  however late a delete takes effect: an object is deleted because of one that was put before, and
  chains of such reasons never return to an object. What is merged grows, and what is cut gets a
  name of its own. For the same reason an object is not deleted only because another one that was
  listed holds all that it holds: that one may be cut or deleted meanwhile.
* A copy is deleted only if no version of the queue names it or can ever name it.

Reads and writes only keys of exactly these forms. Any other object in the folder is never read or
deleted.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import NamedTuple

from bucketq.clock import Clock
from bucketq.codec.history_file import (
    ChangesName,
    QueueCopy,
    copy_name,
    cut_changes,
    decode_copy,
    name_changes,
    parse_changes_name,
    parse_copy_name,
    split_changes,
)
from bucketq.errors import CorruptStateError, UnavailableError
from bucketq.model.history import COPY_VERSIONS, CopyRecord
from bucketq.model.state import State
from bucketq.store.backoff import RetryBackoff
from bucketq.store.base import ObjectMissingError, ObjectStore, PreconditionFailedError
from bucketq.store.queue_folder import folder_of

_PUT_TRIES = 4
_FIRST_RETRY_S = 0.2
_LAST_RETRY_S = 2.0
"""About three seconds in all: while an object is not written, the queue object holds its rows, and
every commit writes them."""
_LARGEST_BYTES = 8 << 20
"""How large an object becomes by merging; as large as a segment."""
_SMALL_BYTES = 2 << 20
"""Objects up to this size are merged with their neighbours."""


class ListedHistory(NamedTuple):
    """What a listing has shown."""

    changes: list[tuple[ChangesName, int]]
    """Objects with changes in the order of their first versions, and their sizes."""
    copies: list[tuple[int, int]]
    """The versions of copies, and their sizes."""

    @property
    def size_bytes(self) -> int:
        """How many bytes all of them take."""
        return sum(size for _, size in (*self.changes, *self.copies))


class HistoryFolder:
    """Puts, reads, lists and deletes the history of one incarnation of a queue."""

    def __init__(self, store: ObjectStore, key: str, incarnation: str, clock: Clock) -> None:
        """Use the folder of the queue object ``key``."""
        self._store = store
        self._root = f"{folder_of(store.url, key)}history/{incarnation}/"
        self._clock = clock

    @property
    def address(self) -> str:
        """The address of the folder, for messages; it ends in a slash."""
        return f"{self._store.url.rstrip('/')}/{self._root}"

    async def put_changes(self, name: ChangesName, body: bytes) -> None:
        """Write changes; after an unknown outcome, again, because the key means these bytes only.

        Raises:
            UnavailableError: The outcome is unknown after several tries.
            StoreRefusedError: The store rejects it.
        """
        await self._put(str(name), body)

    async def put_copy(self, copy: CopyRecord, body: bytes) -> None:
        """Write the copy of a version; raises as ``put_changes``."""
        await self._put(copy_name(copy.seq), body)

    async def read_changes(self, name: ChangesName) -> list[bytes]:
        """Read the lines of an object.

        Raises:
            ObjectMissingError: There is no such object (any more): list again.
            CorruptStateError: It is damaged.
            UnavailableError: The storage did not answer.
        """
        found = await self._store.get(f"{self._root}{name}")
        return split_changes(name, found.body, f"{self.address}{name}")

    async def read_copy(self, copy: CopyRecord) -> QueueCopy:
        """Read a copy; raises as ``read_changes``."""
        name = copy_name(copy.seq)
        found = await self._store.get(f"{self._root}{name}")
        return decode_copy(copy, found.body, f"{self.address}{name}")

    async def list(self) -> ListedHistory:
        """List what is there. What is not listed may still be there: a listing may be late."""
        changes, copies = list[tuple[ChangesName, int]](), list[tuple[int, int]]()
        async for name, size_bytes in self._names():
            if (found := parse_changes_name(name)) is not None:
                changes.append((found, size_bytes))
            elif (version := parse_copy_name(name)) is not None:
                copies.append((version, size_bytes))
        return ListedHistory(sorted(changes), copies)

    async def sweep(self, state: State) -> int:
        """Delete what a version, which was read from the store, has forgotten; return how much.

        Of an object that holds forgotten and other versions, the others are written anew first.
        """
        listed = await self.list()
        since = state.history.since or state.version + 1
        deleted = 0
        for version, _ in listed.copies:
            is_late = state.version >= version + COPY_VERSIONS or version < since - 1
            if is_late and copy_name(version)[:20] not in state.history.copies:
                await self._store.delete(self._root + copy_name(version))
                deleted += 1
        for name, _ in listed.changes:
            if name.last < since:
                await self._delete(name)
                deleted += 1
            elif name.first < since:
                await self._cut(name, since)
        return deleted

    async def merge(self, fewest: int) -> bool:
        """Merge small neighbours once, if there are so many; return whether."""
        run = _mergeable((await self.list()).changes, fewest)
        if len(run) < fewest:
            return False
        try:
            lines = [line for name in run for line in await self.read_changes(name)]
        except (ObjectMissingError, CorruptStateError):
            return False  # Another process merges them too, or one of them is lost.
        merged, body = name_changes(lines, run[0].first)
        await self.put_changes(merged, body)
        for name in run:
            await self._delete(name)
        return True

    async def clear(self) -> int:
        """Delete everything of this incarnation, which has ended; return how much."""
        found = [name async for name, _ in self._names()]
        ours = [name for name in found if parse_changes_name(name) or parse_copy_name(name)]
        for name in ours:
            await self._store.delete(self._root + name)
        return len(ours)

    async def _cut(self, name: ChangesName, since: int) -> None:
        """Write the versions of an object that were not forgotten as another one.

        That has a name which no object had before. Otherwise it might be one from which this object
        was merged, and which the process that merged it is about to delete.
        """
        try:
            lines = await self.read_changes(name)
        except (ObjectMissingError, CorruptStateError):
            return
        await self.put_changes(*cut_changes(name, lines, since))
        await self._delete(name)

    async def _names(self) -> AsyncIterator[tuple[str, int]]:
        async for info in self._store.list(self._root):
            yield info.key.removeprefix(self._root), info.size_bytes

    async def _put(self, name: str, body: bytes) -> None:
        backoff = RetryBackoff(self._clock, _FIRST_RETRY_S, _LAST_RETRY_S)
        for _ in range(_PUT_TRIES - 1):
            try:
                await self._put_once(name, body)
            except UnavailableError:
                await backoff.wait()
            else:
                return
        await self._put_once(name, body)

    async def _put_once(self, name: str, body: bytes) -> None:
        """Create an object; one that exists is read, which also makes it durable on a disk."""
        try:
            await self._store.create(self._root + name, body)
        except PreconditionFailedError as error:
            try:
                found = (await self._store.get(self._root + name)).body
            except ObjectMissingError:
                message = f"{self.address}{name} was refused as one that exists, but there is none"
                raise UnavailableError(message) from error
            if found != body:
                message = f"{self.address}{name} exists with other bytes, and is left as it is"
                raise CorruptStateError(message) from error

    async def _delete(self, name: ChangesName) -> None:
        await self._store.delete(f"{self._root}{name}")


def _mergeable(listed: list[tuple[ChangesName, int]], fewest: int) -> list[ChangesName]:
    """Return the first small neighbours that fit in one object, if there are enough of them."""
    run, run_bytes = list[ChangesName](), 0
    for name, size_bytes in listed:
        is_next = not run or name.first == run[-1].last + 1
        if size_bytes <= _SMALL_BYTES and is_next and run_bytes + size_bytes <= _LARGEST_BYTES:
            run.append(name)
            run_bytes += size_bytes
            continue
        if len(run) >= fewest:
            break
        run, run_bytes = ([name], size_bytes) if size_bytes <= _SMALL_BYTES else ([], 0)
    return run
