"""What is checked before Spark starts, and how its errors are translated."""

from __future__ import annotations

import logging
from io import BytesIO
from pathlib import Path

import pytest

from bucketq.errors import BucketQError, CorruptStateError, InvalidRequestError, UnavailableError
from bucketq.spark.session import command_session
from bucketq.spark.session.command_session import require_spark
from bucketq.spark.session.spark_errors import translate_errors, translated

pytest.importorskip("pyspark")
from py4j.protocol import Py4JNetworkError
from pyspark.logger import PySparkLogger


def test_a_missing_pyspark_is_reported(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(command_session, "find_spec", lambda _: None)
    with pytest.raises(InvalidRequestError, match=r'pip install "bucketq\[spark\]"'):
        require_spark("local[*]")


def test_a_pyspark_that_is_too_old_is_reported_before_spark_starts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("importlib.metadata.version", lambda _: "3.5.9")
    with pytest.raises(InvalidRequestError, match=r'this is 3\.5\.9: pip install "pyspark>=4\.0"'):
        require_spark("local[*]")


def test_a_missing_java_is_reported_unless_spark_runs_elsewhere(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(InvalidRequestError, match="install Java"):
        require_spark("local[*]")
    require_spark("sc://host")


def test_packages_that_connect_needs_are_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        command_session, "find_spec", lambda name: None if name == "grpc_status" else name
    )
    with pytest.raises(
        InvalidRequestError, match=r'grpc_status, .* pip install "pyspark\[connect\]"'
    ):
        require_spark("sc://host")


@pytest.mark.parametrize(
    ("text", "kind", "message"),
    [
        (
            'o46.load.\n: java.io.IOException: Cannot run program "/x/python": 2\n\tat java.y',
            UnavailableError,
            "spark cannot run /x/python",
        ),
        (
            "thrown\nbucketq.errors.CorruptStateError: line 3 cannot be read\n\tat org.apache.x",
            CorruptStateError,
            "line 3 cannot be read",
        ),
        (
            "[CAST_INVALID_INPUT.X2] no. SQLSTATE: 22018; line 1 pos 5;\n\tat java.y",
            InvalidRequestError,
            "spark cannot do it with these jobs: no.; line 1 pos 5",
        ),
        (
            (
                "An error occurred while calling o1.x\n: org.apache.spark.SparkException: "
                "[STAGE_MATERIALIZATION_MULTIPLE_FAILURES] Multiple failures (2) in it: \n"
                "  1. SparkNumberFormatException: [CAST_INVALID_INPUT] no int. SQLSTATE: 22018\n"
                "== SQL (line 1, position 1) ==\nint(kind) = 1\n"
                "  2. SparkNumberFormatException: [CAST_INVALID_INPUT] no int. SQLSTATE: 22018\n"
                " SQLSTATE: XX000\n\tat org.apache.spark.x"
            ),
            InvalidRequestError,
            "spark cannot do it with these jobs: no int.",
        ),
        ("Job aborted\n\tat org.apache.spark.x\n\tat java.y", UnavailableError, "Job aborted"),
    ],
)
def test_an_error_of_spark_is_translated_without_its_stack(
    text: str, kind: type[BucketQError], message: str
) -> None:
    error = translated(RuntimeError(text))
    assert type(error) is kind
    assert message in str(error)
    assert "\n" not in str(error)
    assert "org.apache" not in str(error)


@pytest.mark.parametrize(
    "master", ["cluster-7", "localhost", "spark://", "local[", "", "mesos://x"]
)
def test_a_bad_master_is_reported_before_spark_starts(master: str) -> None:
    with pytest.raises(InvalidRequestError, match=r"is not a Spark master: write local\[4\]"):
        require_spark(master)


@pytest.mark.parametrize(
    "master",
    ["local", "local[*]", "local[2,3]", "local-cluster[2,1,1024]", "yarn", "spark://h:7077"],
)
def test_a_master_is_taken_as_spark_takes_it(master: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command_session, "find_java", lambda _: None)
    require_spark(master)


def test_the_reason_for_a_failed_start_has_no_java_stack() -> None:
    said = [
        "WARNING: Using incubator modules: jdk.incubator.vector",
        'Exception in thread "main" org.apache.spark.SparkException: no such host',
        "\tat org.apache.spark.deploy.SparkSubmit.main(SparkSubmit.scala)",
        "\t... 12 more",
    ]
    log = BytesIO("\n".join(said).encode())
    error = command_session._not_started("yarn", RuntimeError("gone"), log)
    assert str(error) == (
        'spark does not start with master yarn: Exception in thread "main" '
        "org.apache.spark.SparkException: no such host; --debug shows all its output"
    )


def test_pyspark_and_py4j_are_silent_while_a_command_runs_and_as_before_after_that(
    capfd: pytest.CaptureFixture[str],
) -> None:
    sql = PySparkLogger.getLogger("SQLQueryContextLogger")
    py4j = logging.getLogger("py4j.clientserver")
    before = (sql.level, py4j.level)
    with command_session._quiet_loggers():
        sql.exception("no such column", errorClass="X")
        py4j.error("Exception while sending command.")
    assert capfd.readouterr() == ("", "")
    assert (sql.level, py4j.level) == before


@pytest.mark.parametrize(
    "error", [ConnectionRefusedError("[Errno 111]"), Py4JNetworkError("Answer from Java is empty")]
)
def test_a_killed_spark_process_is_reported_in_one_line(error: Exception) -> None:
    with pytest.raises(UnavailableError) as caught, translate_errors():
        raise error
    assert str(caught.value).startswith("Spark's process ended while it was working: run it")
