"""An error is one line, the first or last that a user sees, and says what to do."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame, SparkSession

import bucketq
import bucketq.spark
from bucketq.errors import InvalidRequestError, QueueNotFoundError, UnavailableError
from bucketq.spark.session.command_session import _silence_accumulator_server
from tests.servers.process import free_ports
from tests.spark import sample_handlers
from tests.spark.finished_jobs import archive, finished, hours_ago


def last_line(caught: pytest.ExceptionInfo[PySparkException]) -> str:
    """The last line of the message, which is what stands at the bottom of a terminal."""
    lines = [line.strip() for line in str(caught.value).splitlines() if line.strip()]
    while lines and (lines[-1].startswith("SQLSTATE") or lines[-1].startswith("==")):
        lines.pop()
    return lines[-1]


def one_more(*values: object) -> pytest.ParameterSet:
    """One more wrong option; ``tests/unit/spark`` has them all, without Spark."""
    return pytest.param(*values, marks=pytest.mark.full)


@pytest.mark.parametrize(
    ("options", "line"),
    [
        ({}, "the option path is missing"),
        ({"path": "file:///nowhere/queue.json"}, "no queue at file:///nowhere/queue.json"),
        one_more({"path": "file:///nowhere/queue.json", "paht": "x"}, "unknown option 'paht'"),
        one_more({"path": "file:///nowhere/queue.json", "table": "job"}, "unknown table 'job'"),
        one_more({"path": "/nowhere/queue.json"}, "write it as file:///nowhere/queue.json"),
        one_more(
            {"path": "file:///nowhere/queue.json", "table": "archive", "from": "2026-01-01"},
            "no queue at file:///nowhere/queue.json",
        ),
    ],
)
def test_a_failed_read_raises_an_error_with_the_reason(
    spark: SparkSession, options: dict[str, str], line: str
) -> None:
    with pytest.raises(AnalysisException) as caught:
        spark.read.format("bucketq").options(**options).load().collect()
    assert line in last_line(caught)


def test_a_broker_that_does_not_answer_is_named(spark: SparkSession) -> None:
    [port] = free_ports(1)
    reader = spark.read.format("bucketq").option("timeoutSeconds", "2")
    with pytest.raises(AnalysisException) as caught:
        reader.load(f"bucketq://127.0.0.1:{port}/queue").collect()
    assert f"127.0.0.1:{port}" in last_line(caught)


@pytest.fixture
def frame(spark: SparkSession) -> DataFrame:
    return spark.sql("SELECT 'x' AS kind, '1' AS payload")


@pytest.mark.parametrize(
    ("options", "line"),
    [
        ({}, "the option path is missing"),
        one_more({"path": "URL", "table": "archive"}, "unknown option 'table'"),
        one_more({"path": "URL", "kind": "y"}, "a column kind and an option kind"),
        one_more({"path": "URL", "maxJobsPerCommit": "0"}, "option maxJobsPerCommit: '0'"),
        ({"path": "memory://x"}, "seen by one process alone"),
    ],
)
def test_a_failed_write_raises_the_reason_and_leaves_nothing_staged(
    frame: DataFrame, file_url: str, tmp_path: Path, options: dict[str, str], line: str
) -> None:
    given = {name: value.replace("URL", file_url) for name, value in options.items()}
    with pytest.raises(PySparkException) as caught:
        frame.write.format("bucketq").mode("append").options(**given).save()
    assert line in last_line(caught)
    assert list(tmp_path.iterdir()) == []


def test_a_wrong_column_is_named_before_anything_is_written(
    spark: SparkSession, file_url: str, tmp_path: Path
) -> None:
    frame = spark.sql("SELECT 'x' AS kind, '1' AS payload, 'high' AS priority")
    with pytest.raises(PySparkException) as caught:
        frame.write.format("bucketq").mode("append").save(file_url)
    assert "column priority is string and must be int" in last_line(caught)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("mode", ["overwrite", one_more("error"), one_more("ignore")])
def test_only_append_mode_is_accepted(
    frame: DataFrame, file_url: str, tmp_path: Path, mode: str
) -> None:
    with pytest.raises(PySparkException) as caught:
        frame.write.format("bucketq").mode(mode).save(file_url)
    assert "append" in str(caught.value).lower()
    assert list(tmp_path.iterdir()) == []


def test_a_row_with_invalid_json_is_named(spark: SparkSession, file_url: str) -> None:
    rows = spark.sql("SELECT 'x' AS kind, explode(array('1', '{\"a\": ')) AS payload").coalesce(1)
    with pytest.raises(PySparkException) as caught:
        rows.write.format("bucketq").mode("append").save(file_url)
    assert "row 1 of partition 0 cannot be pushed: payload is not valid JSON" in str(caught.value)
    with bucketq.connect_sync(file_url, mode="direct") as queue:
        assert queue.snapshot().jobs == ()


def test_a_write_to_a_full_queue_pushes_nothing(spark: SparkSession, file_url: str) -> None:
    with bucketq.connect_sync(file_url, mode="direct") as queue:
        queue.configure(max_jobs=5)
        rows = spark.range(6).selectExpr("'x' AS kind", "string(id) AS payload")
        with pytest.raises(PySparkException) as caught:
            rows.write.format("bucketq").mode("append").save(file_url)
        assert "nothing was pushed: queue full" in last_line(caught)
        assert queue.snapshot().jobs == ()


@pytest.mark.parametrize(
    ("options", "line"),
    [
        ({}, "InvalidRequestError: the option consumer is missing: a name for this stream alone"),
        one_more(
            {"consumer": "c", "maxJobPerTrigger": "3"},
            "did you mean maxJobsPerTrigger? for streams",
        ),
        one_more({"maxJobPerTrigger": "3"}, "did you mean maxJobsPerTrigger, which is for streams"),
        one_more({"consumer": "c"}, "no queue at file:///nowhere/q.json"),
    ],
)
def test_a_failed_stream_read_ends_with_the_reason(
    spark: SparkSession, tmp_path: Path, options: dict[str, str], line: str
) -> None:
    def read() -> None:
        frame = spark.readStream.format("bucketq").options(**options).load("file:///nowhere/q.json")
        writer = frame.writeStream.format("noop").trigger(availableNow=True)
        writer.option("checkpointLocation", str(tmp_path)).start().awaitTermination(60)

    with pytest.raises(PySparkException) as caught:
        read()
    text, _, _ = str(caught.value).partition("=== Streaming Query ===")
    errors = [each for each in text.splitlines() if re.match(r"[\w.]*Error\b", each)]
    assert line in errors[-1]


SINCE = datetime(2026, 11, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    "work",
    [
        lambda spark: bucketq.spark.compact(spark, "file:///nowhere/queue.json"),
        lambda spark: bucketq.spark.report(spark, "file:///nowhere/queue.json", SINCE),
        lambda spark: bucketq.spark.replay(spark, "file:///nowhere/queue.json", "1", since=SINCE),
        lambda spark: bucketq.spark.run(
            spark,
            "file:///nowhere/queue.json",
            {"x": sample_handlers.in_thread},
            create=False,
            burst=True,
        ),
    ],
    ids=["compact", "report", "replay", "run"],
)
def test_running_handlers_on_a_missing_queue_raises_a_one_line_error(
    spark: SparkSession, work: Callable[[SparkSession], object]
) -> None:
    with pytest.raises(QueueNotFoundError, match=r"^no queue at file:///nowhere/queue\.json.*$"):
        work(spark)


def test_handlers_on_spark_name_a_broker_that_does_not_answer(spark: SparkSession) -> None:
    [port] = free_ports(1)
    url, handlers = f"bucketq://127.0.0.1:{port}/queue", {"x": sample_handlers.in_thread}
    with pytest.raises(UnavailableError, match=f"no broker listens at 127.0.0.1:{port}"):
        bucketq.spark.run(spark, url, handlers, timeout_s=2, burst=True)


def test_a_condition_that_fails_on_some_job_is_reported_in_one_line(
    spark: SparkSession, file_url: str
) -> None:
    with bucketq.connect_sync(file_url, mode="direct"):
        pass
    archive(file_url, [finished("job1", hours_ago(2))])
    with pytest.raises(InvalidRequestError) as caught:
        bucketq.spark.replay(spark, file_url, "int(kind) = 1", since=hours_ago(6))
    assert "spark cannot do it with these jobs: The value 'index'" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_times_without_a_zone_are_rejected(spark: SparkSession, file_url: str) -> None:
    naive = SINCE.replace(tzinfo=None)
    with pytest.raises(InvalidRequestError, match="since has no time zone"):
        bucketq.spark.report(spark, file_url, naive)
    with pytest.raises(InvalidRequestError, match="since has no time zone"):
        bucketq.spark.replay(spark, file_url, "true", since=naive)
    with pytest.raises(InvalidRequestError, match="since is '7d': write datetime"):
        bucketq.spark.report(spark, file_url, "7d")  # type: ignore[arg-type]
    with pytest.raises(InvalidRequestError, match="until has no time zone"):
        bucketq.spark.compact(spark, file_url, until=naive)


def test_a_paused_queue_can_be_written_and_read(spark: SparkSession, file_url: str) -> None:
    with bucketq.connect_sync(file_url, mode="direct") as queue:
        queue.pause()
    rows = spark.sql("SELECT 'x' AS kind, '1' AS payload")
    rows.write.format("bucketq").mode("append").save(file_url)
    assert spark.read.format("bucketq").load(file_url).count() == 1


def test_a_thread_of_pyspark_prints_no_traceback_if_the_jvm_is_killed(
    spark: SparkSession, capfd: pytest.CaptureFixture[str]
) -> None:
    """It notices the end of the JVM first; the call that waits raises an error of one line."""
    server: Any = spark.sparkContext._accumulatorServer
    server.handle_error(None, ("127.0.0.1", 1))
    assert "Exception occurred" in capfd.readouterr().err, "else there is nothing to silence"
    try:
        _silence_accumulator_server(spark)
        server.handle_error(None, ("127.0.0.1", 1))
    finally:
        del server.handle_error
    assert capfd.readouterr() == ("", "")
