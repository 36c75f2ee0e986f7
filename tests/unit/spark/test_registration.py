"""Registering: with a Spark that is new enough, and nothing else."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from bucketq.errors import InvalidRequestError
from bucketq.spark import register
from bucketq.spark.data_source import BucketQDataSource


def session(version: object) -> tuple[Any, list[type]]:
    registered: list[type] = []
    source = SimpleNamespace(register=registered.append)
    context = SimpleNamespace(master="yarn")
    return SimpleNamespace(version=version, dataSource=source, sparkContext=context), registered


@pytest.mark.parametrize("version", ["4.2.0", "4.3.0", "4.10.1", "5.0.0-preview1"])
def test_register_adds_the_format_to_a_supported_spark(version: str) -> None:
    spark, registered = session(version)
    register(spark)
    assert registered == [BucketQDataSource]


@pytest.mark.parametrize("version", ["3.5.3", "4.0.1", "4.1.9"])
def test_a_spark_that_is_too_old_is_rejected(version: str) -> None:
    spark, registered = session(version)
    with pytest.raises(
        InvalidRequestError, match=f"needs Spark 4.2 or newer, and this is {version}"
    ):
        register(spark)
    assert not registered


def test_a_value_that_is_not_a_session_is_rejected() -> None:
    with pytest.raises(InvalidRequestError, match="takes a SparkSession, got str"):
        register(cast("Any", "local[2]"))
