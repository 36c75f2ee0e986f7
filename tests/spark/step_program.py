"""A program that runs one stream to its end, or kills itself with its JVM at a named step.

``python -m tests.spark.step_program FOLDER WHAT STEP MASTER``: ``WHAT`` is ``archive``, a stream of
finished jobs, ``jobs``, a stream of jobs, or ``settle``, a stream that settles some jobs of each
batch. The queue is ``FOLDER/queue.json``, or what ``FOLDER/url`` names. The program dies once, and
leaves a file ``died``; without a step it does not. What each batch had is appended to the file
``batches``.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

import bucketq
import bucketq.spark
from bucketq.spark.data_source import BucketQDataSource
from bucketq.spark.stream import micro_batches
from bucketq.spark.stream.archive_stream import ArchiveStreamReader
from bucketq.spark.stream.stream_reader import JobStreamReader
from bucketq.spark.table.job_schema import STREAM_DDL
from tests.spark.session import PLAIN_PLANS, configured

A_BATCH = 4
ARCHIVE_STEPS = ("offset", "planned", "read", "begun", "noted", "committed")
"""Before the end of a batch is known, when its tasks are, in a task, before and after its output,
and after Spark has committed it."""
JOB_STEPS = ("prepared", "offset", "claimed", "planned", "read", "begun", "noted", "committed")
"""The same for jobs, with the second batch: the first is done. ``prepared`` is when the second is
reserved, and Spark works on the first; ``claimed`` is after the commit that completes the first
batch and claims the second, of which Spark does not know yet."""
SETTLE_STEPS = ("begun", "half", "settled", "committed")
"""Before anything is settled, between two commits, after both, and after Spark's commit."""


def may_die(folder: Path, at: str) -> None:
    """Kill the program, if this is its step and it has not died yet."""
    step, driver = (folder / "step").read_text().split()
    if step == at and not (folder / "died").exists():
        (folder / "died").touch()
        os.killpg(int(driver), signal.SIGKILL)
        time.sleep(60)  # An executor is ended with its JVM, and does no more until then.


class MortalStream(BucketQDataSource):
    """The format ``mortal-stream``: the archive as a stream."""

    @classmethod
    def name(cls) -> str:
        return "mortal-stream"

    def streamReader(self, schema: StructType) -> MortalReader:  # noqa: N802 - Spark's name
        del schema
        return MortalReader(self.options)


class MortalReader(ArchiveStreamReader):
    """Dies at the steps of a source."""

    def __init__(self, given: Any) -> None:
        super().__init__(given)
        self.folder = Path(given["path"].removeprefix("file://")).parent

    def latestOffset(self, start: Any, limit: Any) -> Any:  # noqa: N802 - Spark's name
        may_die(self.folder, "offset")
        return super().latestOffset(start, limit)

    def partitions(self, start: Any, end: Any) -> Any:
        found = super().partitions(start, end)
        may_die(self.folder, "planned")
        return found

    def read(self, partition: Any) -> Iterator[Any]:
        yield from super().read(partition)
        may_die(self.folder, "read")


class MortalJobs(BucketQDataSource):
    """The format ``mortal-jobs``: jobs as a stream. The option ``folder`` is the program's."""

    @classmethod
    def name(cls) -> str:
        return "mortal-jobs"

    def schema(self) -> str:
        return STREAM_DDL

    def streamReader(self, schema: StructType) -> MortalJobReader:  # noqa: N802 - Spark's name
        del schema
        given = dict(self.options)
        return MortalJobReader(Path(given.pop("folder")), given)


class MortalJobReader(JobStreamReader):
    """Dies at the steps of a source, with its second batch, which is prepared though small."""

    def __init__(self, folder: Path, given: Any) -> None:
        super().__init__(given)
        self.folder = folder
        micro_batches._PREPARED_JOBS = 1

    def latestOffset(self, start: Any, limit: Any) -> Any:  # noqa: N802 - Spark's name
        if start["batch"] == 1:
            may_die(self.folder, "offset")
        found = super().latestOffset(start, limit)
        if start["batch"] == 1:
            may_die(self.folder, "claimed")
        return found

    def partitions(self, start: Any, end: Any) -> Any:
        found = super().partitions(start, end)
        is_first = not (self.folder / "died").exists()
        if end["batch"] == 1 and is_first and self._stream is not None:
            self._stream.call(_prepared, self._stream.batches)
            may_die(self.folder, "prepared")
        if end["batch"] == 2:
            may_die(self.folder, "planned")
        return found

    def read(self, partition: Any) -> Iterator[Any]:
        yield from super().read(partition)
        if partition.number == 2:
            may_die(self.folder, "read")


