"""A DataFrame as jobs: all of them once, or none and the reason."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark import TaskContext
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

import bucketq
from bucketq import Job
from bucketq.model.operations import Snapshot
from bucketq.store.url import open_store
from tests.contract.brokers import NAME, Brokers
from tests.spark import executor_losses

Write = Callable[..., None]
DEADLINE_S = 60


@pytest.fixture
def write() -> Write:
    """By staging; ``test_bulk_writer`` has the other way, which is the default."""

    def save(frame: DataFrame, url: str, mode: str = "append", **options: Any) -> None:
        given = {"bulk": "false", **options}
        frame.write.format("bucketq").mode(mode).options(**given).save(url)

    return save


def snapshot(url: str) -> Snapshot:
    with bucketq.connect_sync(url, mode="direct", create=False) as queue:
        return queue.snapshot()


def payloads(url: str) -> list[Any]:
    return [Job(record, Any).payload for record in snapshot(url).jobs]


def staged(url: str) -> list[Path]:
    location = open_store(url)
    root = Path(location.url.removeprefix("file://")).with_suffix("") / "staged"
    return [path for path in root.rglob("*") if path.name != ".bucketq.lock"]


def test_rows_become_jobs_in_one_commit_in_order(
    spark: SparkSession, url: str, write: Write
) -> None:
    with bucketq.connect_sync(url, mode="direct") as queue:
        before = queue.stats().version
    frame = spark.range(1000, numPartitions=3).select(
        f.lit("index").alias("kind"),
        f.to_json(f.struct("id")).alias("payload"),
        (f.col("id") % 3).alias("priority"),
    )
    write(frame, url)
    found = snapshot(url)
    assert found.version == before + 2, "one commit pushes, and one forgets the write"
    assert len({each.pushed_at for each in found.jobs}) == 1
    assert [Job(each, Any).payload["id"] for each in found.jobs] == list(range(1000))
    assert {(each.kind, each.status) for each in found.jobs} == {("index", "queued")}
    assert [each.priority for each in found.jobs[:4]] == [0, 1, 2, 0]


def test_every_field_of_a_job_arrives(spark: SparkSession, file_url: str, write: Write) -> None:
    frame = spark.sql(
        """
        SELECT 'mine' AS id, 'a' AS kind, named_struct('n', 1, 'at', at) AS payload,
               -7 AS priority, at AS run_at, 3 AS max_attempts, 'k' AS key, map('t', '1') AS tags
        FROM (SELECT timestamp'2031-02-03T04:05:06.789012Z' AS at)
        """
    )
    write(frame, file_url)
    [job] = snapshot(file_url).jobs
    at = datetime(2031, 2, 3, 4, 5, 6, 789012, tzinfo=UTC)
    assert (job.id, job.kind, job.priority, job.max_attempts) == ("mine", "a", -7, 3)
    assert (job.run_at, job.key, job.tags) == (at, "k", {"t": "1"})
    assert Job(job, Any).payload == {"n": 1, "at": "2031-02-03T04:05:06.789012Z"}


def test_bytes_and_packed_columns_are_payloads_too(
    spark: SparkSession, file_url: str, write: Write
) -> None:
    write(spark.sql("SELECT X'00FF' AS payload"), file_url, kind="raw")
    write(
        spark.sql("SELECT 1 AS a, array('x') AS b, 'k' AS key"),
        file_url,
        kind="packed",
        payloadColumns="*",
    )
    assert payloads(file_url) == [b"\x00\xff", {"a": 1, "b": ["x"]}]


def test_what_was_read_can_be_written(spark: SparkSession, file_url: str, write: Write) -> None:
    with bucketq.connect_sync(file_url, mode="direct") as queue:
        queue.push("a", {"n": 1}, tags={"t": "1"}, priority=2, id="x")
    target = file_url.replace("queue.json", "copy.json")
    frame = spark.read.format("bucketq").load(file_url)
    write(frame.select("id", "kind", "payload", "priority", "tags"), target)
    [ours], [theirs] = snapshot(file_url).jobs, snapshot(target).jobs
    assert (theirs.id, theirs.kind, bytes(theirs.payload), theirs.priority, theirs.tags) == (
        ours.id,
        ours.kind,
        bytes(ours.payload),
        ours.priority,
        ours.tags,
    )


def test_no_rows_push_nothing(spark: SparkSession, file_url: str, write: Write) -> None:
    write(spark.range(0).select(f.lit("1").alias("payload")), file_url, kind="x")
    assert snapshot(file_url).jobs == ()


def test_a_retried_task_duplicates_nothing(
    spark: SparkSession, file_url: str, tmp_path: Path, write: Write
) -> None:
    marks = str(tmp_path)

    def fails_once(batches: Any) -> Any:
        for batch in batches:
            yield batch
            mark = Path(marks, f"failed-{batch.column('id')[0].as_py()}")
            if not mark.exists():
                mark.touch()
                raise ValueError("as it happens")

    frame = spark.range(40, numPartitions=4).mapInArrow(fails_once, "id long")
    write(frame.select(f.to_json(f.struct("id")).alias("payload")), file_url, kind="x")
    assert len(list(tmp_path.glob("failed-*"))) == 4
    assert [each["id"] for each in payloads(file_url)] == list(range(40))


def fail_task() -> None:
    message = "as it happens"
    raise ValueError(message)


def test_rows_that_a_failed_task_has_staged_are_not_pushed(
    spark: SparkSession, tmp_path: Path, store_url: Callable[[], str]
) -> None:
    executor_losses.write_that_was_staged(spark, tmp_path, store_url(), fail_task)


def test_a_write_whose_retries_fail_pushes_and_leaves_nothing(
    spark: SparkSession, file_url: str, write: Write
) -> None:
    place = Path(file_url.removeprefix("file://")).with_suffix("") / "staged"

    def in_turn(batches: Iterator[Any]) -> Iterator[Any]:
        """Let the rows that are wrong come when the other task has staged its own."""
        context = TaskContext.get()
        deadline = time.monotonic() + DEADLINE_S
        while context and context.partitionId() and not list(place.glob("*.jsonl")):
            assert time.monotonic() < deadline, "the other task has staged nothing"
            time.sleep(0.02)
        yield from batches

    text = f.when(f.col("id") == 2999, f.lit("{")).otherwise(f.lit('"%s"' % ("x" * 1000)))
    rows = spark.range(3000, numPartitions=2).mapInArrow(in_turn, "id long")
    frame = rows.select(text.alias("payload"))
    with pytest.raises(PySparkException, match="row 1499 of partition 1 cannot be pushed"):
        write(frame, file_url, kind="x")
    assert snapshot(file_url).jobs == ()
    assert staged(file_url) == []


def test_repeating_a_finished_write_id_pushes_nothing_even_after_its_jobs_are_archived(
    spark: SparkSession, file_url: str, write: Write
) -> None:
    frame = spark.range(3).select(f.to_json(f.struct("id")).alias("payload"))
    write(frame, file_url, kind="x", writeId="nightly")
    with bucketq.connect_sync(file_url, mode="direct") as queue:
        queue.complete_many(queue.claim("x", limit=3))
        assert queue.flush_archive() == 3
    write(frame, file_url, kind="x", writeId="nightly")
    assert snapshot(file_url).jobs == ()


def test_many_rows_are_staged_beside_the_queue_and_nothing_is_left(
    spark: SparkSession, file_url: str, write: Write
) -> None:
    frame = spark.range(3000, numPartitions=2).select(f.repeat(f.lit("x"), 1000).alias("text"))
    write(frame, file_url, kind="x", payloadColumns="text")
    assert len(snapshot(file_url).jobs) == 3000
    assert staged(file_url) == []


def test_a_write_too_large_for_a_commit_pushes_nothing_and_suggests_a_split(
    spark: SparkSession, file_url: str, write: Write
) -> None:
    frame = spark.range(25, numPartitions=3).select(f.to_json(f.struct("id")).alias("payload"))
    with bucketq.connect_sync(file_url, mode="direct") as queue:
        queue.configure(max_batch_jobs=10)
        version = queue.stats().version
    with pytest.raises(PySparkException) as caught:
        write(frame, file_url, kind="x")
    assert 'option("maxJobsPerCommit", "10")' in str(caught.value)
    assert snapshot(file_url).version == version
    write(frame, file_url, kind="x", maxJobsPerCommit="10")
    assert snapshot(file_url).version == version + 4, "three push, and one forgets the write"
    assert [each["id"] for each in payloads(file_url)] == list(range(25))


def test_a_split_write_that_fails_part_way_resumes_under_its_write_id(
    spark: SparkSession, file_url: str, write: Write
) -> None:
    frame = spark.range(25, numPartitions=3).select(f.to_json(f.struct("id")).alias("payload"))
    with bucketq.connect_sync(file_url, mode="direct") as queue:
        queue.configure(max_jobs=15)
        with pytest.raises(PySparkException) as caught:
            write(frame, file_url, kind="x", maxJobsPerCommit="10")
        message = str(caught.value)
        assert "10 of 25 jobs were pushed" in message
        write_id = message.partition('option("writeId", "')[2].partition('"')[0]
        queue.complete_many(queue.claim("x", limit=10))
        queue.flush_archive()
        write(frame, file_url, kind="x", maxJobsPerCommit="10", writeId=write_id)
    assert [each["id"] for each in payloads(file_url)] == list(range(10, 25))


def test_a_key_column_deduplicates_as_keys_of_pushes_do(
    spark: SparkSession, file_url: str, write: Write
) -> None:
    def frame(low: int, high: int, payload: str = "1") -> DataFrame:
        return spark.range(low, high).select(
            f.concat(f.lit("key-"), "id").alias("key"), f.lit(payload).alias("payload")
        )

    write(frame(0, 5), file_url, kind="x")
    write(frame(3, 8), file_url, kind="x")
    assert sorted(str(job.key) for job in snapshot(file_url).jobs) == [f"key-{n}" for n in range(8)]
    with pytest.raises(PySparkException, match="belongs to job"):
        write(frame(7, 10, "2"), file_url, kind="x")
    with pytest.raises(PySparkException, match="stands twice in one push"):
        write(frame(20, 21).union(frame(20, 21)), file_url, kind="x")
    assert len(snapshot(file_url).jobs) == 8


def test_a_queue_is_written_through_its_broker_without_the_bucket(
    spark: SparkSession, file_url: str, write: Write
) -> None:
    brokers = Brokers()
    try:
        address = f"bucketq://{brokers.serve(file_url)}/{NAME}"
        with bucketq.connect_sync(address) as queue:
            token = queue.create_token("writer", ["push"])
        frame = spark.range(3000, numPartitions=2).select(f.repeat(f.lit("x"), 1000).alias("text"))
        write(frame, address, kind="x", payloadColumns="*", token=token)
    finally:
        brokers.close()
    assert len(snapshot(file_url).jobs) == 3000


@pytest.mark.full  # `test_guide` pushes 25,000 rows in three commits in every run.
def test_a_hundred_thousand_rows_are_pushed_in_ten_commits(
    spark: SparkSession, file_url: str, write: Write
) -> None:
    frame = spark.range(100_000, numPartitions=4).select(f.to_json(f.struct("id")).alias("payload"))
    write(frame, file_url, kind="x", maxJobsPerCommit="10000")
    assert [each["id"] for each in payloads(file_url)] == list(range(100_000))
