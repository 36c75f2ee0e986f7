"""What is wrong is told in one line, first or last of what a user sees, with the way out."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame, SparkSession

import bucketq
from tests.servers.process import free_ports


def told(caught: pytest.ExceptionInfo[PySparkException]) -> str:
    """The last line of the message, which is what stands at the bottom of a terminal."""
    lines = [line.strip() for line in str(caught.value).splitlines() if line.strip()]
    while lines and (lines[-1].startswith("SQLSTATE") or lines[-1].startswith("==")):
        lines.pop()
    return lines[-1]


@pytest.mark.parametrize(
    ("options", "line"),
    [
        ({}, "the option path is missing"),
        ({"path": "file:///nowhere/queue.json", "paht": "x"}, "unknown option 'paht'"),
        ({"path": "file:///nowhere/queue.json", "table": "job"}, "unknown table 'job'"),
        ({"path": "/nowhere/queue.json"}, "write it as file:///nowhere/queue.json"),
        ({"path": "file:///nowhere/queue.json"}, "no queue at file:///nowhere/queue.json"),
        (
            {"path": "file:///nowhere/queue.json", "table": "archive", "from": "2026-01-01"},
            "no queue at file:///nowhere/queue.json",
        ),
    ],
)
def test_a_read_that_cannot_be_done_says_why(
    spark: SparkSession, options: dict[str, str], line: str
) -> None:
    with pytest.raises(AnalysisException) as caught:
        spark.read.format("bucketq").options(**options).load().collect()
    assert line in told(caught)


def test_a_broker_that_does_not_answer_is_named(spark: SparkSession) -> None:
    [port] = free_ports(1)
    reader = spark.read.format("bucketq").option("timeoutSeconds", "2")
    with pytest.raises(AnalysisException) as caught:
        reader.load(f"bucketq://127.0.0.1:{port}/queue").collect()
    assert f"127.0.0.1:{port}" in told(caught)


@pytest.fixture
def frame(spark: SparkSession) -> DataFrame:
    return spark.sql("SELECT 'x' AS kind, '1' AS payload")


@pytest.mark.parametrize(
    ("options", "line"),
    [
        ({}, "the option path is missing"),
        ({"path": "URL", "table": "archive"}, "unknown option 'table'"),
        ({"path": "URL", "kind": "y"}, "a column kind and an option kind"),
        ({"path": "URL", "maxJobsPerCommit": "0"}, "option maxJobsPerCommit: '0'"),
        ({"path": "memory://x"}, "seen by one process alone"),
    ],
)
def test_a_write_that_cannot_be_done_says_why_and_leaves_nothing(
    frame: DataFrame, file_url: str, tmp_path: Path, options: dict[str, str], line: str
) -> None:
    given = {name: value.replace("URL", file_url) for name, value in options.items()}
    with pytest.raises(PySparkException) as caught:
        frame.write.format("bucketq").mode("append").options(**given).save()
    assert line in told(caught)
    assert list(tmp_path.iterdir()) == []


def test_a_wrong_column_is_named_before_anything_is_written(
    spark: SparkSession, file_url: str, tmp_path: Path
) -> None:
    frame = spark.sql("SELECT 'x' AS kind, '1' AS payload, 'high' AS priority")
    with pytest.raises(PySparkException) as caught:
        frame.write.format("bucketq").mode("append").save(file_url)
    assert "column priority is string and must be int" in told(caught)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("mode", ["overwrite", "error", "ignore"])
def test_a_queue_is_appended_to_and_nothing_else(
    frame: DataFrame, file_url: str, tmp_path: Path, mode: str
) -> None:
    with pytest.raises(PySparkException) as caught:
        frame.write.format("bucketq").mode(mode).save(file_url)
    assert "append" in str(caught.value).lower()
    assert list(tmp_path.iterdir()) == []


def test_a_row_that_is_no_json_is_named(spark: SparkSession, file_url: str) -> None:
    rows = spark.sql("SELECT 'x' AS kind, explode(array('1', '{\"a\": ')) AS payload").coalesce(1)
    with pytest.raises(PySparkException) as caught:
        rows.write.format("bucketq").mode("append").save(file_url)
    assert "row 1 of partition 0 cannot be pushed: payload is not valid JSON" in str(caught.value)
    with bucketq.connect_sync(file_url, mode="direct") as queue:
        assert queue.snapshot().jobs == ()


def test_a_queue_that_is_full_takes_nothing(spark: SparkSession, file_url: str) -> None:
    with bucketq.connect_sync(file_url, mode="direct") as queue:
        queue.config(max_jobs=5)
        rows = spark.range(6).selectExpr("'x' AS kind", "string(id) AS payload")
        with pytest.raises(PySparkException) as caught:
            rows.write.format("bucketq").mode("append").save(file_url)
        assert "nothing was pushed: queue full" in told(caught)
        assert queue.snapshot().jobs == ()


def test_a_paused_queue_takes_jobs_and_is_read(spark: SparkSession, file_url: str) -> None:
    with bucketq.connect_sync(file_url, mode="direct") as queue:
        queue.pause()
    rows = spark.sql("SELECT 'x' AS kind, '1' AS payload")
    rows.write.format("bucketq").mode("append").save(file_url)
    assert spark.read.format("bucketq").load(file_url).count() == 1
