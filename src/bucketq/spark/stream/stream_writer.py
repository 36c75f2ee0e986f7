"""``df.writeStream.format("bucketq")``: pushes every micro-batch of a query once.

Executors stage their rows as in a batch write, and the driver publishes those of a micro-batch in
one commit, under the id of the query and the number of the micro-batch. Both stay the same if the
micro-batch is repeated, after a failure or in another process with the same checkpoint, and what
was published under them before is not pushed again. It has to be one commit: rows that are computed
again may come in another order, so parts of a micro-batch could not be told apart.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage

from bucketq.errors import BucketQError, InvalidRequestError, RejectedError, UnavailableError
from bucketq.model.settings import Settings
from bucketq.spark.format_options import WriteOptions
from bucketq.spark.table.staging import RowStager, StagedRows, by_partition, task_context

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

_QUERY = "sql.streaming.queryId"
_BATCH = "streaming.sql.batchId"
"""The names that Spark gives them among the local properties of a task."""


class JobStreamWriter(DataSourceStreamArrowWriter):
    """Pushes micro-batches. ``write`` runs on executors, ``commit`` and ``abort`` on the driver."""

    def __init__(self, schema: StructType, options: WriteOptions) -> None:
        self._stager = RowStager(schema, options)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> StagedRows:
        """Stage the rows of a task."""
        context = task_context()
        query, batch = context.getLocalProperty(_QUERY), context.getLocalProperty(_BATCH)
        if query is None or batch is None:
            message = "this Spark does not give its tasks the id of the micro-batch: upgrade it"
            raise InvalidRequestError(message)
        return self._stager.stage(iterator, context, query, f"{query}/{batch}")

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        """Publish the rows of a micro-batch, unless that was done before."""
        staged = by_partition(messages)
        total = sum(len(each.sizes) for each in staged)
        if not total:
            return
        query = staged[0].write_id
        try:
            with self._stager.access.open(create=True) as queue:
                _check_size(total, queue.settings())
                queue.publish(query, batchId, list(self._stager.jobs(staged)))
        except BucketQError as error:
            # Without the cause, whose message is in this one: Spark would print both stacks.
            raise _explained(error, batchId) from None
        self._stager.clear(query)

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        """Remove what was staged; Spark repeats the micro-batch."""
        del batchId
        for query in dict.fromkeys(each.write_id for each in by_partition(messages)):
            self._stager.clear(query)


def _check_size(total: int, settings: Settings) -> None:
    """Reject a micro-batch that is too large before its rows are fetched."""
    if total > settings.max_batch_jobs:
        message = f"it has {total:,} jobs, {settings.max_batch_jobs:,} are allowed (max_batch_jobs)"
        raise RejectedError(message)


def _explained(error: BucketQError, batch: int) -> BucketQError:
    """Return an error that says whether the micro-batch was pushed, and what to do."""
    if not isinstance(error, RejectedError):
        return UnavailableError(
            f"whether batch {batch} was pushed is unknown: {error}; start the query again, which "
            "duplicates nothing"
        )
    return RejectedError(
        f"nothing of batch {batch} was pushed: {error}. If it is too large, let the source read "
        "less at once (maxJobsPerTrigger, maxFilesPerTrigger, rowsPerSecond, ...)"
    )
