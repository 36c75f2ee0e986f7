"""How commands open the queue at an address, or the object itself."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bucketq.cli.parsing import check_timeout

if TYPE_CHECKING:
    from bucketq.admin import QueueObject
    from bucketq.queue.queue import Queue


@asynccontextmanager
async def open_queue(
    url: str,
    timeout_s: float,
    *,
    create: bool = False,
    worker: str | None = None,
    reads_all: bool = False,
) -> AsyncIterator[Queue[Any]]:
    """Open the queue at an address, through its broker if one answers and directly if not.

    A command that reads the whole queue reads the storage if it can (``reads_all``): a broker would
    send it in one message, which has a limit, and serve no one else meanwhile.
    """
    from bucketq.client.connect import connect
    from bucketq.client.connect_arguments import BROKERS

    check_timeout(timeout_s)
    connection = connect(
        url,
        mode="direct" if reads_all and not url.startswith(BROKERS) else "auto",
        launch="never",
        timeout_s=timeout_s,
        create=create,
        worker=worker or None,
    )
    async with connection as queue:
        yield queue


@asynccontextmanager
async def open_object(url: str, timeout_s: float) -> AsyncIterator[QueueObject]:
    """Open the object of a queue, for commands that work on the storage."""
    from bucketq.admin import QueueObject
    from bucketq.clock import SystemClock
    from bucketq.store.url import open_store

    check_timeout(timeout_s)
    location = open_store(url)
    try:
        yield QueueObject(location.store, location.key, location.url, SystemClock(), timeout_s)
    finally:
        await location.store.close()


def address_of(target: str) -> str:
    """Return the address of a file that was named by its path, or the address that was given."""
    return target if "://" in target else Path(target).absolute().as_uri()
