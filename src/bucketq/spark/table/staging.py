"""Keeps rows between the executors, which encode them, and the driver, which publishes them.

Batch and stream writers share this. Few rows travel in the message that a task sends to the driver.
Many are put in an object beside the queue,
``<queue>/staged/<write>!<partition>-<task>-<digest>.jsonl``, which only the driver of that write
reads. A task that is retried stages again under another name; the driver reads what the messages
name, and then removes everything that the write has staged. A task may stage after its write has
failed, and a driver may be killed: a later write removes what they leave behind.
"""

from __future__ import annotations

import asyncio
from array import array
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

from pyspark import TaskContext
from pyspark.sql.datasource import WriterCommitMessage

from bucketq.client.blocking_queue import BlockingQueue
from bucketq.client.connect_arguments import BROKERS
from bucketq.clock import SystemClock
from bucketq.errors import BucketQError, CorruptStateError, UnavailableError
from bucketq.model.base import NewJob
from bucketq.spark.executor_memory import exempt_modules
from bucketq.spark.format_options import WriteOptions
from bucketq.spark.queue_access import opened_store
from bucketq.spark.table.row_encoding import decode_rows, encode_rows
from bucketq.spark.table.write_columns import plan_columns
from bucketq.store.base import ObjectMissingError
from bucketq.store.queue_folder import folder_of
from bucketq.store.url import Location

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

INLINE_BYTES = 1024 * 1024
"""How much goes in a message: Spark's driver holds the messages of all tasks at once."""
ABANDONED_AFTER = timedelta(days=7)
"""Longer than any write takes, with room for clocks that are wrong."""
_ATTEMPTS = 3
_PAUSE_S = 0.5
"""A short fault of the store is retried here; a longer one is left to Spark, which retries the
task."""


@dataclass(frozen=True)
class Parcel:
    """The rows of a task, or the key of the object that holds them."""

    body: bytes | None = None
    key: str | None = None
    digest: str = ""


@dataclass(frozen=True)
class Staging:
    """The staged rows of one write."""

    url: str
    write_id: str
    inline_bytes: int = INLINE_BYTES

    def stage(self, body: bytes, partition: int, task: int) -> Parcel:
        """Keep rows until they are fetched. Through a broker they always go in the message."""
        if len(body) <= self.inline_bytes or self.url.startswith(BROKERS):
            return Parcel(body)
        digest = _digest(body)
        return asyncio.run(self._put(body, f"{partition:06d}-{task}-{digest}.jsonl", digest))

    def fetch(self, parcel: Parcel) -> bytes:
        """Return the rows that were staged."""
        if parcel.body is not None:
            return parcel.body
        found: list[bytes] = []
        asyncio.run(self._get(parcel, found))
        return found[0]

    def clear(self) -> None:
        """Remove everything that this write has staged, also of failed tasks, and what is very old.

        An object that cannot be removed now does no harm, and does not fail the write.
        """
        if not self.url.startswith(BROKERS):
            with suppress(BucketQError):
                asyncio.run(self._clear())

    async def _put(self, body: bytes, name: str, digest: str) -> Parcel:
        async with opened_store(self.url) as location:
            key = f"{self._prefix(location)}{name}"
            for attempts_left in range(_ATTEMPTS - 1, -1, -1):
                try:
                    await location.store.put(key, body)
                    break
                except UnavailableError:
                    if not attempts_left:
                        raise
                    await asyncio.sleep(_PAUSE_S)
        return Parcel(key=key, digest=digest)

    async def _get(self, parcel: Parcel, found: list[bytes]) -> None:
        """Add to ``found`` the rows that were staged.

        They are not returned, because ``asyncio.run`` formats the result of its task, for a debug
        message that is never shown, and for many bytes that takes longer than reading them.
        """
        assert parcel.key is not None  # noqa: S101 - the other form of a parcel
        async with opened_store(self.url) as location:
            try:
                body = (await location.store.get(parcel.key)).body
            except ObjectMissingError as error:
                message = (
                    f"the staged rows {parcel.key} are gone, so the rest of this write cannot be "
                    "pushed: write again, and do not remove objects under staged/ meanwhile"
                )
                raise CorruptStateError(message) from error
        if _digest(body) != parcel.digest:
            message = f"the staged rows {parcel.key} are not those that were staged: write again"
            raise CorruptStateError(message)
        found.append(body)

    async def _clear(self) -> None:
        async with opened_store(self.url) as location:
            own, long_ago = self._prefix(location), SystemClock().now() - ABANDONED_AFTER
            keys = [
                info.key
                async for info in location.store.list(_folder(location))
                if info.key.startswith(own) or info.modified_at < long_ago
            ]
            for key in keys:
                await location.store.delete(key)

    def _prefix(self, location: Location) -> str:
        """Return the prefix of this write's keys, which no other write has: ids contain no ``!``.

        Not a folder for each write, because on a disk it would stay behind with its lock.
        """
        return f"{_folder(location)}{self.write_id}!"


def _folder(location: Location) -> str:
    return f"{folder_of(location.store.url, location.key)}staged/"


def _digest(body: bytes) -> str:
    return blake2b(body, digest_size=16).hexdigest()


@dataclass
class StagedRows(WriterCommitMessage):
    """The message of a task to the driver: which rows it has, and where they are."""

    partition: int
    sizes: array[int]
    parcel: Parcel
    write_id: str


class RowStager:
    """Encodes and stages rows on executors. It is pickled and sent there with its writer.

    The columns are checked, and the queue's settings read, when it is made, on the driver.
    """

    def __init__(self, schema: StructType, options: WriteOptions) -> None:
        self.access = options.access
        self.columns = plan_columns(schema, options)
        with self.access.open(create=True) as queue:
            self.settings = queue.settings()

    def stage(
        self,
        batches: Iterator[pa.RecordBatch],
        context: TaskContext,
        write_id: str,
        id_source: str | None = None,
    ) -> StagedRows:
        """Stage the rows of a task; job ids follow from ``id_source``, by default the write id."""
        exempt_modules()
        partition = context.partitionId()
        rows = encode_rows(batches, self.columns, self.settings, id_source or write_id, partition)
        parcel = self._staging(write_id).stage(rows.body, partition, context.taskAttemptId())
        return StagedRows(partition, rows.sizes, parcel, write_id)

    def jobs(self, staged: Sequence[StagedRows]) -> Iterator[NewJob]:
        """Yield the jobs of all tasks; the rows of each are fetched when their turn comes."""
        for each in staged:
            if each.sizes:
                yield from decode_rows(self._staging(each.write_id).fetch(each.parcel))

    def clear(self, write_id: str) -> None:
        """Remove everything that a write has staged."""
        self._staging(write_id).clear()

    def _staging(self, write_id: str) -> Staging:
        return Staging(self.access.url, write_id)


def by_partition(messages: Sequence[WriterCommitMessage | None]) -> list[StagedRows]:
    """Return the messages of the tasks in the order of their partitions."""
    staged = (each for each in messages if isinstance(each, StagedRows))
    return sorted(staged, key=lambda each: each.partition)


def forget_writer(queue: BlockingQueue[Any], write_id: str, part: int) -> None:
    """Let the queue forget a write without a ``writeId``, whose answer has come.

    It cannot come again: only a write that fails shows its id. If forgetting fails, the queue does
    it by its age.
    """
    with suppress(BucketQError):
        queue.publish(write_id, 0, (), part=part, last=True)


def task_context() -> TaskContext:
    """Return the context of the task that calls this."""
    context = TaskContext.get()
    assert context is not None  # noqa: S101 - Spark calls writers in a task and nowhere else
    return context
