"""Jobs on their way to the executors, which need no access to the queue to read them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import msgspec
from msgspec import Raw
from pyspark.sql.datasource import InputPartition

from bucketq.archive.lines import decode_line
from bucketq.model.job import JobRecord
from bucketq.spark.table.job_schema import batches

if TYPE_CHECKING:
    import pyarrow as pa

_decode = msgspec.json.Decoder(list[JobRecord]).decode
_decode_lines = msgspec.json.Decoder(list[Raw]).decode


class Rows(InputPartition):
    """Some jobs as JSON: they were read once, by the driver."""

    def __init__(self, body: bytes) -> None:
        """Hold the jobs of one part, a list in JSON."""
        super().__init__(None)
        self.body = body

    @classmethod
    def of(cls, jobs: Sequence[JobRecord]) -> Rows:
        """Hold jobs."""
        return cls(msgspec.json.encode(jobs))

    @classmethod
    def of_lines(cls, lines: Sequence[bytes]) -> Rows:
        """Hold jobs that are encoded already, each by itself."""
        return cls(b"[%b]" % b",".join(lines))


def read_rows(partition: InputPartition) -> Iterator[pa.RecordBatch]:
    """Turn the jobs of a part into rows."""
    assert isinstance(partition, Rows)  # noqa: S101 - Spark gives back what it was given
    try:
        jobs = _decode(partition.body)
    except msgspec.ValidationError:  # A newer bucketq may have given them more fields.
        jobs = [decode_line(bytes(line)) for line in _decode_lines(partition.body)]
    return batches(jobs)
