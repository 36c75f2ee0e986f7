"""Reads a queue as a table, at one version.

The driver reads the queue's object once, so that all partitions are of the same version. It sends
the jobs of the object to the executors undecoded, and of segments only the names: executors read
them (``segment_rows``). Through a broker it asks for a snapshot, and sends all jobs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from math import ceil
from typing import TYPE_CHECKING

import msgspec
from pyspark.sql.datasource import DataSourceReader, InputPartition

from bucketq.admin import QueueObject
from bucketq.clock import SystemClock
from bucketq.codec.heading import read_heading
from bucketq.codec.lines import JobLines, read_job_lines
from bucketq.model.segments import SegmentRecord
from bucketq.spark.chosen_columns import EVERY_COLUMN, ChosenColumns
from bucketq.spark.format_options import ReadOptions
from bucketq.spark.queue_access import QueueAccess, opened_store
from bucketq.spark.table.job_schema import JobPartition, cut_lines, read_job_partition
from bucketq.spark.table.pushed_filters import OptionalPushdown, narrow
from bucketq.spark.table.segment_rows import SegmentSlice, has_status, read_slices

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.datasource import Filter

_ROWS_PER_PARTITION = 25_000
"""Takes an executor about a tenth of a second, as much as Spark needs to start a task."""
_encode = msgspec.json.Encoder().encode


class _KindAndStatus(msgspec.Struct):
    """The fields of a job by which a read can choose."""

    kind: str
    status: str


_decode_choice = msgspec.json.Decoder(_KindAndStatus).decode


class TablePartition(JobPartition):
    """Slices of segments, which an executor reads, and jobs that the driver has read."""

    def __init__(
        self, incarnation: str, slices: list[SegmentSlice], lines: Sequence[bytes]
    ) -> None:
        super().__init__(b"[%b]" % b",".join(lines))
        self.incarnation = incarnation
        self.slices = slices


class QueueTableReader(DataSourceReader):
    """Reads the jobs in a queue. An executor that read the object would see a later version."""

    def __init__(self, options: ReadOptions, columns: ChosenColumns = EVERY_COLUMN) -> None:
        self._options = options
        self._columns = columns
        self._access = options.access.for_executors()

    @property
    def pushFilters(self) -> OptionalPushdown:  # noqa: N802 - Spark's name
        """What Spark calls with the filters of a query."""
        return OptionalPushdown(self._narrow)

    def _narrow(self, filters: list[Filter]) -> None:
        self._options = narrow(self._options, filters, SystemClock().now())

    def partitions(self) -> list[TablePartition]:
        """Read the object of the queue on the driver, and split its jobs."""
        found = read_version(self._options)
        rows = len(found.hot) + sum(record.live for record in found.segments)
        count = self._options.partitions or ceil(rows / _ROWS_PER_PARTITION) or 1
        return split_version(found, ceil(rows / count) or 1)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Decode the jobs of a partition on an executor, and read those that are in segments."""
        return self._columns.of(self._read(partition))

    def _read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, TablePartition)  # noqa: S101 - Spark gives back what it was given
        options = self._options
        if partition.slices:
            yield from read_slices(
                self._access,
                partition.incarnation,
                partition.slices,
                options.kinds,
                options.fetch_bytes,
            )
        yield from read_job_partition(partition, self._access, options.fetch_bytes)


def read_version(options: ReadOptions) -> JobLines:
    """Return the chosen jobs of a queue, in their order and encoded, and its chosen segments."""
    access = options.access
    if options.version is not None or options.at is not None:
        found = _past_version(options)
    elif access.is_broker:
        found = _snapshot_of_broker(access)
    else:
        found = asyncio.run(_read_object(access))
    if options.is_empty:
        return found._replace(hot=[], segments=[])
    if not options.statuses and not options.kinds:
        return found
    return found._replace(
        hot=[line for line in found.hot if _is_chosen(_decode_choice(line), options)],
        segments=[each for each in found.segments if has_status(each, options.statuses)],
    )


def split_version(found: JobLines, size: int) -> list[TablePartition]:
    """Split jobs into partitions of about ``size`` jobs, at least one partition."""
    made: list[TablePartition] = []
    slices: list[SegmentSlice] = []
    room = float(size)
    for record in found.segments:
        start = 0
        while start < record.rows:
            stop = _end_of_slice(record, start, room)
            slices.append(SegmentSlice(record, start, stop))
            # Which rows have left may be known to executors only: how many is a good estimate.
            room -= (stop - start) * record.live / record.rows
            start = stop
            if room < 1:
                made.append(TablePartition(found.incarnation, slices, []))
                slices, room = [], float(size)
    first = ceil(room) if slices else 0
    if slices:
        few, *rest = cut_lines(found.hot[:first])
        made.append(TablePartition(found.incarnation, slices, few))
        made += [TablePartition("", [], some) for some in rest]
    made += [
        TablePartition("", [], some)
        for begin in range(first, len(found.hot), size)
        for some in cut_lines(found.hot[begin : begin + size])
    ]
    return made or [TablePartition("", [], [])]


def _end_of_slice(record: SegmentRecord, start: int, room: float) -> int:
    """Return the position before which about ``room`` jobs of a segment are."""
    return min(record.rows, start + max(1, ceil(room * record.rows / record.live)))


def _is_chosen(job: _KindAndStatus, options: ReadOptions) -> bool:
    return (not options.statuses or job.status in options.statuses) and (
        not options.kinds or job.kind in options.kinds
    )


def _snapshot_of_broker(access: QueueAccess) -> JobLines:
    with access.open() as queue:
        return JobLines([_encode(job) for job in queue.snapshot().jobs], "", [])


def _past_version(options: ReadOptions) -> JobLines:
    """Put an earlier version together on the driver, from the history of the queue."""
    with options.access.open() as queue:
        past = queue.snapshot(version=options.version, at=options.at)
        return JobLines([_encode(job) for job in past.jobs], "", [])


async def _read_object(access: QueueAccess) -> JobLines:
    async with opened_store(access.url) as location:
        found = QueueObject(
            location.store, location.key, location.url, SystemClock(), access.timeout_s
        )
        body = (await found.read()).body
        partition = read_heading(body, location.url).partition
    if partition is None or partition.count == 1:
        return read_job_lines(body, location.url)
    async with access.connection() as queue:  # It reads all partitions, on the driver.
        return JobLines([_encode(job) for job in (await queue.snapshot()).jobs], "", [])
