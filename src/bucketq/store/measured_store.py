"""``MeasuredStore``: a store that reports each request with its duration and outcome.

Only a process that exposes metrics wraps its stores; all others use them as they are.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TypeVar

from bucketq.store.base import ObjectInfo, ObjectStore, StoredObject

A = TypeVar("A")

OnRequest = Callable[[str, float, BaseException | None], None]
"""Called with the name of a request, its duration in seconds, and the error that it raised."""


class MeasuredStore:
    """Passes every request on to another store, and reports it."""

    def __init__(self, store: ObjectStore, on_request: OnRequest) -> None:
        """Measure a store; ``on_request`` must not raise."""
        self._store = store
        self._on_request = on_request

    @property
    def url(self) -> str:
        """The address of the store."""
        return self._store.url

    @property
    def write_interval_s(self) -> float:
        """The pause that the provider wants between two writes of one object."""
        return self._store.write_interval_s

    async def get(self, key: str) -> StoredObject:
        """Read an object."""
        return await self._measure("get", self._store.get(key))

    async def get_if_changed(self, key: str, etag: str) -> StoredObject | None:
        """Read the object if its etag differs."""
        return await self._measure("get_if_changed", self._store.get_if_changed(key, etag))

    async def get_range(self, key: str, offset: int, length: int) -> bytes:
        """Read a part of an object."""
        return await self._measure("get_range", self._store.get_range(key, offset, length))

    async def create(self, key: str, body: bytes) -> str:
        """Write an object that must not exist yet."""
        return await self._measure("create", self._store.create(key, body))

    async def replace(self, key: str, body: bytes, etag: str) -> str:
        """Replace an object that must still have ``etag``."""
        return await self._measure("replace", self._store.replace(key, body, etag))

    async def put(self, key: str, body: bytes) -> str:
        """Create or overwrite an object."""
        return await self._measure("put", self._store.put(key, body))

    async def delete(self, key: str) -> None:
        """Delete an object."""
        await self._measure("delete", self._store.delete(key))

    async def list(self, prefix: str) -> AsyncIterator[ObjectInfo]:
        """List objects; the duration includes what the caller does with each of them."""
        began_s = asyncio.get_running_loop().time()
        error: BaseException | None = None
        try:
            async for each in self._store.list(prefix):
                yield each
        except Exception as raised:
            error = raised
            raise
        finally:
            self._on_request("list", asyncio.get_running_loop().time() - began_s, error)

    async def close(self) -> None:
        """Close the other store."""
        await self._store.close()

    async def _measure(self, name: str, answer: Awaitable[A]) -> A:
        began_s = asyncio.get_running_loop().time()
        error: BaseException | None = None
        try:
            return await answer
        except BaseException as raised:
            error = raised
            raise
        finally:
            self._on_request(name, asyncio.get_running_loop().time() - began_s, error)
