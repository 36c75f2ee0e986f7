"""A folder that behaves like object storage: each request takes 50 ms longer, and is counted."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

from benchmarks.broker_processes import DelayedStore
from benchmarks.peers.adapter import Usage

from bucketq.store.base import ObjectInfo, StoredObject
from bucketq.store.local import LocalStore


class CountedStore(DelayedStore):
    """Counts requests and bytes. Removing an object is free, as at the providers."""

    def __init__(self, folder: Path, usage: Usage) -> None:
        """Keep objects in a folder."""
        super().__init__(LocalStore(folder))
        self._usage = usage

    async def get(self, key: str) -> StoredObject:
        """Read an object."""
        found = await super().get(key)
        self._count_read(len(found.body))
        return found

    async def get_if_changed(self, key: str, etag: str) -> StoredObject | None:
        """Read an object that has changed."""
        found = await super().get_if_changed(key, etag)
        self._count_read(len(found.body) if found else 0)
        return found

    async def get_range(self, key: str, offset: int, length: int) -> bytes:
        """Read a range of an object."""
        self._count_read(length)
        return await super().get_range(key, offset, length)

    async def create(self, key: str, body: bytes) -> str:
        """Write a new object."""
        self._count_write(len(body))
        return await super().create(key, body)

    async def replace(self, key: str, body: bytes, etag: str) -> str:
        """Replace an object."""
        self._count_write(len(body))
        return await super().replace(key, body, etag)

    async def put(self, key: str, body: bytes) -> str:
        """Write an object unconditionally."""
        self._count_write(len(body))
        return await super().put(key, body)

    async def list(self, prefix: str) -> AsyncIterator[ObjectInfo]:
        """List objects, which is charged like a write."""
        self._count_write(0)
        async for info in super().list(prefix):
            yield info

    def _count_read(self, size_bytes: int) -> None:
        self._usage.reads += 1
        self._usage.bytes_read += size_bytes

    def _count_write(self, size_bytes: int) -> None:
        self._usage.writes += 1
        self._usage.bytes_written += size_bytes
