"""Jobs on their way to the executors, which need no access to the queue to read them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import msgspec
from pyspark.sql.datasource import InputPartition

from bucketq.model.job import JobRecord
from bucketq.spark.schema import batches

if TYPE_CHECKING:
    import pyarrow as pa

_decode = msgspec.json.Decoder(list[JobRecord]).decode


class Rows(InputPartition):
    """Some jobs as JSON: they were read once, by the driver."""

    def __init__(self, jobs: Sequence[JobRecord]) -> None:
        """Hold the jobs of one part."""
        super().__init__(None)
        self.body = msgspec.json.encode(jobs)


def read_rows(partition: InputPartition) -> Iterator[pa.RecordBatch]:
    """Turn the jobs of a part into rows."""
    assert isinstance(partition, Rows)  # noqa: S101 - Spark gives back what it was given
    return batches(_decode(partition.body))
