"""Which Python Spark runs, and what is told of a wrong one."""

from __future__ import annotations

import sys

import pytest

from bucketq.spark.pythons import choose_python, trouble_with_python


def test_the_python_that_has_bucketq_is_taken_unless_another_was_chosen() -> None:
    environ: dict[str, str] = {}
    choose_python(environ)
    assert environ["PYSPARK_PYTHON"] == sys.executable
    environ = {"PYSPARK_PYTHON": "/opt/python"}
    choose_python(environ)
    assert environ["PYSPARK_PYTHON"] == "/opt/python"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (': java.io.IOException: Cannot run program "/no/python": error=2', "run /no/python, its"),
        ("x\nModuleNotFoundError: No module named 'bucketq'\n", "has no module bucketq: install"),
        (
            "Python in worker has different version: 3.13 than that in driver: 3.11, PySpark",
            "runs Python 3.13 on executors and 3.11 on the driver: set PYSPARK_PYTHON",
        ),
    ],
)
def test_a_python_that_is_no_good_is_told_in_a_sentence(text: str, told: str) -> None:
    assert told in trouble_with_python(text)
    assert "\n" not in trouble_with_python(text)


def test_other_errors_are_no_matter_of_python() -> None:
    assert trouble_with_python("ModuleNotFoundError: No module named 'tasks'") == ""
