"""The format ``bucketq``: what Spark asks to read and write jobs.

Spark makes these objects in Python processes of its own on the driver, and sends readers and
writers to the executors; so they hold addresses and plain values, and open nothing before they are
asked to.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from math import ceil
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from bucketq.archive import ArchiveReader, Layout
from bucketq.archive.layout import hour_of
from bucketq.client.archive import see_archive
from bucketq.clock import SystemClock
from bucketq.errors import InvalidRequestError
from bucketq.model.job import JobRecord
from bucketq.spark.format_options import ReadOptions, read_options, write_options
from bucketq.spark.stream.stream_options import is_for_stream, stream_options
from bucketq.spark.stream.stream_reader import JobStreamReader, RefusedStream
from bucketq.spark.stream.stream_writer import (
    JobStreamWriter,
    open_stream_writer,
    stream_write_options,
)
from bucketq.spark.table.job_partition import Rows, read_rows
from bucketq.spark.table.job_schema import DDL, batches
from bucketq.spark.table.job_writer import JobWriter, open_writer
from bucketq.spark.table.queue_reader import read_snapshot
from bucketq.store.url import open_store

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

_ROWS_A_PART = 25_000
_MOST_PARTS = 32
"""Into how many parts the archive is cut where nobody says."""
_SHORT = timedelta(days=2)
"""Up to here a range is cut by hours, and beyond it by days."""


class BucketQDataSource(DataSource):
    """``format("bucketq")``."""

    @classmethod
    def name(cls) -> str:
        """What the format is called."""
        return "bucketq"

    def schema(self) -> str:
        """The columns; wrong options are told of here, before anything is read."""
        if is_for_stream(self.options):
            stream_options(self.options)
        else:
            read_options(self.options)
        return DDL

    def reader(self, schema: StructType) -> DataSourceReader:
        """Read a queue, or its archive."""
        del schema
        options = read_options(self.options)
        return JobsReader(options) if options.table == "jobs" else ArchiveTableReader(options)

    def writer(self, schema: StructType, overwrite: bool) -> JobWriter:  # noqa: FBT001 - Spark's
        """Push the rows of a frame; what is wrong with it is told here, before a row is read."""
        return open_writer(schema, write_options(self.options), overwrite=overwrite)

    def streamReader(  # noqa: N802 - Spark's name
        self, schema: StructType
    ) -> JobStreamReader | RefusedStream:
        """Take jobs from a queue, batch by batch."""
        del schema
        try:
            return JobStreamReader(stream_options(self.options))
        except InvalidRequestError as error:
            return RefusedStream(str(error))

    def streamWriter(  # noqa: N802 - Spark's name
        self,
        schema: StructType,
        overwrite: bool,  # noqa: FBT001 - Spark's
    ) -> JobStreamWriter:
        """Push the batches of a query; wrong columns are told of here, before a row is read."""
        options = stream_write_options(self.options)
        return open_stream_writer(schema, options, overwrite=overwrite)


class Stretches(InputPartition):
    """Some stretches of time in the archive."""

    def __init__(self, stretches: list[tuple[datetime, datetime]]) -> None:
        """Hold the stretches of one part."""
        super().__init__(None)
        self.stretches = stretches


class JobsReader(DataSourceReader):
    """Reads what is in a queue, at one version.

    The driver reads all of it and hands the rows to the executors, which need no access to the
    queue: an executor that read for itself would see a later version.
    """

    def __init__(self, options: ReadOptions) -> None:
        """Read as the options say."""
        self._options = options

    def partitions(self) -> list[Rows]:
        """Read the queue, and cut it into parts."""
        lines = read_snapshot(self._options)
        parts = self._options.partitions or ceil(len(lines) / _ROWS_A_PART) or 1
        size = ceil(len(lines) / parts) or 1
        slices = [lines[first : first + size] for first in range(0, len(lines), size)] or [[]]
        return [Rows.of_lines(some) for some in slices]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Turn the jobs of a part into rows."""
        return read_rows(partition)


class ArchiveTableReader(DataSourceReader):
    """Reads a range of time from an archive, each job once.

    A job that a crash has left in two segments is in two segments of one hour, so no part begins
    or ends within an hour, unless the range does.
    """

    def __init__(self, options: ReadOptions) -> None:
        """Read as the options say."""
        self._options = options

    def partitions(self) -> list[Stretches]:
        """Share out the time that was asked for."""
        options = self._options
        asyncio.run(see_archive(options.access.url))
        until = options.until or SystemClock().now()
        stretches = list(_stretches(options.since or until, until))
        parts = min(options.partitions or _MOST_PARTS, len(stretches)) or 1
        return [Stretches(stretches[part::parts]) for part in range(parts)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read the stretches of a part, one after the other."""
        assert isinstance(partition, Stretches)  # noqa: S101 - Spark gives back what it was given
        with asyncio.Runner() as runner:
            location = open_store(self._options.access.url)
            archive = ArchiveReader(location.store, Layout.of(location.store.url, location.key))
            try:
                for since, until in partition.stretches:
                    found = archive.batches(since, until, self._options.kinds or None)
                    while (jobs := runner.run(anext(found, None))) is not None:
                        yield from batches(self._wanted(jobs))
            finally:
                if not location.is_lent:
                    runner.run(location.store.close())

    def _wanted(self, jobs: Sequence[JobRecord]) -> Sequence[JobRecord]:
        statuses = self._options.statuses
        return [job for job in jobs if job.status in statuses] if statuses else jobs


def _stretches(since: datetime, until: datetime) -> Iterator[tuple[datetime, datetime]]:
    """The hours of a short range; the days of a long one, which are listed whole."""
    is_short = until - since <= _SHORT
    step = timedelta(hours=1) if is_short else timedelta(days=1)
    begin = hour_of(since) if is_short else hour_of(since).replace(hour=0)
    while begin < until:
        yield max(since, begin), min(until, begin + step)
        begin += step
