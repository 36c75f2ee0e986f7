"""``df.write.format("bucketq")``: executors write segments, and the driver adds all rows at once.

A task with many rows encodes them as segments and puts them beside the queue; its message to the
driver has only their entries. A task with few sends its rows in the message. When all tasks have
succeeded, the driver adds everything in one commit: it adopts the segments, or, if all tasks
together have few rows, publishes them. So a write has no limit but those of the queue, is all or
none, and a small one writes no segments.

The first task that has many rows reserves the names of segments, under a name that the driver has
made, and every other one joins. Each renews the reservation while it runs. A task that is retried,
or a second copy of a slow one, puts the same segments, or others that no message names; a sweep
deletes those. Writing the same rows again under the same ``writeId`` adds nothing.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from bucketq.clock import SystemClock, new_id
from bucketq.codec.segment_file import SEGMENT_BYTES
from bucketq.commit.bulk_write import BulkWrite, Reservation, new_name, put_reserved
from bucketq.commit.objects.segment_folder import SegmentFolder
from bucketq.errors import BucketQError, InvalidRequestError, RejectedError, UnavailableError
from bucketq.model.effects.segment_changes import FORMAT
from bucketq.model.history import is_wanted
from bucketq.model.segments import SegmentRecord
from bucketq.model.settings import Settings
from bucketq.spark.format_options import WriteOptions
from bucketq.spark.queue_access import QueueAccess, opened_store
from bucketq.spark.table.held_reservation import HeldReservation, opened_bulk
from bucketq.spark.table.job_writer import JobWriter
from bucketq.spark.table.row_columns import RowColumns, cut_rows, encode_columns, size_of
from bucketq.spark.table.row_encoding import decode_rows, encode_batches, lines_of
from bucketq.spark.table.staging import INLINE_BYTES, task_context
from bucketq.spark.table.write_columns import WriteColumns, plan_columns

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

_COMPARED = ("id", "key", "delay_s", "run_at", "expires_in_s")
"""Columns whose rows have to be compared with what is in the queue, or with the time."""
PART = 2**62
"""The position of such a write, behind every position of a write in several commits."""
_PUTS = 2
"""How many segments a task puts at once: one is on its way while another is encoded, and a task
holds little memory."""

A = TypeVar("A")


def new_writer(schema: StructType, options: WriteOptions) -> JobWriter | BulkJobWriter:
    """Return the writer of a frame, on the driver.

    Raises:
        InvalidRequestError: A column is wrong, or ``bulk`` is demanded and cannot be had.
    """
    if options.bulk is False:
        return JobWriter(schema, options)
    columns = plan_columns(schema, options)
    write_id = options.write_id or new_id(SystemClock())
    obstacle = _find_obstacle(options.access, columns)
    start = None if obstacle else asyncio.run(_begin(options.access, write_id))
    if start is not None and not start.obstacle:
        return BulkJobWriter(options, columns, start.settings, write_id)
    if options.bulk:
        reason = obstacle if start is None else start.obstacle
        raise InvalidRequestError(f'option("bulk", "true") is not possible: {reason}')
    if start is None:
        return JobWriter(schema, options)
    return JobWriter(schema, options, start.obstacle, is_begun=start.is_begun)


class _Start(NamedTuple):
    """What is known about a queue and a writer before a write."""

    settings: Settings
    obstacle: str
    """Why the queue cannot be written to in bulk, or an empty text."""
    is_begun: bool
    """Whether the writer has published some of its rows, in ordinary commits."""


@dataclass
class TaskRows(WriterCommitMessage):
    """The message of a task to the driver: its rows, or the entries of the segments it has put."""

    partition: int
    reservation: Reservation | None = None
    records: list[SegmentRecord] = field(default_factory=list)
    rows: list[RowColumns] = field(default_factory=list)


class BulkJobWriter(DataSourceArrowWriter):
    """One write. ``write`` runs on executors, ``commit`` and ``abort`` on the driver."""

    def __init__(
        self, options: WriteOptions, columns: WriteColumns, settings: Settings, write_id: str
    ) -> None:
        self._access = options.access
        self._inline_bytes = 0 if options.bulk else INLINE_BYTES
        self._columns = columns
        self._settings = settings
        self._write_id = write_id
        self._name = new_name(SystemClock())

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskRows:
        """Put the rows of a task, or send them."""
        partition = task_context().partitionId()
        rows = encode_batches(iterator, self._columns, self._settings, self._write_id, partition)
        first = list[RowColumns]()
        while size_of(first) <= self._inline_bytes:
            if (batch := next(rows, None)) is None:
                return TaskRows(partition, rows=first)
            first.append(batch)
        with HeldReservation(self._access, self._write_id, PART, self._name) as held:
            pieces = cut_rows(chain(first, rows), SEGMENT_BYTES)
            first_piece = next(pieces)
            if (reservation := held.get()) is None:
                return TaskRows(partition)  # All of it was added by an earlier run.
            records = asyncio.run(self._put(reservation, chain([first_piece], pieces)))
        return TaskRows(partition, reservation, records)

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Add the rows of all tasks."""
        found = [each for each in messages if isinstance(each, TaskRows)]
        found.sort(key=lambda each: each.partition)
        try:
            if any(each.records for each in found) or not self._is_small(found):
                asyncio.run(self._on_queue(lambda bulk: self._adopt(bulk, found)))
            else:
                self._publish([*chain.from_iterable(each.rows for each in found)])
        except RejectedError as error:
            # Without the cause, whose message is in this one: Spark would print both stacks.
            raise RejectedError(f"nothing was pushed: {error}") from None
        except BucketQError as error:
            raise UnavailableError(
                f"whether the rows were pushed is unknown: {error}; write the same rows again with "
                f'option("writeId", "{self._write_id}"), which duplicates nothing'
            ) from None

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Give the reservation up; the next sweep deletes what was put.

        Spark does not wait for the other tasks: one that reserves after this leaves a reservation
        behind, which expires.
        """
        del messages
        asyncio.run(self._on_queue(lambda bulk: bulk.clear(self._write_id, self._name)))

    def _is_small(self, found: list[TaskRows]) -> bool:
        """Whether all rows together may be published in one ordinary commit."""
        rows = [*chain.from_iterable(each.rows for each in found)]
        settings = self._settings
        return (
            sum(map(len, rows)) <= settings.max_batch_jobs
            and sum(int(each.sizes.sum()) for each in rows) <= settings.max_batch_bytes
        )

    def _publish(self, rows: list[RowColumns]) -> None:
        jobs = list(decode_rows(b"".join(map(lines_of, rows))))
        if jobs:
            with self._access.open(create=True) as queue:
                queue.publish(self._write_id, 0, jobs, part=PART)

    async def _adopt(self, bulk: BulkWrite, found: list[TaskRows]) -> None:
        """Add the segments of all tasks; rows that came in messages are put first."""
        reservations = {each.reservation for each in found} - {None}
        reservation = await bulk.reserve(self._write_id, 0, PART, name=self._name)
        if reservation is None:
            return
        if reservations - {reservation}:
            raise RejectedError(
                "the reservation of this write expired while it ran (reservation_retention_s): "
                "raise that setting, and write the rows again"
            )
        records, waiting = list[SegmentRecord](), list[RowColumns]()
        for each in found:
            if each.rows:
                waiting += each.rows
            else:
                records += await self._put(reservation, cut_rows(waiting, SEGMENT_BYTES))
                records += each.records
                waiting = []
        records += await self._put(reservation, cut_rows(waiting, SEGMENT_BYTES))
        await bulk.adopt(reservation, self._write_id, 0, records, PART)

    async def _put(
        self, reservation: Reservation, pieces: Iterable[list[RowColumns]]
    ) -> list[SegmentRecord]:
        """Put rows while others are encoded; return the entries in their order."""
        clock, records = SystemClock(), list[SegmentRecord]()
        puts = deque[asyncio.Task[SegmentRecord]]()
        async with opened_store(self._access.url) as location:
            folder = SegmentFolder(
                location.store, location.key, reservation.incarnation, location.url, clock
            )
            try:
                for each in pieces:
                    if len(puts) == _PUTS:
                        records.append(await puts.popleft())
                    put = put_reserved(folder, reservation, encode_columns(each), clock)
                    puts.append(asyncio.get_running_loop().create_task(put))
                    await asyncio.sleep(0)  # It begins before the next rows are encoded.
                while puts:
                    records.append(await puts.popleft())
            finally:
                for task in puts:
                    task.cancel()
                await asyncio.gather(*puts, return_exceptions=True)
        return records

    async def _on_queue(self, act: Callable[[BulkWrite], Awaitable[A]]) -> A:
        """Do something with the queue, on the driver."""
        async with opened_bulk(self._access) as bulk:
            return await act(bulk)


async def _begin(access: QueueAccess, write_id: str) -> _Start:
    """Look whether rows can be added in bulk; give up what an earlier run has reserved."""
    async with opened_bulk(access) as bulk:
        settings = await bulk.settings()
        is_begun = bulk.position(write_id) not in (None, (0, PART))
        obstacle = ""
        if settings.max_format < FORMAT:
            obstacle = f"the max_format of the queue is {settings.max_format} (`bucketq upgrade`)"
        elif is_wanted(settings):
            obstacle = (
                "the queue keeps a history (history_retention_s), which has every job that is "
                "pushed, and jobs that are added in bulk are not read"
            )
        elif is_begun:
            obstacle = (
                f'option("writeId", "{write_id}") names a write that was begun in several commits'
            )
        else:
            await bulk.clear(write_id)  # A run that was killed, or one that still writes.
        return _Start(settings, obstacle, is_begun)


def _find_obstacle(access: QueueAccess, columns: WriteColumns) -> str:
    if access.is_broker:
        return (
            "it needs the address of the queue's object, not of a broker: executors write beside it"
        )
    for name in _COMPARED:
        if name in columns.fields:
            return f"each row with a column {name} has to be compared with the queue"
    if "job_group" in columns.fields:
        return "segments that executors write have no groups, and there is a column job_group"
    return ""
