"""The commands that start Spark, as they are typed, here in the session of the tests."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from bucketq.spark import session
from tests.spark.features import COMMANDS


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_does_what_its_function_does(
    spark: SparkSession, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "session", lambda *_, **__: nullcontext(spark))
    COMMANDS[name]("local[2]", tmp_path)
