"""``option("bulk", "true")``: executors write segments, and the driver adds all rows in one commit.

The driver reserves names when it plans the write. Each task encodes its rows as segments and puts
them beside the queue; the messages of the tasks have only their entries. When all tasks have
succeeded, one commit of a few kilobytes adopts the segments that Spark has picked. So a write has
no limit but those of the queue, and is still all or none.

A task that is retried, or a second copy of a slow one, puts the same segments, or others that no
message names; a sweep deletes those. Writing the same rows again under the same ``writeId`` adds
nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from bucketq.clock import SystemClock, new_id
from bucketq.codec.pushed_rows import pushed_row
from bucketq.codec.segment_file import SEGMENT_BYTES, SegmentRow, encode_segment, sort_rows
from bucketq.commit.bulk_write import BulkWrite, Reservation, put_reserved
from bucketq.commit.objects.segment_folder import SegmentFolder
from bucketq.errors import BucketQError, InvalidRequestError, RejectedError, UnavailableError
from bucketq.model.indexes.segments import SegmentRecord
from bucketq.model.settings import Settings
from bucketq.spark.format_options import WriteOptions
from bucketq.spark.queue_access import QueueAccess, opened_store
from bucketq.spark.table.row_encoding import decode_rows, encode_rows
from bucketq.spark.table.staging import task_context
from bucketq.spark.table.write_columns import plan_columns

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

_NOT_BULK = ("id", "key", "delay_s", "run_at")
"""Columns whose rows have to be compared with what is in the queue, or with the time."""
_PART = 2**62
"""The position of a bulk write, behind every position of a write in several commits."""

A = TypeVar("A")


@dataclass
class PutSegments(WriterCommitMessage):
    """The message of a task to the driver: the entries of the segments that it has put."""

    partition: int
    records: list[SegmentRecord]


class BulkJobWriter(DataSourceArrowWriter):
    """One bulk write. ``write`` runs on executors, ``commit`` and ``abort`` on the driver."""

    def __init__(self, schema: StructType, options: WriteOptions) -> None:
        """Reserve, on the driver. Raises ``InvalidRequestError`` if rows cannot be added so."""
        self._access = options.access
        self._columns = plan_columns(schema, options)
        self._write_id = options.write_id or new_id(SystemClock())
        _check(self._access, list(self._columns.fields))
        self._settings, self._reservation = asyncio.run(self._on_queue(self._begin))

    def write(self, iterator: Iterator[pa.RecordBatch]) -> PutSegments:
        """Put the rows of a task."""
        partition = task_context().partitionId()
        if self._reservation is None:
            return PutSegments(partition, [])
        rows = encode_rows(iterator, self._columns, self._settings, self._write_id, partition)
        records: list[SegmentRecord] = []
        asyncio.run(self._put(self._reservation, rows.body, records))
        return PutSegments(partition, records)

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Add the rows of all tasks."""
        found = [each for each in messages if isinstance(each, PutSegments)]
        found.sort(key=lambda each: each.partition)
        records = [record for each in found for record in each.records]
        reservation = self._reservation
        if reservation is None:
            return  # All of it was added by an earlier run.

        async def adopt(bulk: BulkWrite) -> None:
            await bulk.adopt(reservation, self._write_id, 0, records, _PART)

        try:
            asyncio.run(self._on_queue(adopt))
        except RejectedError as error:
            # Without the cause, whose message is in this one: Spark would print both stacks.
            raise RejectedError(f"nothing was pushed: {error}") from None
        except BucketQError as error:
            raise UnavailableError(
                f"whether the rows were pushed is unknown: {error}; write the same rows again with "
                f'option("writeId", "{self._write_id}"), which duplicates nothing'
            ) from None

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Give the reservation up; the next sweep deletes what was put."""
        del messages
        reservation = self._reservation
        if reservation is not None:
            asyncio.run(self._on_queue(lambda bulk: bulk.abandon(reservation)))

    async def _begin(self, bulk: BulkWrite) -> tuple[Settings, Reservation | None]:
        position = bulk.position(self._write_id)
        if position is not None and position != (0, _PART):
            raise InvalidRequestError(
                f'option("writeId", "{self._write_id}") names a write that was begun in several '
                "commits: resume it without the option bulk"
            )
        return await bulk.settings(), await bulk.reserve(self._write_id, 0, _PART)

    async def _put(
        self, reservation: Reservation, body: bytes, records: list[SegmentRecord]
    ) -> None:
        """Put rows on an executor, and add the entries to ``records``."""
        clock = SystemClock()
        async with opened_store(self._access.url) as location:
            folder = SegmentFolder(
                location.store, location.key, reservation.incarnation, location.url, clock
            )
            for rows in _pieces(body):
                encoded = encode_segment("ready", sort_rows("ready", rows))
                records.append(await put_reserved(folder, reservation, encoded, clock))

    async def _on_queue(self, act: Callable[[BulkWrite], Awaitable[A]]) -> A:
        """Do something with the queue, on the driver."""
        async with _opened(self._access) as bulk:
            return await act(bulk)


@asynccontextmanager
async def _opened(access: QueueAccess) -> AsyncIterator[BulkWrite]:
    async with opened_store(access.url) as location:
        bulk = BulkWrite(
            location.store,
            location.key,
            location.url,
            SystemClock(),
            timeout_s=access.timeout_s,
        )
        async with bulk:
            yield bulk


def _pieces(body: bytes) -> Iterator[list[SegmentRow]]:
    """Yield the rows of each segment, numbered from 0 on in each."""
    rows, size_bytes = list[SegmentRow](), 0
    for job in decode_rows(body):
        row = pushed_row(job, len(rows))
        if rows and size_bytes + len(row.line) >= SEGMENT_BYTES:
            yield rows
            rows, size_bytes = [], 0
            row = pushed_row(job, 0)
        rows.append(row)
        size_bytes += len(row.line) + 1
    if rows:
        yield rows


def _check(access: QueueAccess, fields: list[str]) -> None:
    if access.is_broker:
        raise InvalidRequestError(
            "the option bulk needs the address of the queue's object, not of a broker: executors "
            "write beside it"
        )
    for name in _NOT_BULK:
        if name in fields:
            raise InvalidRequestError(
                f"rows with a column {name} cannot be written with the option bulk, because each "
                'has to be compared with the queue: use option("maxJobsPerCommit", "10000") instead'
            )
