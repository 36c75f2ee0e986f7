"""A DataFrame as jobs of any number, in one commit that adopts what executors have written."""

from __future__ import annotations

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
from bucketq.codec import decode
from bucketq.model.operations import Snapshot
from bucketq.model.state import State

ROWS = 25_000


def write(frame: DataFrame, url: str, **options: Any) -> None:
    frame.write.format("bucketq").mode("append").options(bulk="true", **options).save(url)


def frame_of(spark: SparkSession, rows: int = ROWS) -> DataFrame:
    return spark.range(rows, numPartitions=3).select(
        f.lit("index").alias("kind"), f.to_json(f.struct("id")).alias("payload")
    )


def snapshot(url: str) -> Snapshot:
    with bucketq.connect_sync(url, mode="direct", create=False) as queue:
        return queue.snapshot()


def head(url: str) -> State:
    return decode(Path(url.removeprefix("file://")).read_bytes(), url).state


def test_more_rows_than_a_push_may_have_are_one_commit(spark: SparkSession, file_url: str) -> None:
    frame = frame_of(spark)
    write(frame, file_url, writeId="once")
    state = head(file_url)
    assert state.version == 3, "created, reserved, adopted"
    assert len(state.reservations) == len(state.jobs) == 0
    jobs = snapshot(file_url).jobs
    assert [Job(each, Any).payload["id"] for each in jobs] == [*range(ROWS)]
    write(frame, file_url, writeId="once")
    assert head(file_url).cold.rows.count("ready") == ROWS


def test_a_write_whose_task_fails_adds_nothing(spark: SparkSession, file_url: str) -> None:
    def fail(batches: Iterator[Any]) -> Iterator[Any]:
        context = TaskContext.get()
        yield from batches
        if context is not None and context.partitionId() == 1:
            message = "this task fails"
            raise ValueError(message)

    frame = frame_of(spark, 3000)
    with pytest.raises(PySparkException, match="this task fails"):
        write(frame.mapInArrow(fail, frame.schema), file_url)
    state = head(file_url)
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
        write(frame, file_url)


def test_a_write_in_several_commits_is_not_resumed_in_bulk(
    spark: SparkSession, file_url: str
) -> None:
    frame = frame_of(spark, 30)
    options = {"writeId": "split", "maxJobsPerCommit": "10"}
    frame.write.format("bucketq").mode("append").options(**options).save(file_url)
    with pytest.raises(PySparkException, match="in several"):
        write(frame, file_url, writeId="split")
    assert len(snapshot(file_url).jobs) == 30


def test_bulk_is_one_commit(spark: SparkSession, file_url: str) -> None:
    with pytest.raises(PySparkException, match="exclude each other"):
        write(frame_of(spark, 1), file_url, maxJobsPerCommit="10")
    with pytest.raises(PySparkException, match="not of a broker"):
        write(frame_of(spark, 1), "bucketq://127.0.0.1:1/queue", timeoutSeconds="1")
