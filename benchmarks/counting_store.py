"""``CountingStore``: how many requests a benchmark makes, and how many bytes they carry."""

from __future__ import annotations

from collections.abc import AsyncIterator

from bucketq.store.base import ObjectInfo, ObjectStore, StoredObject


class CountingStore:
    """A store that counts the requests to another."""

    def __init__(self, inner: ObjectStore) -> None:
        """Count the requests to ``inner``."""
        self._inner = inner
        self.writes = self.reads = self.transferred_bytes = 0

    @property
    def url(self) -> str:
        """Where the store is."""
        return self._inner.url

    @property
    def write_interval_s(self) -> float:
        """The pause that the provider wants between two writes of one object."""
        return self._inner.write_interval_s

    async def get(self, key: str) -> StoredObject:
        """Read an object."""
        found = await self._inner.get(key)
        self._read(len(found.body))
        return found

    async def get_if_changed(self, key: str, etag: str) -> StoredObject | None:
        """Read an object that has changed."""
        found = await self._inner.get_if_changed(key, etag)
        self._read(len(found.body) if found else 0)
        return found

    async def get_range(self, key: str, offset: int, length: int) -> bytes:
        """Read a range of an object."""
        self._read(length)
        return await self._inner.get_range(key, offset, length)

    async def create(self, key: str, body: bytes) -> str:
        """Create an object."""
        self._write(len(body))
        return await self._inner.create(key, body)

    async def replace(self, key: str, body: bytes, etag: str) -> str:
        """Replace an object."""
        self._write(len(body))
        return await self._inner.replace(key, body, etag)

    async def put(self, key: str, body: bytes) -> str:
        """Write an object."""
        self._write(len(body))
        return await self._inner.put(key, body)

    async def delete(self, key: str) -> None:
        """Delete an object."""
        self._write(0)
        await self._inner.delete(key)

    async def list(self, prefix: str) -> AsyncIterator[ObjectInfo]:
        """List objects."""
        self._write(0)
        async for info in self._inner.list(prefix):
            yield info

    async def close(self) -> None:
        """Close it."""
        await self._inner.close()

    def _read(self, size_bytes: int) -> None:
        self.reads += 1
        self.transferred_bytes += size_bytes

    def _write(self, size_bytes: int) -> None:
        self.writes += 1
        self.transferred_bytes += size_bytes
