"""What is told before Spark is started, and of what Spark itself says."""

from __future__ import annotations

from pathlib import Path

import pytest

from bucketq.errors import BucketQError, CorruptStateError, InvalidRequestError, UnavailableError
from bucketq.spark import session
from bucketq.spark.session import demand_spark, told

pytest.importorskip("pyspark")


def test_a_missing_pyspark_is_told_with_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "find_spec", lambda _: None)
    with pytest.raises(InvalidRequestError, match=r'pip install "bucketq\[spark\]"'):
        demand_spark("local[*]")


def test_a_missing_java_is_told_unless_spark_runs_elsewhere(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(InvalidRequestError, match="install Java"):
        demand_spark("local[*]")
    demand_spark("sc://host")


def test_what_connect_needs_beside_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "find_spec", lambda name: None if name == "grpc_status" else name)
    with pytest.raises(
        InvalidRequestError, match=r'grpc_status, .* pip install "pyspark\[connect\]"'
    ):
        demand_spark("sc://host")


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
        ("Job aborted\n\tat org.apache.spark.x\n\tat java.y", UnavailableError, "Job aborted"),
    ],
)
def test_an_error_of_spark_is_told_without_its_stack(
    text: str, kind: type[BucketQError], message: str
) -> None:
    error = told(RuntimeError(text))
    assert type(error) is kind
    assert message in str(error)
    assert "\n" not in str(error)
    assert "org.apache" not in str(error)
