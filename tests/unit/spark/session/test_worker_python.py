"""Which Python Spark runs, and the errors that a wrong one causes."""

from __future__ import annotations

import os
import sys
from typing import Any

import pytest

from bucketq.spark.session.worker_python import (
    describe_python_error,
    set_python_variables,
    use_this_python,
)


def test_spark_runs_this_python_unless_another_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "environ", {})
    set_python_variables()
    assert os.environ["PYSPARK_PYTHON"] == sys.executable
    monkeypatch.setattr(os, "environ", {"PYSPARK_PYTHON": "/opt/python"})
    set_python_variables()
    assert os.environ["PYSPARK_PYTHON"] == "/opt/python"


class Context:
    """What is looked at of Spark's own."""

    def __init__(self, master: str, *config: str) -> None:
        self.master = master
        self.pythonExec = "python3"
        self._config = config

    def getConf(self) -> Any:  # noqa: N802 - as Spark calls it
        return self

    def contains(self, name: str) -> bool:
        return name in self._config


@pytest.mark.parametrize(
    ("context", "environ", "taken"),
    [
        (Context("local[2]"), {}, sys.executable),
        (Context("local[2]"), {"PYSPARK_PYTHON": "python3"}, "python3"),
        (Context("local[2]", "spark.pyspark.python"), {}, "python3"),
        (Context("spark://head:7077"), {}, "python3"),
    ],
)
def test_a_local_session_runs_this_python_unless_another_is_configured(
    context: Any, environ: dict[str, str], taken: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "environ", environ)
    use_this_python(context)
    assert context.pythonExec == taken


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (': java.io.IOException: Cannot run program "/no/python": error=2', "run /no/python, its"),
        ("x\nModuleNotFoundError: No module named 'bucketq'\n", "has no module bucketq: install"),
        (
            "ModuleNotFoundError: No module named 'bucketq.spark.source'\n",
            'has no module bucketq.spark.source: install the same version of "bucketq[spark]"',
        ),
        (
            "Python in worker has different version: 3.13 than that in driver: 3.11, PySpark",
            "runs Python 3.13 on executors and 3.11 on the driver: set PYSPARK_PYTHON",
        ),
    ],
)
def test_an_error_about_python_is_described_in_a_sentence(text: str, message: str) -> None:
    assert message in describe_python_error(text)
    assert "\n" not in describe_python_error(text)


def test_other_errors_are_not_described_as_python_errors() -> None:
    assert describe_python_error("ModuleNotFoundError: No module named 'tasks'") == ""
