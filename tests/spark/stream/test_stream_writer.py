"""A stream that pushes: every batch of a query once, however often it is done."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

import bucketq
from bucketq import JobSpec

DEADLINE_S = 150
"""Generous, for a machine that does much else."""


@pytest.fixture
def run(spark: SparkSession, tmp_path: Path) -> Callable[..., None]:
    """Let a stream push what there is to be read."""

    def push_all(frame: DataFrame, sink: str, **options: Any) -> None:
        query = (
            frame.writeStream.format("bucketq")
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .options(**options)
            .trigger(availableNow=True)
            .start(sink)
        )
        assert query.awaitTermination(DEADLINE_S)

    return push_all


def pushed(url: str) -> list[int]:
    with bucketq.connect_sync(url, mode="direct") as queue:
        return sorted(job.payload for job in queue.jobs().jobs)


def test_jobs_are_copied_from_a_deep_queue_to_another(
    spark: SparkSession, url: str, tmp_path: Path, run: Callable[..., None]
) -> None:
    with bucketq.connect_sync(url, mode="direct") as queue:
        # So that done jobs can be counted, and most of the others are in segments.
        queue.configure(archive_after_s=3600, spill_bytes=1000)
        for start in range(0, 60, 20):
            queue.push_many(
                [JobSpec(kind="x", payload=n, tags={"n": str(n)}) for n in range(start, start + 20)]
            )
        assert queue.stats().segments > 0
    jobs = spark.readStream.format("bucketq").option("consumer", "c").option("minPartitions", 2)
    frame = jobs.option("maxJobsPerTrigger", 40).load(url).select("kind", "payload", "tags")
    sink = (tmp_path / "sink.json").as_uri()
    with bucketq.connect_sync(sink, mode="direct") as queue:
        queue.configure(spill_bytes=1000)
    run(frame, sink)
    assert pushed(sink) == list(range(60))
    with bucketq.connect_sync(sink, mode="direct") as queue:
        assert queue.stats().segments > 0
        assert all(job.tags == {"n": str(job.payload)} for job in queue.jobs().jobs)
    with bucketq.connect_sync(url, mode="direct") as queue:
        assert queue.stats().counts == {"x": {"done": 60}}


def test_a_repeated_batch_duplicates_nothing(
    spark: SparkSession, url: str, tmp_path: Path, run: Callable[..., None]
) -> None:
    folder = tmp_path / "rows"
    folder.mkdir()

    def add(number: int, count: int = 3) -> None:
        rows = [json.dumps({"payload": str(number * 10 + row)}) for row in range(count)]
        (folder / f"{number}.json").write_text("\n".join(rows), "utf-8")

    add(0)
    reader = spark.readStream.schema("payload string").option("maxFilesPerTrigger", 1)
    frame = reader.json(str(folder))
    run(frame, url, kind="x")
    add(1)
    run(frame, url, kind="x")
    assert pushed(url) == [0, 1, 2, 10, 11, 12]
    # As if the driver had been killed between its push and Spark's commit of the second batch.
    for name in ("1", ".1.crc"):
        (tmp_path / "checkpoint" / "commits" / name).unlink()
    # Its rows are computed anew and are others, so the ids of its jobs alone would not show it.
    add(1, count=5)
    add(2)
    run(frame, url, kind="x")
    assert (tmp_path / "checkpoint" / "commits" / "1").exists()
    assert pushed(url) == [0, 1, 2, 10, 11, 12, 20, 21, 22]


def test_a_batch_with_more_rows_than_a_push_may_have_is_pushed_once(
    spark: SparkSession, file_url: str, tmp_path: Path, run: Callable[..., None]
) -> None:
    folder = tmp_path / "rows"
    spark.range(25_000, numPartitions=2).selectExpr("string(id) AS payload").write.json(str(folder))
    frame = spark.readStream.schema("payload string").json(str(folder))
    for _ in range(2):
        run(frame, file_url, kind="x")
        with bucketq.connect_sync(file_url, mode="direct") as queue:
            assert queue.stats().counts == {"x": {"queued": 25_000}}
        # As if the driver had been killed between its push and Spark's commit.
        for name in ("0", ".0.crc"):
            (tmp_path / "checkpoint" / "commits" / name).unlink()


def test_wrong_columns_and_options_are_named(
    spark: SparkSession, file_url: str, run: Callable[..., None]
) -> None:
    frame = spark.readStream.format("rate").load()
    with pytest.raises(Exception, match="no column payload"):
        run(frame, file_url, kind="x")
    with pytest.raises(Exception, match="the option writeid is not for streams"):
        run(frame.selectExpr("value AS payload"), file_url, kind="x", writeId="mine")
