"""A DataFrame as jobs of any number, in one commit that adopts what executors have written."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark import TaskContext
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

import bucketq
from bucketq import Job
from bucketq.codec.decode import decode
from bucketq.model.operations import Snapshot
from bucketq.model.state import State
from bucketq.spark.queue_access import QueueAccess
from bucketq.spark.table.bulk_writer import PART
from bucketq.spark.table.held_reservation import opened_bulk

ROWS = 25_000


def write(frame: DataFrame, url: str, **options: Any) -> None:
    frame.write.format("bucketq").mode("append").options(**options).save(url)


def frame_of(spark: SparkSession, rows: int = ROWS, partitions: int = 3) -> DataFrame:
    return spark.range(rows, numPartitions=partitions).select(
        f.lit("index").alias("kind"), f.to_json(f.struct("id")).alias("payload")
    )


def snapshot(url: str) -> Snapshot:
    with bucketq.connect_sync(url, mode="direct", create=False) as queue:
        return queue.snapshot()


def head(url: str) -> State:
    return decode(Path(url.removeprefix("file://")).read_bytes(), url).state


def numbers(url: str) -> list[int]:
    return [Job(each, Any).payload["id"] for each in snapshot(url).jobs]


@pytest.mark.parametrize(
    ("options", "segments"),
    [pytest.param({"bulk": "true"}, 3, id="put by tasks"), pytest.param({}, 1, id="by the driver")],
)
def test_more_rows_than_a_push_may_have_are_one_commit(
    spark: SparkSession, file_url: str, options: dict[str, str], segments: int
) -> None:
    frame = frame_of(spark)
    write(frame, file_url, writeId="once", **options)
    state = head(file_url)
    assert state.version == 3, "created, reserved, adopted"
    assert len(state.reservations) == len(state.jobs) == 0
    assert len(state.cold.rows.segments) == segments
    assert numbers(file_url) == [*range(ROWS)]
    write(frame, file_url, writeId="once", **options)
    assert head(file_url).cold.rows.count("ready") == ROWS
    assert head(file_url).version == 3


def test_few_rows_are_one_commit_without_a_segment(spark: SparkSession, file_url: str) -> None:
    frame = frame_of(spark, 100)
    with bucketq.connect_sync(file_url, mode="direct") as queue:
        queue.configure(spill_bytes=1 << 20)
    before = head(file_url).version
    for _ in range(2):
        write(frame, file_url, writeId="once")
    state = head(file_url)
    assert state.version == before + 1, "published"
    assert len(state.cold.rows.segments) == 0
    assert numbers(file_url) == [*range(100)]
    write(frame, file_url, writeId="once", bulk="true")
    assert len(snapshot(file_url).jobs) == 100


def test_rows_of_large_and_small_tasks_keep_their_order(spark: SparkSession, file_url: str) -> None:
    text = f.repeat(f.lit("x"), f.when(f.col("id").between(1000, 1999), 2000).otherwise(1)).alias(
        "text"
    )
    frame = spark.range(4000, numPartitions=4).select(
        f.when(f.col("id") % 2 == 0, "a").otherwise("b").alias("kind"),
        (f.col("id") % 3).alias("priority"),
        f.struct("id", text).alias("payload"),
    )
    write(frame, file_url)
    assert numbers(file_url) == [*range(4000)]
    assert len(head(file_url).cold.rows.segments) == 3, "a small task, a large one, two small ones"
    with bucketq.connect_sync(file_url, mode="direct") as queue:
        found = [job.payload["id"] for job in queue.claim("b", limit=4000)]
    assert found == sorted(range(1, 4000, 2), key=lambda number: (number % 3, number))


def test_what_a_killed_run_has_reserved_is_given_up_by_the_next(
    spark: SparkSession, file_url: str
) -> None:
    async def reserve() -> None:
        async with opened_bulk(QueueAccess(file_url)) as bulk:
            assert await bulk.reserve("once", 0, PART)

    asyncio.run(reserve())
    write(frame_of(spark, 100), file_url, writeId="once", bulk="true")
    state = head(file_url)
    assert len(state.reservations) == 0
    assert state.cold.rows.count("ready") == 100


def test_a_write_whose_task_fails_adds_nothing(spark: SparkSession, file_url: str) -> None:
    path = Path(file_url.removeprefix("file://"))

    def fail(batches: Iterator[Any]) -> Iterator[Any]:
        context = TaskContext.get()
        yield from batches
        if context is not None and context.partitionId() == 1:
            # Only now, because a task that reserves after the abort leaves its reservation behind.
            while b'"reservations":[' not in path.read_bytes():
                time.sleep(0.05)
            message = "this task fails"
            raise ValueError(message)

    frame = frame_of(spark, 3000, partitions=2)
    with pytest.raises(PySparkException, match="this task fails"):
        write(frame.mapInArrow(fail, frame.schema), file_url, bulk="true")
    state = head(file_url)
    assert state.version == 3, "created, reserved, given up"
    assert state.cold.rows.count("ready") == len(state.reservations) == 0


@pytest.mark.parametrize(
    "column", ["key", *(pytest.param(name, marks=pytest.mark.full) for name in ("id", "run_at"))]
)
def test_rows_that_have_to_be_compared_are_refused(
    spark: SparkSession, file_url: str, column: str
) -> None:
    values = {"id": f.lit("x"), "key": f.lit("x"), "run_at": f.current_timestamp()}
    frame = frame_of(spark, 1).withColumn(column, values[column])
    with pytest.raises(PySparkException, match=f"a column {column}"):
        write(frame, file_url, bulk="true")
    write(frame, file_url)
    assert len(snapshot(file_url).jobs) == 1


def test_a_write_in_several_commits_is_not_resumed_in_bulk(
    spark: SparkSession, file_url: str
) -> None:
    frame = frame_of(spark, 30)
    options = {"writeId": "split", "maxJobsPerCommit": "10"}
    frame.write.format("bucketq").mode("append").options(**options).save(file_url)
    with pytest.raises(PySparkException, match="in several"):
        write(frame, file_url, writeId="split", bulk="true")
    write(frame, file_url, writeId="split")
    assert len(snapshot(file_url).jobs) == 30


def test_bulk_is_one_commit(spark: SparkSession, file_url: str) -> None:
    with pytest.raises(PySparkException, match="exclude each other"):
        write(frame_of(spark, 1), file_url, bulk="true", maxJobsPerCommit="10")
    with pytest.raises(PySparkException, match="not of a broker"):
        write(frame_of(spark, 1), "bucketq://127.0.0.1:1/queue", bulk="true", timeoutSeconds="1")
    settings: tuple[dict[str, Any], ...] = (
        {"max_format": 1},
        {"max_format": 2, "history_retention_s": 60},
    )
    for setting in settings:
        with bucketq.connect_sync(file_url, mode="direct") as queue:
            queue.configure(**setting)
        with pytest.raises(PySparkException, match="is not possible"):
            write(frame_of(spark, 1), file_url, bulk="true")
        write(frame_of(spark, 1), file_url)
    assert len(snapshot(file_url).jobs) == 2


def test_more_rows_than_a_push_may_have_go_in_several_commits_with_a_history(
    spark: SparkSession, file_url: str
) -> None:
    with bucketq.connect_sync(file_url, mode="direct") as queue:
        queue.configure(history_retention_s=3600)
    frame = frame_of(spark)
    before = head(file_url).version
    for _ in range(2):
        write(frame, file_url, writeId="once")
    assert numbers(file_url) == [*range(ROWS)]
    assert head(file_url).version >= before + 3
    assert head(file_url).writers.by_id["once"].position == (0, ROWS)
