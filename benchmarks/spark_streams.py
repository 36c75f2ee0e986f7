"""Streams, handlers and compaction, compared with plain Spark.

* *Stream*: a query that takes jobs, beside one of the same trigger and sink over Spark's own
  source of rows for tests (``rate-micro-batch``). With small batches the figure is the median time
  of a batch; a Python source that generates its rows shows how much of it Spark needs to call
  Python. With large batches it is rows a second, with the same floor. The first run of each is not
  counted: a stream runs for days.
* *Handlers*: jobs whose handlers do nothing, claimed, sent to executors and completed, beside
  ``mapInArrow`` over as many rows, which claims and completes nothing; and beside a ``Worker`` in
  one process, for orientation. The last row is the CPU time of the driver's Python for each job,
  beside that of the worker: unlike the others it says the same on a busy machine.
* *Compact*: archive files of 1,000 jobs of two days and four kinds turned into Parquet, each job
  once, beside ``spark.read.json`` of the same files written as Parquet by date and kind.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import time
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from statistics import median
from typing import NamedTuple

import pyarrow as pa
from benchmarks.serving import wait_for_quiet
from benchmarks.spark_finished import fill_archive
from benchmarks.spark_rows import Bench, Part, Row, added, rated, timed
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxRows
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import StructType

import bucketq
import bucketq.spark
from bucketq.spark.archive.compact_archive import compact

BATCH_AIM_MS = 150.0
COMPACT_AIM = 2.0
KIND = "index"
PAYLOAD = {"text": "x" * 89}
PUSH_BATCH = 10_000
SMALL_BATCH, LARGE_BATCH = 100, 10_000
BATCHES = 25
WARM_BATCHES = 5
TURNS = 2
LOOK_S = 0.25
"""How often progress is read. Each time costs Java CPU, which the query needs itself."""
FILE_JOBS = 1_000
HOURS = 48
KINDS = ("index", "email", "resize", "report")
LINE = (
    "id string, kind string, status string, seq bigint, payload string, pushed_at timestamp, "
    "attempt int, lease string, worker string, claimed_at timestamp, heartbeat_at timestamp, "
    "finished_at timestamp, outcome string, result string"
)
"""The columns of an archive file, for plain Spark."""


def new_queue(path: Path, jobs: int) -> str:
    """Make a queue with waiting jobs; return its address."""
    url = path.as_uri()
    with bucketq.connect_sync(url, mode="direct") as queue:
        for first in range(0, jobs, PUSH_BATCH):
            some = min(PUSH_BATCH, jobs - first)
            queue.push_many([bucketq.JobSpec(kind=KIND, payload=PAYLOAD)] * some)
    return url


class MadeUp(DataSource):
    """A Python source that generates as many rows as it is asked for."""

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return "made-up"

    def schema(self) -> str:
        """One column."""
        return "text string"

    def streamReader(self, schema: StructType) -> MadeUpReader:  # noqa: N802 - Spark's name
        """Generate rows."""
        del schema
        return MadeUpReader(int(self.options["rows"]))


class MadeUpReader(DataSourceStreamReader):
    """Batches of rows, one after the other."""

    def __init__(self, rows: int) -> None:
        """Generate so many rows in each batch."""
        self._rows = rows

    def initialOffset(self) -> dict[str, int]:  # noqa: N802 - Spark's name
        """Begin."""
        return {"batch": 0}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """As many as a batch has."""
        return ReadMaxRows(self._rows)

    def latestOffset(  # noqa: N802 - Spark's name
        self, start: dict[str, int], limit: ReadLimit
    ) -> dict[str, int]:
        """There is always one more."""
        del limit
        return {"batch": start["batch"] + 1}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
        """A batch is one part."""
        del start
        return [InputPartition(end["batch"])]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Generate the rows of a batch."""
        del partition
        yield pa.record_batch([pa.array(["x" * 100] * self._rows)], names=["text"])


