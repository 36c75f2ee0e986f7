"""Kills of executors, and copies of slow tasks, each during another kind of work.

Each function works on a session with executors in processes of their own, in a folder of its own,
and raises if a job is lost or repeated. With ``store``, the address of a queue on an object store,
it uses a queue beside that one.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

import bucketq.spark
from bucketq import JobSpec
from bucketq.spark.data_source import BucketQDataSource
from bucketq.spark.table.job_writer import JobWriter
from bucketq.store.url import open_store
from tests.spark import sample_handlers, stream_program
from tests.spark.features import fresh, records, statuses
from tests.spark.stream_program import DEADLINE_S, executor

PARTS = 4


def payloads(url: str) -> list[Any]:
    return [json.loads(bytes(job.payload)) for job in records(url)]


def staged(url: str) -> list[str]:
    """Return the keys of the rows that are staged beside a queue."""

    async def keys() -> list[str]:
        location = open_store(url)
        prefix = f"{location.key.removesuffix('.json')}/staged/"
        try:
            return [info.key async for info in location.store.list(prefix)]
        finally:
            await location.store.close()

    return asyncio.run(keys())


def save(rows: DataFrame, url: str, source: str = "bucketq", bulk: str = "true") -> None:
    """Push rows that are so large that each task puts its own beside the queue."""
    text = f.repeat(f.lit("x"), 20_000)
    jobs = rows.select(f.to_json(f.struct("id", text.alias("text"))).alias("payload"))
    jobs.write.format(source).mode("append").options(kind="x", bulk=bulk).save(url)


def queue_in(folder: Path, store: str) -> str:
    """Return the address of a new queue."""
    return store.replace("queue.json", f"{folder.name}.json") if store else fresh(folder)


def write_beside_a_copy(spark: SparkSession, folder: Path) -> None:
    """Spark runs a second copy of a slow task, and both stage all of their rows."""

    def slow(batches: Iterator[Any]) -> Iterator[Any]:
        context = TaskContext.get()
        assert context is not None
        yield from batches
        if context.partitionId() == 1:
            Path(folder, f"copy{context.attemptNumber()}").touch()
            deadline = time.monotonic() + DEADLINE_S
            while not Path(folder, "copy1").exists() and time.monotonic() < deadline:
                time.sleep(0.02)

    url = fresh(folder)
    save(spark.range(400, numPartitions=PARTS).mapInArrow(slow, "id long"), url)
    assert Path(folder, "copy1").exists(), "there was no copy, so this shows nothing"
    assert sorted(each["id"] for each in payloads(url)) == list(range(400))


def write(spark: SparkSession, folder: Path, store: str = "") -> None:
    """An executor is killed when it has read some rows of a task."""

    def deadly(batches: Iterator[Any]) -> Iterator[Any]:
        for batch in batches:
            for row in range(batch.num_rows):
                yield batch.slice(row, 1)
                mark = Path(folder, "killed")
                if batch.column("id")[row].as_py() == 250 and not mark.exists():
                    mark.touch()
                    os.kill(executor(), signal.SIGKILL)

    url = queue_in(folder, store)
    save(spark.range(400, numPartitions=PARTS).mapInArrow(deadly, "id long"), url)
    assert Path(folder, "killed").exists(), "no executor was killed, so this shows nothing"
    assert sorted(each["id"] for each in payloads(url)) == list(range(400))
    assert staged(url) == []


def kill_executor() -> None:
    os.kill(executor(), signal.SIGKILL)


class DeadlyWriter(DataSourceArrowWriter):
    """Ends a task, once, when it has staged its rows and not reported it."""

    def __init__(
        self, writer: JobWriter, url: str, mark: Path, end_task: Callable[[], None]
    ) -> None:
        self._writer = writer
        self._url = url
        self._mark = mark
        self._end_task = end_task

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        message = self._writer.write(iterator)
        if message.partition == 2 and not self._mark.exists():
            self._mark.write_text(str(message.parcel.key))
            self._end_task()
        return message

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        # The rows of the ended task are still staged, and must not be pushed.
        assert self._mark.read_text() in staged(self._url)
        self._writer.commit(messages)

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        self._writer.abort(messages)


def write_that_was_staged(
    spark: SparkSession, folder: Path, store: str, end_task: Callable[[], None] = kill_executor
) -> None:
    """An executor is killed when the rows of a task are staged, and they are staged again."""
    url, mark = queue_in(folder, store), folder / "killed"

    class Deadly(BucketQDataSource):
        @classmethod
        def name(cls) -> str:
            return "deadly"

        def writer(self, schema: StructType, overwrite: bool) -> Any:
            writer = super().writer(schema, overwrite)
            assert isinstance(writer, JobWriter)
            return DeadlyWriter(writer, url, mark, end_task)

    spark.dataSource.register(Deadly)
    save(spark.range(400, numPartitions=PARTS), url, "deadly", bulk="false")
    assert mark.exists(), "no task was ended, so this shows nothing"
    assert sorted(each["id"] for each in payloads(url)) == list(range(400))
    assert staged(url) == []


def stream(spark: SparkSession, folder: Path) -> None:
    """An executor is killed while it reads a batch."""
    url = fresh(folder, *(JobSpec(kind="x", payload=n) for n in range(10)))
    (folder / "kill").touch()
    assert stream_program.start(spark, url, folder, "now").awaitTermination(DEADLINE_S)
    assert (folder / "killed").exists(), "no executor was killed, so this shows nothing"
    batches = stream_program.batches(folder)
    assert [number for number, _ in batches] == [0, 1, 2]
    jobs = sorted(job.id for job in records(url))
    assert sorted(job for _, ids in batches for job in ids) == jobs
    assert statuses(url) == {"done": 10}


def run(spark: SparkSession, folder: Path) -> None:
    """An executor is killed while handlers run."""
    payload = {"mark": str(folder)}
    url = fresh(folder, *(JobSpec(kind="kill", payload=payload | {"number": n}) for n in range(60)))
    tally = bucketq.spark.run(spark, url, {"kill": sample_handlers.kill_executor}, burst=True)
    assert tally.ends == {"done": 60}
    assert (folder / "killed").exists(), "no executor was killed, so this shows nothing"
    jobs = records(url)
    assert sorted(int(bytes(job.result)) for job in jobs) == list(range(60))
    assert {job.attempt for job in jobs} == {1}
