"""``df.writeStream.format("bucketq")``: every batch of a query is pushed once.

Executors stage their rows as in a bulk push, and the driver publishes those of a batch in one
commit, under the id of the query and the number of the batch. Both stay the same when a batch is
done again, after a failure or in another process with the same checkpoint; and what was published
under them before is not pushed again. It has to be one commit: rows that are computed again may
come in another order, so no part of a batch could be told from the next.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage

from bucketq.errors import BucketQError, InvalidRequestError, RejectedError, UnavailableError
from bucketq.model.settings import Settings
from bucketq.spark.format_options import WriteOptions, write_options
from bucketq.spark.table.job_writer import Staged, open_queue
from bucketq.spark.table.row_encoding import decode_rows, encode_rows
from bucketq.spark.table.staging import Staging
from bucketq.spark.table.write_columns import Columns, plan_columns

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

_QUERY = "sql.streaming.queryId"
_BATCH = "streaming.sql.batchId"
"""What Spark calls them among the properties of a task."""
_OF_BULK = ("writeId", "maxJobsPerCommit")
_OF_SPARK = "checkpointlocation"
"""An option that Spark hands on although it is its own."""


@dataclass
class StagedBatch(Staged):
    """What a task of a batch tells the driver."""

    query: str


def stream_write_options(given: Mapping[str, str]) -> WriteOptions:
    """Check the options of a stream that pushes."""
    for name in given:
        if name.lower() in map(str.lower, _OF_BULK):
            message = (
                f"the option {name} is not for streams: each batch of a query is pushed in one "
                "commit, under the id of the query and its own number; leave it out"
            )
            raise InvalidRequestError(message)
    return write_options({name: given[name] for name in given if name.lower() != _OF_SPARK})


def open_stream_writer(
    schema: StructType, options: WriteOptions, *, overwrite: bool
) -> JobStreamWriter:
    """Check all that can be checked before a row is read."""
    if overwrite:
        message = (
            "a queue is not overwritten, jobs are added to it: write with "
            'outputMode("append") or outputMode("update")'
        )
        raise InvalidRequestError(message)
    columns = plan_columns(schema, options)
    with open_queue(options.access) as queue:
        settings = queue.config()
    return JobStreamWriter(options, columns, settings)


class JobStreamWriter(DataSourceStreamArrowWriter):
    """Pushes batches. ``write`` runs on executors, ``commit`` and ``abort`` on the driver."""

    def __init__(self, options: WriteOptions, columns: Columns, settings: Settings) -> None:
        """Hold what the tasks and the driver need; it travels to both."""
        self._options = options
        self._columns = columns
        self._settings = settings

    def write(self, iterator: Iterator[pa.RecordBatch]) -> StagedBatch:
        """Stage the rows of a task."""
        context = TaskContext.get()
        assert context is not None  # noqa: S101 - Spark calls this in a task and nowhere else
        query, batch = context.getLocalProperty(_QUERY), context.getLocalProperty(_BATCH)
        if query is None or batch is None:
            message = "this Spark does not tell its tasks which batch they are of: upgrade pyspark"
            raise InvalidRequestError(message)
        partition = context.partitionId()
        rows = encode_rows(iterator, self._columns, self._settings, f"{query}/{batch}", partition)
        parcel = self._staging(query).stage(rows.body, partition, context.taskAttemptId())
        return StagedBatch(partition, rows.sizes, parcel, query)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        """Publish the rows of a batch, unless that was done before."""
        staged = sorted(
            (each for each in messages if isinstance(each, StagedBatch)),
            key=lambda each: each.partition,
        )
        total = sum(len(each.sizes) for each in staged)
        if not total:
            return
        query = staged[0].query
        staging = self._staging(query)
        try:
            with open_queue(self._options.access) as queue:
                _check_size(total, queue.config())
                jobs = [
                    job
                    for each in staged
                    if each.sizes
                    for job in decode_rows(staging.fetch(each.parcel))
                ]
                queue.publish(query, batchId, jobs)
        except BucketQError as error:
            # Its message is in ours, and Spark would show both, with all that is between.
            raise _told(error, batchId) from None
        staging.clear()

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        """Forget what was staged; the batch will be done again."""
        del batchId
        for query in dict.fromkeys(
            each.query for each in messages if isinstance(each, StagedBatch)
        ):
            self._staging(query).clear()

    def _staging(self, query: str) -> Staging:
        """Where the rows of a query wait; all its batches use it, one after the other."""
        return Staging(self._options.access.url, query)


def _check_size(total: int, settings: Settings) -> None:
    """Refuse a batch that is too large before its rows are fetched."""
    if total > settings.max_batch_jobs:
        message = f"it has {total:,} jobs, {settings.max_batch_jobs:,} are allowed (max_batch_jobs)"
        raise RejectedError(message)


def _told(error: BucketQError, batch: int) -> BucketQError:
    """What became of a batch, and what to do about it."""
    if not isinstance(error, RejectedError):
        return UnavailableError(
            f"whether batch {batch} was pushed is not known: {error}; start the query again, which "
            "doubles nothing"
        )
    return RejectedError(
        f"nothing of batch {batch} was pushed: {error}. Where it is too large, let the source take "
        "less at once (maxJobsPerTrigger, maxFilesPerTrigger, rowsPerSecond, ...)"
    )
