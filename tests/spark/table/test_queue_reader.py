"""A queue as a table: one version of it, typed, in parts, chosen by option."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

import bucketq
from bucketq import JobSpec
from tests.contract.brokers import NAME, Brokers


@pytest.fixture
def read(spark: SparkSession) -> Callable[..., DataFrame]:
    def load(url: str, **options: Any) -> DataFrame:
        return spark.read.format("bucketq").options(**options).load(url)

    return load


def microseconds(moment: datetime) -> int:
    return (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)


def test_every_column_is_as_it_was_pushed(url: str, read: Callable[..., DataFrame]) -> None:
    run_at = datetime(2031, 2, 3, 4, 5, 6, 789012, tzinfo=UTC)
    with bucketq.connect_sync(url, mode="direct", worker="w1") as queue:
        queue.push("index", {"n": 1, "name": "ü"}, tags={"a": "1"}, priority=-3, id="json")
        queue.push("raw", b"\x00\xff", run_at=run_at, key="k", max_attempts=2, id="bytes")
        queue.push("flaky", None, id="flaky", max_attempts=1)
        [job] = queue.claim("flaky")
        queue.fail(job, ValueError("no luck"))
        pushed_at = queue.get("json").record.pushed_at
    frame = read(url).withColumn("us", f.unix_micros("pushed_at"))
    rows = {row.id: row for row in frame.withColumn("run_us", f.unix_micros("run_at")).collect()}
    assert set(rows) == {"json", "bytes", "flaky"}

    json = rows["json"]
    assert (json.kind, json.status, json.priority, json.tags) == ("index", "queued", -3, {"a": "1"})
    assert json.payload == '{"n":1,"name":"ü"}'
    assert json.payload_bytes == json.payload.encode()
    assert json.us == microseconds(pushed_at)
    assert (json.attempt, json.error, json.errors, json.result) == (0, None, [], None)

    raw = rows["bytes"]
    assert (raw.payload, bytes(raw.payload_bytes)) == (None, b"\x00\xff")
    assert (raw.key, raw.max_attempts, raw.tags) == ("k", 2, {})
    assert raw.run_us == microseconds(run_at)

    flaky = rows["flaky"]
    assert (flaky.status, flaky.attempt, flaky.failures, flaky.payload) == ("dead", 1, 1, "null")
    assert "no luck" in flaky.error
    assert [(each.attempt, each.cause, each.worker) for each in flaky.errors] == [
        (1, "failed", "w1")
    ]


def test_statuses_and_kinds_are_chosen_by_option(
    file_url: str, read: Callable[..., DataFrame]
) -> None:
    with bucketq.connect_sync(file_url, mode="direct") as queue:
        queue.push_many(
            [JobSpec(kind=kind, payload=0, id=f"{kind}{n}") for kind in "abc" for n in range(2)]
        )
        queue.claim("a")
        queue.claim("c")

    def ids(**options: str) -> list[str]:
        return sorted(row.id for row in read(file_url, **options).select("id").collect())

    assert ids(status="running") == ["a0", "c0"]
    assert ids(kind="a,b") == ["a0", "a1", "b0", "b1"]
    assert ids(kind="a, c", status="queued") == ["a1", "c1"]
    assert ids(status="dead") == []


def test_an_empty_queue_is_an_empty_table(file_url: str, read: Callable[..., DataFrame]) -> None:
    with bucketq.connect_sync(file_url, mode="direct"):
        pass
    frame = read(file_url)
    assert frame.count() == 0
    assert frame.groupBy("kind").count().collect() == []


def test_all_partitions_together_hold_the_whole_queue(
    file_url: str, read: Callable[..., DataFrame]
) -> None:
    with bucketq.connect_sync(file_url, mode="direct") as queue:
        queue.push_many([JobSpec(kind="x", payload=n) for n in range(10)])
    for parts, sizes in (("1", [10]), ("3", [4, 4, 2]), ("10", [1] * 10), ("50", [1] * 10)):
        found = read(file_url, numPartitions=parts).select("seq").rdd.glom().collect()
        assert [len(part) for part in found] == sizes
        assert sorted(row.seq for part in found for row in part) == list(range(1, 11))


def test_executors_read_the_segments_of_a_deep_queue(
    url: str, read: Callable[..., DataFrame]
) -> None:
    with bucketq.connect_sync(url, mode="embedded") as queue:
        queue.configure(spill_bytes=10_000)
        queue.push_many([JobSpec(kind=f"k{n % 2}", payload=n) for n in range(1000)])
        while queue.stats().head_bytes > 50_000:
            time.sleep(0.05)
        jobs = queue.snapshot().jobs
    found = read(url, numPartitions="3").orderBy("seq").collect()
    assert [row.id for row in found] == [job.id for job in jobs]
    assert read(url, kind="k1").count() == 500
    assert read(url, status="dead").count() == 0


@pytest.mark.full  # `test_all_partitions_together_hold_the_whole_queue` reads partitions too.
def test_a_hundred_thousand_jobs_are_read_in_four_partitions(
    file_url: str, read: Callable[..., DataFrame]
) -> None:
    with bucketq.connect_sync(file_url, mode="direct") as queue:
        queue.configure(max_batch_jobs=100_000)
        queue.push_many([JobSpec(kind="x", payload=n) for n in range(50_000)])
        queue.push_many([JobSpec(kind="y", payload=n) for n in range(50_000)])
        frame = read(file_url)
        assert frame.rdd.getNumPartitions() == 4
        counts = {row.kind: row["count"] for row in frame.groupBy("kind").count().collect()}
    assert counts == {"x": 50_000, "y": 50_000}


def test_a_queue_is_read_through_its_broker_without_the_bucket(
    file_url: str, read: Callable[..., DataFrame]
) -> None:
    brokers = Brokers()
    try:
        address = f"bucketq://{brokers.serve(file_url)}/{NAME}"
        with bucketq.connect_sync(address) as queue:
            queue.push("index", {"n": 1}, id="a")
            token = queue.create_token("reader", ["read"])
        assert [row.id for row in read(address, token=token).collect()] == ["a"]
        with pytest.raises(Exception, match="AccessDeniedError") as caught:
            read(address, timeoutSeconds="5").collect()
        assert "token" in str(caught.value)
    finally:
        brokers.close()


def test_the_token_is_in_no_plan(file_url: str, read: Callable[..., DataFrame]) -> None:
    with bucketq.connect_sync(file_url, mode="direct"):
        pass
    plan = read(file_url, token="open-sesame")._jdf.queryExecution().toString()
    assert "sesame" not in plan


def test_the_test_session_is_not_in_utc(spark: SparkSession) -> None:
    # Or the tests on times would show nothing.
    assert spark.conf.get("spark.sql.session.timeZone") != "UTC"
    assert Path(os.environ["PYSPARK_PYTHON"]).exists()
