"""Rows of any number, which executors write as segments and the driver adds in one commit.

A task with many rows encodes them as segments and puts them beside the queue; its message to the
driver has only their entries. A task with few sends its rows in the message. When all tasks have
succeeded, the driver adds everything in one commit: it adopts the segments, or, if all tasks
together have few rows, publishes them. So a write has no limit but those of the queue, is all or
none, and a small one writes no segments.

The first task that has many rows reserves the names of segments, under a name that all tasks know,
and every other one joins. Each renews the reservation while it runs. A task that is retried, or a
second copy of a slow one, puts the same segments, or others that no message names; a sweep deletes
those.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from pyspark.sql.datasource import WriterCommitMessage

from bucketq.clock import SystemClock
from bucketq.codec.segment_file import SEGMENT_BYTES
from bucketq.commit.bulk_write import BulkWrite, Reservation, put_reserved
from bucketq.commit.objects.segment_folder import SegmentFolder
from bucketq.errors import BucketQError, RejectedError
from bucketq.model.effects.segment_changes import FORMAT
from bucketq.model.history import is_wanted
from bucketq.model.segments import SegmentRecord
from bucketq.model.settings import Settings
from bucketq.spark.executor_memory import exempt_modules
from bucketq.spark.queue_access import QueueAccess, opened_store
from bucketq.spark.table.held_reservation import HeldReservation, opened_bulk
from bucketq.spark.table.row_columns import RowColumns, cut_rows, encode_columns, size_of
from bucketq.spark.table.row_encoding import decode_rows, encode_batches, lines_of
from bucketq.spark.table.staging import INLINE_BYTES, forget_writer, task_context
from bucketq.spark.table.write_columns import WriteColumns

if TYPE_CHECKING:
    import pyarrow as pa

_COMPARED = ("id", "key", "delay_s", "run_at", "expires_in_s")
"""Columns whose rows have to be compared with what is in the queue, or with the time."""
_PUTS = 2
"""How many segments a task puts at once: one is on its way while another is encoded, and a task
holds little memory."""

A = TypeVar("A")


class BulkPosition(NamedTuple):
    """What a writer publishes, and the name of the reservation that its tasks share."""

    writer: str
    batch: int
    part: int
    name: str
    is_last: bool = False
    """Whether nothing can come under the name of the writer again, once it is published."""


@dataclass
class TaskRows(WriterCommitMessage):
    """The message of a task to the driver: its rows, or the entries of the segments it has put."""

    partition: int
    reservation: Reservation | None = None
    records: list[SegmentRecord] = field(default_factory=list)
    rows: list[RowColumns] = field(default_factory=list)
    writer: str = ""


@dataclass(frozen=True)
class BulkRows:
    """Writes rows on executors, and adds them on the driver. It is pickled with its writer."""

    access: QueueAccess
    columns: WriteColumns
    settings: Settings
    inline_bytes: int = INLINE_BYTES

    def write(
        self, batches: Iterator[pa.RecordBatch], position: BulkPosition, id_source: str
    ) -> TaskRows:
        """Put the rows of a task, or send them; the ids of its jobs follow from ``id_source``."""
        exempt_modules()
        partition, writer = task_context().partitionId(), position.writer
        rows = encode_batches(batches, self.columns, self.settings, id_source, partition)
        first = list[RowColumns]()
        while size_of(first) <= self.inline_bytes:
            if (batch := next(rows, None)) is None:
                return TaskRows(partition, rows=first, writer=writer)
            first.append(batch)
        with HeldReservation(self.access, position[:4]) as held:
            pieces = cut_rows(chain(first, rows), SEGMENT_BYTES)
            first_piece = next(pieces)
            if (reservation := held.get()) is None:
                # All of it was added by an earlier run.
                return TaskRows(partition, writer=writer)
            records = asyncio.run(self._put(reservation, chain([first_piece], pieces)))
        return TaskRows(partition, reservation, records, writer=writer)

    def add(self, messages: Sequence[WriterCommitMessage | None], position: BulkPosition) -> None:
        """Add the rows of all tasks, unless the position was published. Raises as a push."""
        found = [each for each in messages if isinstance(each, TaskRows)]
        found.sort(key=lambda each: each.partition)
        if any(each.records for each in found) or not self._is_small(found):
            asyncio.run(self._on_queue(lambda bulk: self._adopt(bulk, found, position)))
        else:
            self._publish([*chain.from_iterable(each.rows for each in found)], position)

    def give_up(self, position: BulkPosition) -> None:
        """Give the reservation up."""
        asyncio.run(self._on_queue(lambda bulk: bulk.clear(position.writer, position.name)))

    def _is_small(self, found: list[TaskRows]) -> bool:
        """Whether all rows together may be published in one ordinary commit."""
        rows = [*chain.from_iterable(each.rows for each in found)]
        settings = self.settings
        return (
            sum(map(len, rows)) <= settings.max_batch_jobs
            and sum(int(each.sizes.sum()) for each in rows) <= settings.max_batch_bytes
        )

    def _publish(self, rows: list[RowColumns], position: BulkPosition) -> None:
        jobs = list(decode_rows(b"".join(map(lines_of, rows))))
        if jobs:
            with self.access.open(create=True) as queue:
                queue.publish(position.writer, position.batch, jobs, part=position.part)
                if position.is_last:
                    forget_writer(queue, position.writer, position.part)

    async def _adopt(self, bulk: BulkWrite, found: list[TaskRows], position: BulkPosition) -> None:
        """Add the segments of all tasks; rows that came in messages are put first."""
        writer, batch, part, name, is_last = position
        reservations = {each.reservation for each in found} - {None}
        reservation = await bulk.reserve(writer, batch, part, name=name)
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
        await bulk.adopt(reservation, writer, batch, records, part)
        if is_last:
            with suppress(BucketQError):  # It is forgotten later, by its age.
                await bulk.forget(writer, batch, part)

    async def _put(
        self, reservation: Reservation, pieces: Iterable[list[RowColumns]]
    ) -> list[SegmentRecord]:
        """Put rows while others are encoded; return the entries in their order."""
        clock, records = SystemClock(), list[SegmentRecord]()
        puts = deque[asyncio.Task[SegmentRecord]]()
        async with opened_store(self.access.url) as location:
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
        async with opened_bulk(self.access) as bulk:
            return await act(bulk)


def obstacle_in_frame(access: QueueAccess, columns: WriteColumns) -> str:
    """Say why rows with these columns cannot be written as segments; an empty text: they can."""
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


def obstacle_in_queue(settings: Settings) -> str:
    """Say why a queue does not adopt segments; an empty text: it does."""
    if settings.max_format < FORMAT:
        return f"the max_format of the queue is {settings.max_format} (`bucketq upgrade`)"
    if is_wanted(settings):
        return (
            "the queue keeps a history (history_retention_s), which has every job that is "
            "pushed, and jobs that are added in bulk are not read"
        )
    return ""
