"""What batch and stream writers share: tasks encode and stage rows, the driver gets jobs back."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark import TaskContext
from pyspark.sql.datasource import WriterCommitMessage

from bucketq.model.base import NewJob
from bucketq.spark.format_options import WriteOptions
from bucketq.spark.table.row_encoding import decode_rows, encode_rows
from bucketq.spark.table.staging import Parcel, Staging
from bucketq.spark.table.write_columns import plan_columns

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType


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


def task_context() -> TaskContext:
    """Return the context of the task that calls this."""
    context = TaskContext.get()
    assert context is not None  # noqa: S101 - Spark calls writers in a task and nowhere else
    return context
