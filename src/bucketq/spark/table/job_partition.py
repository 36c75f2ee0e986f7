"""Partitions that carry their jobs, so that executors need no access to the queue."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import msgspec
from msgspec import Raw
from pyspark.sql.datasource import InputPartition

from bucketq.archive.archive_lines import decode_line
from bucketq.model.records import JobRecord
from bucketq.spark.table.job_schema import job_batches

if TYPE_CHECKING:
    import pyarrow as pa

_decode = msgspec.json.Decoder(list[JobRecord]).decode
_decode_lines = msgspec.json.Decoder(list[Raw]).decode


class JobPartition(InputPartition):
    """Some jobs as one JSON list, read by the driver."""

    def __init__(self, body: bytes) -> None:
        super().__init__(None)
        self.body = body

    @classmethod
    def of(cls, jobs: Sequence[JobRecord]) -> JobPartition:
        """Encode jobs."""
        return cls(msgspec.json.encode(jobs))

    @classmethod
    def of_lines(cls, lines: Sequence[bytes]) -> JobPartition:
        """Join jobs that are encoded already, each by itself."""
        return cls(b"[%b]" % b",".join(lines))


def read_job_partition(partition: InputPartition) -> Iterator[pa.RecordBatch]:
    """Decode the jobs of a partition, on an executor."""
    assert isinstance(partition, JobPartition)  # noqa: S101 - Spark gives back what it was given
    try:
        jobs = _decode(partition.body)
    except msgspec.ValidationError:  # A newer bucketq may have added fields.
        jobs = [decode_line(bytes(line)) for line in _decode_lines(partition.body)]
    return job_batches(jobs)
