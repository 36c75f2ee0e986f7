"""``df.write.format("bucketq")``: bulk push, once.

Executors turn their rows into jobs and stage them. When all tasks have ended well, Spark picks one
message for each partition, and the driver publishes what they name: in one commit, all or none, or
where the option ``maxJobsPerCommit`` says so in several, one after the other.

A write has an id, made on the driver and carried in the writer. The ids of its jobs follow from it,
so a task that is run again, a second copy of a slow task, or a commit whose answer was lost doubles
nothing; and whoever writes the same rows again under the same ``writeId`` goes on where that write
has stopped.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from bucketq.client.blocking import BlockingConnection, BlockingQueue, connect_sync
from bucketq.clock import SystemClock, new_id
from bucketq.errors import BucketQError, InvalidRequestError, RejectedError, UnavailableError
from bucketq.model.base import NewJob
from bucketq.model.settings import Settings
from bucketq.spark.format_options import Access, WriteOptions
from bucketq.spark.table.commit_sizes import cut
from bucketq.spark.table.row_encoding import decode_rows, encode_rows
from bucketq.spark.table.staging import Parcel, Staging
from bucketq.spark.table.write_columns import Columns, plan_columns

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType


@dataclass
class Staged(WriterCommitMessage):
    """What a task tells the driver: which rows it has, and where they are."""

    partition: int
    sizes: array[int]
    parcel: Parcel


def open_writer(schema: StructType, options: WriteOptions, *, overwrite: bool) -> JobWriter:
    """Check all that can be checked before a row is read, and begin a write."""
    if overwrite:
        message = 'a queue is not overwritten, jobs are added to it: write with mode("append")'
        raise InvalidRequestError(message)
    columns = plan_columns(schema, options)
    with open_queue(options.access) as queue:
        settings = queue.config()
    write_id = options.write_id or new_id(SystemClock())
    return JobWriter(options, columns, settings, write_id)


class JobWriter(DataSourceArrowWriter):
    """One write. ``write`` runs on executors, ``commit`` and ``abort`` on the driver."""

    def __init__(
        self, options: WriteOptions, columns: Columns, settings: Settings, write_id: str
    ) -> None:
        """Hold what the tasks and the driver need; it travels to both."""
        self._options = options
        self._columns = columns
        self._settings = settings
        self._write_id = write_id
        self._staging = Staging(options.access.url, write_id)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Staged:
        """Stage the rows of a task."""
        context = TaskContext.get()
        assert context is not None  # noqa: S101 - Spark calls this in a task and nowhere else
        partition = context.partitionId()
        rows = encode_rows(iterator, self._columns, self._settings, self._write_id, partition)
        parcel = self._staging.stage(rows.body, partition, context.taskAttemptId())
        return Staged(partition, rows.sizes, parcel)

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Publish the rows of all tasks."""
        staged = sorted(
            (each for each in messages if isinstance(each, Staged)),
            key=lambda each: each.partition,
        )
        sizes = array("I")
        for each in staged:
            sizes.extend(each.sizes)
        if sizes:
            with open_queue(self._options.access) as queue:
                counts = cut(sizes, self._options.jobs_per_commit, queue.config())
                self._publish(queue, counts, self._jobs(staged))
        self._staging.clear()

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Forget what was staged."""
        del messages
        self._staging.clear()

    def _jobs(self, staged: list[Staged]) -> Iterator[NewJob]:
        for each in staged:
            if each.sizes:
                yield from decode_rows(self._staging.fetch(each.parcel))

    def _publish(
        self, queue: BlockingQueue[Any], counts: list[int], jobs: Iterator[NewJob]
    ) -> None:
        done = 0
        for count in counts:
            # A position is the number of rows up to there, so it goes forward only.
            part = done + count
            try:
                # Taken here: they are fetched while they are taken, which cannot be done on the
                # queue's own event loop.
                some = list(islice(jobs, count))
                queue.publish(self._write_id, 0, some, part=part)
            except BucketQError as error:
                # Its message is in ours, and Spark would show both, with all that is between.
                raise self._told(error, done, sum(counts)) from None
            done = part

    def _told(self, error: BucketQError, done: int, total: int) -> BucketQError:
        """What became of the write, and what to do about it."""
        again = f'write the same rows again with option("writeId", "{self._write_id}")'
        if not isinstance(error, RejectedError):
            return UnavailableError(
                f"{done:,} of {total:,} jobs are pushed, and of the next commit that is not known: "
                f"{error}; {again}, which doubles nothing"
            )
        if not done:
            return RejectedError(f"nothing was pushed: {error}")
        return RejectedError(f"{done:,} of {total:,} jobs are pushed: {error}; to go on, {again}")


def open_queue(access: Access) -> BlockingConnection[Any]:
    """Open the queue, creating it where there is none, as other pushes do."""
    return connect_sync(access.url, launch="never", timeout_s=access.timeout_s, token=access.token)
