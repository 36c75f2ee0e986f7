"""The format ``bucketq``: what Spark calls to read and write jobs.

Spark makes these objects in Python processes of its own on the driver, and sends readers and
writers to the executors. So they hold addresses and plain values, and open nothing until they are
asked to.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyspark
from pyspark.sql.datasource import DataSource, DataSourceReader

from bucketq.spark.chosen_columns import choose_columns
from bucketq.spark.format_options import (
    archive_stream_options,
    check_not_stored,
    has_stream_option,
    is_archive_stream,
    is_of,
    read_options,
    stream_options,
    stream_write_options,
    write_options,
)
from bucketq.spark.format_values import refuse
from bucketq.spark.session.compatibility import check_streams
from bucketq.spark.table.archive_table import ArchiveTableReader
from bucketq.spark.table.bulk_writer import BulkJobWriter, new_writer
from bucketq.spark.table.changes_table import CHANGES_DDL, ChangesTableReader
from bucketq.spark.table.job_schema import DDL, STREAM_DDL
from bucketq.spark.table.job_writer import JobWriter
from bucketq.spark.table.queue_reader import QueueTableReader

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from bucketq.spark.stream.archive_stream import ArchiveStreamReader
    from bucketq.spark.stream.changes_stream import ChangesStreamReader
    from bucketq.spark.stream.stream_reader import JobStreamReader
    from bucketq.spark.stream.stream_writer import JobStreamWriter


class BucketQDataSource(DataSource):
    """``format("bucketq")``."""

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return "bucketq"

    def schema(self) -> str:
        """Return the columns. Raises ``InvalidRequestError`` if an option is wrong."""
        check_not_stored(self.options)
        if is_of(self.options, "changes"):
            return CHANGES_DDL
        if is_archive_stream(self.options):
            archive_stream_options(self.options)
            return DDL
        if has_stream_option(self.options):
            stream_options(self.options)
            return STREAM_DDL
        read_options(self.options)
        return DDL

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return a reader of a queue, of its archive, or of its history."""
        options = read_options(self.options)
        if options.table == "changes":
            return ChangesTableReader(options, choose_columns(schema, CHANGES_DDL))
        columns = choose_columns(schema, DDL)
        if options.table == "jobs":
            return QueueTableReader(options, columns)
        return ArchiveTableReader(options, columns)

    def writer(
        self,
        schema: StructType,
        overwrite: bool,  # noqa: FBT001 - Spark's
    ) -> JobWriter | BulkJobWriter:
        """Return a writer that pushes the rows of a frame. Raises if a column is wrong."""
        options = write_options(self.options)
        _refuse_overwrite(overwrite, 'mode("append")')
        return new_writer(schema, options)

    def streamReader(  # noqa: N802 - Spark's name
        self, schema: StructType
    ) -> JobStreamReader | ChangesStreamReader | ArchiveStreamReader:
        """Return a reader that claims jobs, or one that follows the changes or finished jobs."""
        check_streams(pyspark.__version__)
        from bucketq.spark.stream.archive_stream import ArchiveStreamReader  # noqa: PLC0415 - an older Spark has no such streams
        from bucketq.spark.stream.changes_stream import ChangesStreamReader  # noqa: PLC0415 - as above
        from bucketq.spark.stream.stream_reader import JobStreamReader  # noqa: PLC0415 - as above

        if is_of(self.options, "archive"):
            return ArchiveStreamReader(self.options, choose_columns(schema, DDL))
        if is_of(self.options, "changes"):
            return ChangesStreamReader(self.options, choose_columns(schema, CHANGES_DDL))
        return JobStreamReader(self.options, choose_columns(schema, STREAM_DDL))

    def streamWriter(  # noqa: N802 - Spark's name
        self,
        schema: StructType,
        overwrite: bool,  # noqa: FBT001 - Spark's
    ) -> JobStreamWriter:
        """Return a writer that pushes each micro-batch once. Raises if a column is wrong."""
        check_streams(pyspark.__version__)
        from bucketq.spark.stream.stream_writer import JobStreamWriter  # noqa: PLC0415 - as above

        options = stream_write_options(self.options)
        _refuse_overwrite(overwrite, 'outputMode("append") or outputMode("update")')
        return JobStreamWriter(schema, options)


def _refuse_overwrite(overwrite: bool, mode: str) -> None:  # noqa: FBT001 - Spark's
    if overwrite:
        refuse(f"a queue is not overwritten, jobs are added to it: write with {mode}")
