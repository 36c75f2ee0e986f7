"""Tables of bucketq beside files of plain Spark: the rows ``sink``, ``jobs`` and ``archive``.

* *Sink*: rows that are pushed in one commit, with payloads that are structs or JSON as text,
  beside the same rows written as JSON files. The row *drop* is a Python data source that is sent
  the same rows and does nothing with them: no data source in Python can be faster.
* *Jobs*: a snapshot of a queue, all columns of it, beside ``spark.read.json`` of the same rows.
* *Archive*: an archive of a few hours, all columns and each job once, beside ``spark.read.json``
  of the same rows.

Rows that are read go to Spark's ``noop`` sink, which visits every row and keeps none.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import timedelta
from itertools import count
from pathlib import Path
from shutil import rmtree

import pyarrow as pa
from benchmarks.spark_finished import FINISHED, fill_archive
from benchmarks.spark_rows import Bench, Part, Row, rated
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.functions import to_json
from pyspark.sql.types import StructType

import bucketq

SINK_AIM = 2.0
READ_AIM = 2.0
KIND = "index"
FILE_JOBS = 5_000
HOURS = 4


def rows_of(spark: SparkSession, jobs: int) -> DataFrame:
    """Rows with payloads of about a hundred bytes."""
    return spark.range(0, jobs, numPartitions=4).selectExpr(
        f"'{KIND}' AS kind", "struct(id, repeat('x', 80) AS text) AS payload"
    )


def make_queue(path: Path) -> str:
    """Make a queue; return its address."""
    url = path.as_uri()
    with bucketq.connect_sync(url, mode="direct"):
        return url


def push(frame: DataFrame, url: str) -> None:
    """Push the rows of a frame in one commit."""
    frame.write.format("bucketq").mode("append").save(url)


def read_all(frame: DataFrame) -> None:
    """Read every row and column of a frame."""
    frame.write.format("noop").mode("overwrite").save()


class Drop(DataSource):
    """A data source that reads what is written to it, and keeps nothing."""

    @classmethod
    def name(cls) -> str:
        """Return the name of its format."""
        return "drop"

    def writer(self, schema: StructType, overwrite: bool) -> DropWriter:  # noqa: FBT001 - Spark's
        """Return the writer of a frame."""
        del schema, overwrite
        return DropWriter()


class DropWriter(DataSourceArrowWriter):
    """Reads the rows of each task."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Read them."""
        for _ in iterator:
            pass
        return WriterCommitMessage()


def measure_sink(bench: Bench) -> Iterator[Row]:
    """Push in bulk."""
    bench.spark.dataSource.register(Drop)
    structs = rows_of(bench.spark, bench.jobs)
    texts = structs.withColumn("payload", to_json("payload"))
    for name, frame in (("structs", structs), ("texts", texts)):
        folder = bench.folder / name
        # Each is written once, and all are deleted afterwards: what is measured is the writing.
        queues = [make_queue(folder / f"{n}" / "queue.json") for n in range(bench.repeats + 1)]
        targets = (str(folder / f"json-{n}") for n in count())

        def ours(frame: DataFrame = frame, queues: list[str] = queues) -> None:
            push(frame, queues.pop())

        def plain(frame: DataFrame = frame, targets: Iterator[str] = targets) -> None:
            frame.write.json(next(targets))

        def drop(frame: DataFrame = frame) -> None:
            frame.write.format(Drop.name()).mode("append").save()

        drop_s, plain_s = bench.beside(drop, plain)
        yield rated(f"drop {bench.jobs:,} {name}", bench.jobs, drop_s, plain_s, None)
        ours_s, plain_s = bench.beside(ours, plain)
        yield rated(f"push {bench.jobs:,} {name}", bench.jobs, ours_s, plain_s, SINK_AIM)
        rmtree(folder)


def measure_jobs(bench: Bench) -> Iterator[Row]:
    """Read a snapshot of a queue."""
    path = bench.folder / "queue.json"
    url = make_queue(path)
    push(rows_of(bench.spark, bench.jobs), url)
    table = bench.spark.read.format("bucketq").load(url)
    table.write.json(str(bench.folder / "json"))
    files = bench.spark.read.schema(table.schema).json(str(bench.folder / "json"))
    ours_s, plain_s = bench.beside(lambda: read_all(table), lambda: read_all(files))
    yield rated(f"read a queue of {bench.jobs:,} jobs", bench.jobs, ours_s, plain_s, READ_AIM)


def measure_archive(bench: Bench) -> Iterator[Row]:
    """Read an archive."""
    path = bench.folder / "queue.json"
    asyncio.run(fill_archive(path, bench.jobs, jobs_per_file=FILE_JOBS, hours=HOURS, kinds=[KIND]))
    until = FINISHED + timedelta(hours=HOURS)
    reader = bench.spark.read.format("bucketq").option("table", "archive")
    table = reader.option("from", str(FINISHED)).option("to", str(until)).load(path.as_uri())
    table.write.json(str(bench.folder / "json"))
    files = bench.spark.read.schema(table.schema).json(str(bench.folder / "json"))
    if (found := table.count()) != bench.jobs:
        message = f"the archive has {found} jobs, not {bench.jobs}"
        raise RuntimeError(message)
    ours_s, plain_s = bench.beside(lambda: read_all(table), lambda: read_all(files))
    yield rated(f"read an archive of {bench.jobs:,} jobs", bench.jobs, ours_s, plain_s, READ_AIM)


PARTS: dict[str, Part] = {
    "sink": measure_sink,
    "jobs": measure_jobs,
    "archive": measure_archive,
}
