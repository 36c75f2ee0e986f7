"""``df.write.format("bucketq")``: executors write segments, and the driver adds all rows at once.

``bulk_rows`` does it, under a reservation whose name the driver has made. Writing the same rows
again under the same ``writeId`` adds nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from bucketq.clock import SystemClock, new_id
from bucketq.commit.bulk_write import new_name
from bucketq.errors import BucketQError, InvalidRequestError, RejectedError, UnavailableError
from bucketq.model.settings import Settings
from bucketq.spark.format_options import WriteOptions
from bucketq.spark.queue_access import QueueAccess
from bucketq.spark.table.bulk_rows import (
    BulkPosition,
    BulkRows,
    TaskRows,
    obstacle_in_frame,
    obstacle_in_queue,
)
from bucketq.spark.table.held_reservation import opened_bulk
from bucketq.spark.table.job_writer import JobWriter
from bucketq.spark.table.staging import INLINE_BYTES
from bucketq.spark.table.write_columns import WriteColumns, plan_columns

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

PART = 2**62
"""The position of such a write, behind every position of a write in several commits."""


def new_writer(schema: StructType, options: WriteOptions) -> JobWriter | BulkJobWriter:
    """Return the writer of a frame, on the driver.

    Raises:
        InvalidRequestError: A column is wrong, or ``bulk`` is demanded and cannot be had.
    """
    if options.bulk is False:
        return JobWriter(schema, options)
    columns = plan_columns(schema, options)
    write_id = options.write_id or new_id(SystemClock())
    obstacle = obstacle_in_frame(options.access, columns)
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


class BulkJobWriter(DataSourceArrowWriter):
    """One write. ``write`` runs on executors, ``commit`` and ``abort`` on the driver."""

    def __init__(
        self, options: WriteOptions, columns: WriteColumns, settings: Settings, write_id: str
    ) -> None:
        inline_bytes = 0 if options.bulk else INLINE_BYTES
        self._rows = BulkRows(options.access, columns, settings, inline_bytes)
        is_last = options.write_id is None
        self._position = BulkPosition(write_id, 0, PART, new_name(SystemClock()), is_last)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskRows:
        """Put the rows of a task, or send them."""
        return self._rows.write(iterator, self._position, self._position.writer)

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Add the rows of all tasks."""
        try:
            self._rows.add(messages, self._position)
        except RejectedError as error:
            # Without the cause, whose message is in this one: Spark would print both stacks.
            raise RejectedError(f"nothing was pushed: {error}") from None
        except BucketQError as error:
            raise UnavailableError(
                f"whether the rows were pushed is unknown: {error}; write the same rows again with "
                f'option("writeId", "{self._position.writer}"), which duplicates nothing'
            ) from None

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Give the reservation up; the next sweep deletes what was put.

        Spark does not wait for the other tasks: one that reserves after this leaves a reservation
        behind, which expires.
        """
        del messages
        self._rows.give_up(self._position)


async def _begin(access: QueueAccess, write_id: str) -> _Start:
    """Look whether rows can be added in bulk; give up what an earlier run has reserved."""
    async with opened_bulk(access) as bulk:
        settings = await bulk.settings()
        is_begun = bulk.position(write_id) not in (None, (0, PART))
        obstacle = obstacle_in_queue(settings)
        if not obstacle and is_begun:
            obstacle = (
                f'option("writeId", "{write_id}") names a write that was begun in several commits'
            )
        elif not obstacle:
            await bulk.clear(write_id)  # A run that was killed, or one that still writes.
        return _Start(settings, obstacle, is_begun)