class Streams:
    """Runs queries over several sources, by turns."""

    def __init__(self, bench: Bench) -> None:
        """Keep as many progress reports of queries as are needed."""
        self._bench = bench
        self._numbers = count()
        bench.spark.conf.set("spark.sql.streaming.numRecentProgressUpdates", 10 * BATCHES)
        bench.spark.dataSource.register(MadeUp)

    def jobs(self, batch: int, batches: int) -> list[int]:
        """Take jobs; return how many milliseconds each batch took."""
        number = next(self._numbers)
        url = new_queue(self._bench.folder / f"queue-{number}.json", batch * batches)
        source = self._bench.spark.readStream.format("bucketq").option("consumer", "benchmark")
        return self._run(source.option("maxJobsPerTrigger", batch).load(url), batches)

    def rows(self, batch: int, batches: int) -> list[int]:
        """Take rows that Spark makes."""
        source = self._bench.spark.readStream.format("rate-micro-batch")
        return self._run(source.option("rowsPerBatch", batch).load(), batches)

    def made_up(self, batch: int, batches: int) -> list[int]:
        """Take rows that a Python source generates."""
        source = self._bench.spark.readStream.format("made-up").option("rows", batch)
        return self._run(source.load(), batches)

    def _run(self, frame: DataFrame, batches: int) -> list[int]:
        checkpoint = self._bench.folder / f"checkpoint-{next(self._numbers)}"
        writer = frame.writeStream.format("noop").option("checkpointLocation", str(checkpoint))
        query = writer.trigger(processingTime="0 seconds").start()
        try:
            while len(found := _durations_ms(query)) < batches:
                if (error := query.exception()) is not None:
                    raise error
                time.sleep(LOOK_S)
        finally:
            query.stop()
        return found[:batches]


def _durations_ms(query: StreamingQuery) -> list[int]:
    progress = [each for each in query.recentProgress if each.numInputRows]
    return [each.durationMs["triggerExecution"] for each in progress]


class _Times(NamedTuple):
    """How many milliseconds batches take: of plain Spark, of rows of Python, and of jobs."""

    plain: float
    python: float
    ours: float


def _in_turns(
    bench: Bench, streams: Streams, batch: int, turns: int, warm: int, batches: int
) -> _Times:
    """Run the three streams by turns; return medians.

    The first turn does not count, and of the others not the ``warm`` batches: in its first seconds
    Java compiles more than it works.
    """
    kept: tuple[list[int], list[int], list[int]] = ([], [], [])
    for turn in range(1 + turns):
        wait_for_quiet(bench.patience_s)
        for times, run in zip(kept, (streams.rows, streams.made_up, streams.jobs), strict=True):
            found = run(batch, warm + batches)
            times.extend(found[warm:] if turn else ())
    plain, python, ours = kept
    return _Times(median(plain), median(python), median(ours))