async def _prepared(batches: micro_batches.MicroBatches) -> None:
    """Wait until the next batch is reserved."""
    preparing = batches._preparing
    assert preparing is not None, "the next batch is not prepared"
    await asyncio.wait([preparing])
    assert batches._prepared_jobs, "the next batch has no jobs"


def keep_jobs(folder: Path, batch: bucketq.spark.StreamBatch) -> None:
    """Note the ids of a batch under the number that the queue gave it."""
    ids = [row.id for row in batch.frame.select("id").collect()]
    if batch.number > 1:
        may_die(folder, "begun")
    note(folder, batch.number, ids)
    if batch.number > 1:
        may_die(folder, "noted")


def url_of(folder: Path) -> str:
    """Return the address of the queue."""
    place = folder / "url"
    return place.read_text() if place.exists() else (folder / "queue.json").as_uri()


def note(folder: Path, number: int, ids: list[str]) -> None:
    """Append what a batch had."""
    with (folder / "batches").open("a") as log:
        log.write(json.dumps([number, sorted(ids)]) + "\n")


def settle_some(folder: Path, batch: bucketq.spark.StreamBatch) -> None:
    """Give up the first job of each four, complete the second, and leave the others to Spark."""
    rows = batch.frame.select("id", "payload").collect()
    note(folder, batch.number, [row.id for row in rows])
    numbers = {row.id: int(row.payload) for row in rows}
    may_die(folder, "begun")
    bucketq.spark.settle(
        batch, {name: bucketq.GiveUp("no") for name, n in numbers.items() if n % A_BATCH == 0}
    )
    may_die(folder, "half")
    bucketq.spark.settle(batch, {name: n for name, n in numbers.items() if n % A_BATCH == 1})
    may_die(folder, "settled")


def stream(spark: SparkSession, folder: Path, what: str) -> Any:
    """Return the stream, which is to be started."""
    url = url_of(folder)
    if what == "jobs":
        source = spark.readStream.format(MortalJobs.name()).options(
            consumer="c", folder=str(folder)
        )
        keeping = bucketq.spark.for_each_batch(lambda batch: keep_jobs(folder, batch), url, "c")
        mine = source.option("maxJobsPerTrigger", A_BATCH).load(url)
        return mine.writeStream.foreachBatch(keeping)
    if what == "settle":
        jobs = spark.readStream.format("bucketq").option("consumer", "c")
        settling = bucketq.spark.for_each_batch(lambda batch: settle_some(folder, batch), url, "c")
        return (
            jobs.option("maxJobsPerTrigger", A_BATCH).load(url).writeStream.foreachBatch(settling)
        )

    def keep(frame: DataFrame, number: int) -> None:
        ids = [row.id for row in frame.select("id").collect()]
        may_die(folder, "begun")
        note(folder, number, ids)
        may_die(folder, "noted")

    source = spark.readStream.format(MortalStream.name())
    source = source.options(table="archive", maxHoursPerTrigger=3, settleSeconds=0.1)
    return source.load(url).writeStream.foreachBatch(keep)


def die_after_commit(folder: Path, what: str) -> None:
    """Wait until Spark has committed a batch: the first, or the second of a stream of jobs."""
    batch = "1" if what == "jobs" else "0"
    while not (folder / "checkpoint" / "commits" / batch).exists():
        time.sleep(0.01)
    may_die(folder, "committed")


def main(folder: Path, what: str, step: str, master: str) -> None:
    """Run the stream until it ends."""
    (folder / "step").write_text(f"{step} {os.getpid()}")
    spark = configured(master, folder).getOrCreate()
    for name, value in PLAIN_PLANS.items():
        spark.conf.set(name, value)
    bucketq.spark.register(spark)
    spark.dataSource.register(MortalStream)
    spark.dataSource.register(MortalJobs)
    threading.Thread(target=die_after_commit, args=[folder, what], daemon=True).start()
    query = stream(spark, folder, what).option("checkpointLocation", str(folder / "checkpoint"))
    query.trigger(availableNow=True).start().awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
