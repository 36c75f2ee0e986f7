"""Reads a time range of an archive as a table, each job once."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, InputPartition

from bucketq.archive.archive_layout import Layout, hour_of
from bucketq.archive.reader import ArchiveReader
from bucketq.client.archive import see_archive
from bucketq.clock import SystemClock
from bucketq.model.records import JobRecord
from bucketq.spark.chosen_columns import EVERY_COLUMN, ChosenColumns
from bucketq.spark.format_options import ReadOptions
from bucketq.spark.queue_access import opened_store
from bucketq.spark.table.job_schema import fetched_batches
from bucketq.spark.table.pushed_filters import OptionalPushdown, narrow

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.datasource import Filter

_PARTITIONS_MAX = 32
"""How many partitions a read has by default: enough for the cores of a small cluster."""
_HOURLY_MAX = timedelta(days=2)
"""Up to here a range is split by hours, and a longer one by days, which take fewer listings."""

TimeRange = tuple[datetime, datetime]


class ArchivePartition(InputPartition):
    """The time ranges that one task reads."""

    def __init__(self, ranges: list[TimeRange]) -> None:
        super().__init__(None)
        self.ranges = ranges


class ArchiveTableReader(DataSourceReader):
    """Reads an archive from the store, on the executors.

    The two copies of a job that a crash left in two archive files are in the same hour. So that one
    task sees both, an hour is split only if the requested range begins or ends in it.
    """

    def __init__(self, options: ReadOptions, columns: ChosenColumns = EVERY_COLUMN) -> None:
        self._options = options
        self._columns = columns

    @property
    def pushFilters(self) -> OptionalPushdown:  # noqa: N802 - Spark's name
        """What Spark calls with the filters of a query."""
        return OptionalPushdown(self._narrow)

    def _narrow(self, filters: list[Filter]) -> None:
        self._options = narrow(self._options, filters, SystemClock().now())

    def partitions(self) -> list[ArchivePartition]:
        """Split the requested time range."""
        options = self._options
        asyncio.run(see_archive(options.access.url))
        until = options.until or SystemClock().now()
        ranges = [] if options.is_empty else list(_split(options.since or until, until))
        count = min(options.partitions or _PARTITIONS_MAX, len(ranges)) or 1
        return [ArchivePartition(ranges[number::count]) for number in range(count)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read the time ranges of a partition, one after the other."""
        return self._columns.of(self._read(partition))

    def _read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, ArchivePartition)  # noqa: S101 - Spark returns what it was given
        access, kinds = self._options.access, self._options.kinds or None
        with asyncio.Runner() as runner:
            opened = opened_store(access.url)
            location = runner.run(opened.__aenter__())
            archive = ArchiveReader(location.store, Layout.of(location.store.url, location.key))
            try:
                for since, until in partition.ranges:
                    found = archive.batches(since, until, kinds)
                    while (jobs := runner.run(anext(found, None))) is not None:
                        chosen = self._chosen(jobs)
                        yield from fetched_batches(chosen, access, self._options.fetch_bytes)
            finally:
                runner.run(opened.__aexit__(None, None, None))

    def _chosen(self, jobs: Sequence[JobRecord]) -> Sequence[JobRecord]:
        statuses = self._options.statuses
        return [job for job in jobs if job.status in statuses] if statuses else jobs


def _split(since: datetime, until: datetime) -> Iterator[TimeRange]:
    """Yield the hours of a short range, or the days of a long one."""
    is_hourly = until - since <= _HOURLY_MAX
    step = timedelta(hours=1) if is_hourly else timedelta(days=1)
    begin = hour_of(since) if is_hourly else hour_of(since).replace(hour=0)
    while begin < until:
        yield max(since, begin), min(until, begin + step)
        begin += step