def measure_stream(bench: Bench) -> Iterator[Row]:
    """Take jobs in small batches and in large ones."""
    streams = Streams(bench)
    ms = _in_turns(bench, streams, SMALL_BATCH, TURNS * bench.repeats, WARM_BATCHES, BATCHES)
    name = "  the same with rows generated in Python"
    yield added(f"stream, each batch of {SMALL_BATCH} jobs", ms.ours, ms.plain, BATCH_AIM_MS)
    yield added(name, ms.python, ms.plain, None)
    batch = min(LARGE_BATCH, bench.jobs)
    ms = _in_turns(bench, streams, batch, bench.repeats, 1, max(1, bench.jobs // batch))
    plain_s = ms.plain / 1e3
    yield rated(f"stream, batches of {batch:,} jobs", batch, ms.ours / 1e3, plain_s, None)
    yield rated(name, batch, ms.python / 1e3, plain_s, None)


async def do_nothing(payload: dict[str, str]) -> None:
    """A handler."""
    del payload


def measure_handlers(bench: Bench) -> Iterator[Row]:
    """Run handlers that do nothing."""
    numbers = count()

    def filled() -> bucketq.Worker:
        path = bench.folder / f"queue-{next(numbers)}.json"
        worker = bucketq.Worker(new_queue(path, bench.jobs), mode="direct")
        worker.handler(KIND)(do_nothing)
        return worker

    def ours() -> tuple[float, float]:
        worker, cpu_s = filled(), time.process_time()
        took_s = timed(lambda: bucketq.spark.run(bench.spark, None, worker, burst=True))
        cpu_s = time.process_time() - cpu_s
        with bucketq.connect_sync(str(worker.url)) as queue:
            _demand(queue.stats().total("queued"), 0, "jobs that wait")
        return took_s, cpu_s

    def alone() -> tuple[float, float]:
        worker, cpu_s = filled(), time.process_time()
        took_s = timed(lambda: worker.run_sync(burst=True))
        cpu_s = time.process_time() - cpu_s
        _demand(worker.counters.count("done"), bench.jobs, "jobs that were done")
        return took_s, cpu_s

    bodies = [b'{"text":"%b"}' % (b"x" * 89)] * bench.jobs
    table = pa.table({"n": pa.array(range(bench.jobs), pa.int32()), "body": bodies})

    def plain() -> float:
        return timed(lambda: _pass_through(bench.spark, table))

    ours(), plain(), alone()
    found: list[tuple[float, ...]] = []
    for _ in range(bench.repeats):
        wait_for_quiet(bench.patience_s)
        found.append((plain(), *ours(), *alone()))
    plain_s, ours_s, ours_cpu_s, alone_s, alone_cpu_s = (
        median(column) for column in zip(*found, strict=True)
    )
    jobs = bench.jobs
    yield rated("no-op handlers, beside mapInArrow", jobs, ours_s, plain_s, None, "jobs/s")
    yield rated("no-op handlers, beside a Worker", jobs, ours_s, alone_s, None, "jobs/s")
    ours_us, alone_us = (cpu_s / jobs * 1e6 for cpu_s in (ours_cpu_s, alone_cpu_s))
    gap = ours_us / alone_us
    yield Row("  CPU of the driver's Python, of a Worker", ours_us, alone_us, "us/job", gap, "x")


def _pass_through(spark: SparkSession, table: pa.Table) -> None:
    """Send rows to executors and back."""

    def give_back(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from batches

    frame = spark.createDataFrame(table).mapInArrow(give_back, "n int, body binary")
    _demand(frame.toArrow().num_rows, table.num_rows, "rows that came back")


def measure_compact(bench: Bench) -> Iterator[Row]:
    """Compact an archive of ten times as many jobs as elsewhere."""
    spark, numbers = bench.spark, count()

    def ours(source: Path, jobs: int) -> float:
        copy = bench.folder / f"copy-{next(numbers)}"
        # Compaction deletes the archive files; their hard links stay.
        shutil.copytree(source, copy, copy_function=os.link)
        url = (copy / "queue.json").as_uri()
        took_s = timed(lambda: _demand(compact(spark, url).jobs, jobs, "jobs that were compacted"))
        shutil.rmtree(copy)
        return took_s

    def plain(source: Path) -> float:
        target = bench.folder / f"plain-{next(numbers)}"
        frame = spark.read.schema(LINE).json(f"{source}/queue/archive/*/*.jsonl")
        dated = frame.selectExpr("*", "to_date(finished_at) AS date")
        took_s = timed(lambda: dated.write.partitionBy("date", "kind").parquet(str(target)))
        shutil.rmtree(target)
        return took_s

    few, many = bench.jobs, 10 * bench.jobs
    for jobs in (few, many):
        source = bench.folder / f"source-{jobs}"
        source.mkdir()
        path = source / "queue.json"
        asyncio.run(fill_archive(path, jobs, jobs_per_file=FILE_JOBS, hours=HOURS, kinds=KINDS))
    warm, source = (bench.folder / f"source-{jobs}" for jobs in (few, many))
    plain(warm), ours(warm, few)
    found: list[tuple[float, float]] = []
    for _ in range(bench.repeats):
        wait_for_quiet(bench.patience_s)
        found.append((plain(source), ours(source, many)))
    plain_s, ours_s = (median(column) for column in zip(*found, strict=True))
    name = f"compact {many // FILE_JOBS:,} archive files, {many:,} jobs"
    yield rated(name, many, ours_s, plain_s, COMPACT_AIM, "jobs/s")


def _demand(found: int, wanted: int, what: str) -> None:
    if found != wanted:
        message = f"there are {found:,} {what}, not {wanted:,}"
        raise RuntimeError(message)


PARTS: dict[str, Part] = {
    "stream": measure_stream,
    "handlers": measure_handlers,
    "compact": measure_compact,
}
