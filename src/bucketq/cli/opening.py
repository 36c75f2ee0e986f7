"""How commands open the queue at an address, or the object itself."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from bucketq.admin import Place
from bucketq.cli.parsing import check_timeout
from bucketq.client.connect import connect
from bucketq.clock import SystemClock
from bucketq.queue.base import Queue
from bucketq.store.url import open_store


@asynccontextmanager
async def opened(
    url: str, timeout_s: float, *, create: bool = False, worker: str | None = None
) -> AsyncIterator[Queue[Any]]:
    """Open the queue at an address: through its broker where one answers, or else directly."""
    check_timeout(timeout_s)
    connection = connect(
        url, launch="never", timeout_s=timeout_s, create=create, worker=worker or None
    )
    async with connection as queue:
        yield queue


@asynccontextmanager
async def place_of(url: str, timeout_s: float) -> AsyncIterator[Place]:
    """Open the place of an object, to take care of it."""
    patience_s = check_timeout(timeout_s)
    location = open_store(url)
    try:
        yield Place(location.store, location.key, location.url, SystemClock(), patience_s)
    finally:
        await location.store.close()
