"""Reads a queue as a table, at one version.

The driver reads the queue once, so that all partitions are of the same version, and sends the jobs
to the executors undecoded. If it can reach the queue's object it takes the lines from there;
through a broker it asks for a snapshot.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from math import ceil
from typing import TYPE_CHECKING

import msgspec
from pyspark.sql.datasource import DataSourceReader, InputPartition

from bucketq.admin import QueueObject
from bucketq.clock import SystemClock
from bucketq.codec import read_job_lines
from bucketq.spark.format_options import ReadOptions
from bucketq.spark.queue_access import QueueAccess, opened_store
from bucketq.spark.table.job_schema import JobPartition, read_job_partition

if TYPE_CHECKING:
    import pyarrow as pa

_ROWS_PER_PARTITION = 25_000
"""Takes an executor about a tenth of a second, as much as Spark needs to start a task."""
_encode = msgspec.json.Encoder().encode


class _KindAndStatus(msgspec.Struct):
    """The fields of a job by which a read can choose."""

    kind: str
    status: str


_decode_choice = msgspec.json.Decoder(_KindAndStatus).decode


class QueueTableReader(DataSourceReader):
    """Reads the jobs in a queue. An executor that read for itself would see a later version."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options

    def partitions(self) -> list[JobPartition]:
        """Read the queue on the driver, and split it."""
        lines = read_snapshot(self._options)
        count = self._options.partitions or ceil(len(lines) / _ROWS_PER_PARTITION) or 1
        size = ceil(len(lines) / count) or 1
        slices = [lines[first : first + size] for first in range(0, len(lines), size)] or [[]]
        return [JobPartition.of_lines(some) for some in slices]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Decode the jobs of a partition, on an executor."""
        return read_job_partition(partition)


def read_snapshot(options: ReadOptions) -> list[bytes]:
    """Return the chosen jobs of a queue in their order, each encoded as JSON."""
    access = options.access
    lines = _snapshot_of_broker(access) if access.is_broker else asyncio.run(_read_object(access))
    if not options.statuses and not options.kinds:
        return lines
    return [line for line in lines if _is_chosen(_decode_choice(line), options)]


def _is_chosen(job: _KindAndStatus, options: ReadOptions) -> bool:
    return (not options.statuses or job.status in options.statuses) and (
        not options.kinds or job.kind in options.kinds
    )


def _snapshot_of_broker(access: QueueAccess) -> list[bytes]:
    with access.open() as queue:
        return [_encode(job) for job in queue.snapshot().jobs]


async def _read_object(access: QueueAccess) -> list[bytes]:
    async with opened_store(access.url) as location:
        found = QueueObject(
            location.store, location.key, location.url, SystemClock(), access.timeout_s
        )
        return read_job_lines((await found.read()).body, location.url)
