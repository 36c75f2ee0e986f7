"""``df.writeStream.format("bucketq")``: pushes every micro-batch of a query once, of any size.

Executors write many rows as segments, as in a batch write (``bulk_rows``), and the driver adds
those of a micro-batch in one commit, under the id of the query and the number of the micro-batch.
Both stay the same if the micro-batch is repeated, after a failure or in another process with the
same checkpoint, and what was published under them before is not pushed again. It has to be one
commit: rows that are computed again may come in another order, so parts of a micro-batch could not
be told apart.

If rows cannot be written as segments they are staged, and the driver pushes them in an ordinary
commit, whose size the queue limits.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from hashlib import blake2b
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage

from bucketq.errors import BucketQError, InvalidRequestError, RejectedError, UnavailableError
from bucketq.model.settings import Settings, changed
from bucketq.spark.format_options import WriteOptions
from bucketq.spark.table.bulk_rows import (
    BulkPosition,
    BulkRows,
    TaskRows,
    obstacle_in_frame,
    obstacle_in_queue,
)
from bucketq.spark.table.staging import RowStager, StagedRows, by_partition, task_context

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

_QUERY = "sql.streaming.queryId"
_BATCH = "streaming.sql.batchId"
"""The names that Spark gives them among the local properties of a task."""
_NAME_BYTES = 8


class JobStreamWriter(DataSourceStreamArrowWriter):
    """Pushes micro-batches. ``write`` runs on executors, ``commit`` and ``abort`` on the driver.

    Spark makes one for the tasks of a query, and another one for each commit.
    """

    def __init__(self, schema: StructType, options: WriteOptions) -> None:
        self._stager = RowStager(schema, options)
        access, columns, settings = options.access, self._stager.columns, self._stager.settings
        self._obstacle = obstacle_in_frame(access, columns) or obstacle_in_queue(settings)
        """Why rows are not written as segments; an empty text: they are, if there are many."""
        self._rows = BulkRows(access, columns, settings)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> StagedRows | TaskRows:
        """Put the rows of a task, or send or stage them."""
        context = task_context()
        query, batch = context.getLocalProperty(_QUERY), context.getLocalProperty(_BATCH)
        if query is None or batch is None:
            message = "this Spark does not give its tasks the id of the micro-batch: upgrade it"
            raise InvalidRequestError(message)
        if self._obstacle:
            return self._stager.stage(iterator, context, query, f"{query}/{batch}")
        return self._rows.write(iterator, _position(query, int(batch)), f"{query}/{batch}")

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        """Publish the rows of a micro-batch, unless that was done before.

        The messages say which way their tasks took: that of the queue when the query began.
        """
        staged = by_partition(messages)
        queries = [each.writer for each in messages if isinstance(each, TaskRows)]
        try:
            if queries:
                self._rows.add(messages, _position(queries[0], batchId))
            elif any(each.sizes for each in staged):
                self._publish(staged, batchId)
        except BucketQError as error:
            # Without the cause, whose message is in this one: Spark would print both stacks.
            raise _explained(error, batchId) from None

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        """Remove what was staged or reserved; Spark repeats the micro-batch."""
        for query in dict.fromkeys(each.write_id for each in by_partition(messages)):
            self._stager.clear(query)
        for query in {each.writer for each in messages if isinstance(each, TaskRows)}:
            self._rows.give_up(_position(query, batchId))

    def _publish(self, staged: list[StagedRows], batch: int) -> None:
        query = staged[0].write_id
        with self._stager.access.open(create=True) as queue:
            sizes = [size for each in staged for size in each.sizes]
            self._check_size(len(sizes), sum(sizes), queue.settings())
            queue.publish(query, batch, list(self._stager.jobs(staged)))
        self._stager.clear(query)

    def _check_size(self, jobs: int, size_bytes: int, settings: Settings) -> None:
        """Reject a micro-batch that is too large before its rows are fetched."""
        wanted = {"max_batch_jobs": jobs, "max_batch_bytes": size_bytes}
        given = {name: getattr(settings, name) for name in wanted}
        needed: dict[str, object] = {
            name: value for name, value in wanted.items() if value > given[name]
        }
        if not needed:
            return
        reason = self._obstacle or "the queue did not adopt segments when the query began"
        limits = ", ".join(f"{name} is {given[name]:,}" for name in needed)
        message = (
            f"it has {jobs:,} jobs with {size_bytes:,} bytes of payload, which have to go in one "
            f"ordinary commit, and {limits}. The reason is: {reason}"
        )
        try:
            changed(settings, needed)
            changes = " ".join(f"{name}={value}" for name, value in needed.items())
            hint = f"to push it so, run `bucketq config {self._stager.access.url} {changes}`"
        except InvalidRequestError:
            hint = "no setting allows that: remove the reason, and it may have any size"
        raise RejectedError(f"{message}; {hint}")


def _position(query: str, batch: int) -> BulkPosition:
    """Return where the rows of a micro-batch belong.

    All micro-batches of a query share the name of a reservation, because the processes of Spark
    have to find it without each other. So a reservation that a task of an earlier one has left is
    joined, and does not stand in the way.
    """
    name = blake2b(query.encode(), digest_size=_NAME_BYTES).hexdigest()
    return BulkPosition(query, batch, 0, name)


def _explained(error: BucketQError, batch: int) -> BucketQError:
    """Return an error that says whether the micro-batch was pushed, and what to do."""
    if not isinstance(error, RejectedError):
        return UnavailableError(
            f"whether batch {batch} was pushed is unknown: {error}; start the query again, which "
            "duplicates nothing"
        )
    return RejectedError(
        f"nothing of batch {batch} was pushed: {error}. Start the query again afterwards: it "
        "repeats the batch"
    )
