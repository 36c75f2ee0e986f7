"""A store in the memory of this process: for tests, trials and the simulator.

Guarantees: every operation is atomic between the threads and event loops of one process, and
an etag is never given out twice, not even after a delete. Nothing outlives the process.

Reads and writes only the registry below, which lets two connections to ``memory://NAME`` meet, as
two connections to one bucket would.
"""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator
from datetime import datetime

from bucketq.clock import Clock, SystemClock
from bucketq.store.base import (
    FolderListing,
    ObjectInfo,
    ObjectMissingError,
    PreconditionFailedError,
    StoredObject,
    check_range,
    too_short,
)


class MemoryStore:
    """An ``ObjectStore`` whose objects live in a dictionary.

    The lock is a thread lock, not one of asyncio, because the blocking client runs its event
    loop in a thread of its own and may share a named store with the caller's loop. It is
    held for a few dictionary operations and never across an ``await``.
    """

    write_interval_s = 0.0

    def __init__(self, name: str = "", clock: Clock | None = None) -> None:
        self.url = f"memory://{name}"
        self.clock: Clock = SystemClock() if clock is None else clock
        """The clock of its queues."""
        self._lock = threading.Lock()
        self._objects: dict[str, tuple[StoredObject, datetime]] = {}
        # One counter for all keys: it only rises, so no key sees an etag twice.
        self._writes = 0

    async def get(self, key: str) -> StoredObject:
        """Read an object. Raises ``ObjectMissingError``."""
        with self._lock:
            return self._find(key)

    async def get_if_changed(self, key: str, etag: str) -> StoredObject | None:
        """Read the object if its etag differs; return None if it is unchanged."""
        stored = await self.get(key)
        return None if stored.etag == etag else stored

    async def get_range(self, key: str, offset: int, length: int) -> bytes:
        """Read a range of an object."""
        check_range(offset, length)
        part = (await self.get(key)).body[offset : offset + length]
        if len(part) != length:
            raise too_short(key, self.url, offset, length)
        return part

    async def create(self, key: str, body: bytes) -> str:
        """Write an object that must not exist yet; return its etag."""
        with self._lock:
            if key in self._objects:
                raise PreconditionFailedError(f"{key} already exists in {self.url}")
            return self._store(key, body)

    async def replace(self, key: str, body: bytes, etag: str) -> str:
        """Replace an object that must still have ``etag``; return its new one."""
        with self._lock:
            current = self._find(key).etag
            if current != etag:
                raise PreconditionFailedError(
                    f"{key} in {self.url} has changed: its etag is {current}, not {etag}"
                )
            return self._store(key, body)

    async def put(self, key: str, body: bytes) -> str:
        """Write an object whatever is there; return its etag."""
        with self._lock:
            return self._store(key, body)

    async def delete(self, key: str) -> None:
        """Delete an object. Does nothing if it does not exist."""
        with self._lock:
            self._objects.pop(key, None)

    async def list(self, prefix: str) -> AsyncIterator[ObjectInfo]:
        """List the objects whose keys begin with ``prefix``, as they are at this moment."""
        with self._lock:
            found = sorted(item for item in self._objects.items() if item[0].startswith(prefix))
        for key, (stored, modified_at) in found:
            yield ObjectInfo(key, len(stored.body), modified_at)

    async def list_folder(self, folder: str) -> FolderListing:
        """List what is directly in a folder, as it is at this moment."""
        objects, folders = list[ObjectInfo](), dict[str, None]()
        async for info in self.list(folder):
            inner, slash, _ = info.key[len(folder) :].partition("/")
            if slash:
                folders[f"{folder}{inner}/"] = None
            else:
                objects.append(info)
        return FolderListing(objects, [*folders])

    async def close(self) -> None:
        """Do nothing: a named store is shared by all that opened it."""

    def _find(self, key: str) -> StoredObject:
        """Look an object up; the caller holds the lock."""
        if key not in self._objects:
            raise ObjectMissingError(f"there is no object {key} in {self.url}")
        return self._objects[key][0]

    def _store(self, key: str, body: bytes) -> str:
        """Put a new version in place; the caller holds the lock."""
        self._writes += 1
        # Copied, because the caller may still change a buffer of its own.
        stored = StoredObject(bytes(body), str(self._writes))
        self._objects[key] = stored, self.clock.now()
        return stored.etag


_shared: dict[str, MemoryStore] = {}
_shared_lock = threading.Lock()


def shared_memory_store(name: str, clock: Clock | None = None) -> MemoryStore:
    """Return the store of this name, the same one each time until it is forgotten.

    A new one uses ``clock``, or the system's.
    """
    with _shared_lock:
        return _shared.setdefault(name, MemoryStore(name, clock))


def forget_memory_store(name: str) -> None:
    """Let the next ``shared_memory_store`` of this name be a new one."""
    with _shared_lock:
        _shared.pop(name, None)
