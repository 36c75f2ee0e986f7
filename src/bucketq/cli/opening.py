"""How commands open the queue at an address, or the object itself."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bucketq.cli.parsing import check_timeout

if TYPE_CHECKING:
    from bucketq.admin import QueueObject
    from bucketq.queue.queue import Queue
    from bucketq.store.url import Location

_READ_S = 2.0
"""How long to wait for an object that says how many partitions a queue has."""


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
async def open_object(
    url: str, timeout_s: float, *, is_copy: bool = False
) -> AsyncIterator[QueueObject]:
    """Open the object of a queue, for commands that work on the storage.

    One of a queue with partitions must be named, as in ``queue.json?partition=3``, unless it is a
    copy: that stands for itself.
    """
    from bucketq.errors import InvalidRequestError
    from bucketq.store.url import split_partition

    plain, index = split_partition(url)
    async with open_partitions(plain, timeout_s) as targets:
        if index is None and len(targets) > 1 and not is_copy:
            mark = "&" if "?" in plain else "?"
            message = (
                f"{url} has {len(targets)} partitions, and this works on one object: name it, "
                f"from {plain}{mark}partition=0 to {plain}{mark}partition={len(targets) - 1}"
            )
            raise InvalidRequestError(message)
        if index is not None and index >= len(targets):
            raise InvalidRequestError(f"{plain} has no partition {index}")
        yield targets[index or 0]


@asynccontextmanager
async def open_partitions(url: str, timeout_s: float) -> AsyncIterator[list[QueueObject]]:
    """Open the object of a queue, and those of its other partitions."""
    from bucketq.admin import QueueObject
    from bucketq.clock import SystemClock
    from bucketq.codec.heading import read_heading
    from bucketq.errors import BucketQError
    from bucketq.store.url import open_store

    check_timeout(timeout_s)
    location = open_store(url)
    try:
        wanted, clock = location.partition, SystemClock()
        first = QueueObject(location.store, location.key, location.url, clock, timeout_s)
        found = await first.find()
        with suppress(BucketQError):  # A damaged object is a matter of the command.
            heading = None if found is None else read_heading(found.body, location.url)
            wanted = wanted if heading is None else heading.partition
        targets = [first]
        for index in range(1, 0 if wanted is None or wanted.index else wanted.count):
            part = location.at_partition(index, wanted.count if wanted else 0, "")
            targets.append(QueueObject(part.store, part.key, part.url, clock, timeout_s))
        yield targets
    finally:
        await location.store.close()


async def partitions_at(location: Location, timeout_s: float) -> list[Location]:
    """Return where the partitions of a queue are; of a queue without any, where it is itself.

    If the object cannot be read soon, the address decides.
    """
    import asyncio

    from bucketq.commit.objects.heading_reader import HeadingReader
    from bucketq.errors import BucketQError
    from bucketq.model.partitions import OtherPartitionsError
    from bucketq.store.base import ObjectMissingError

    wanted = location.partition
    try:
        async with asyncio.timeout(min(timeout_s, _READ_S)):
            await HeadingReader(location.store, location.key, location.url, wanted).read()
    except OtherPartitionsError as error:
        if wanted is not None or not error.count:
            raise
        return [location.at_partition(index, error.count, "") for index in range(error.count)]
    except (BucketQError, ObjectMissingError, TimeoutError):
        pass  # Its broker reports what is wrong.
    if wanted is None:
        return [location]
    return [location.at_partition(index, wanted.count, "") for index in range(wanted.count)]


def address_of(target: str) -> str:
    """Return the address of a file that was named by its path, or the address that was given."""
    return target if "://" in target else Path(target).absolute().as_uri()
