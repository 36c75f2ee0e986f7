"""Registering: by Spark itself, or by a call, with a Spark that is new enough."""

from __future__ import annotations

import pickle
import struct
import sys
from functools import partial
from io import BytesIO
from types import SimpleNamespace
from typing import Any, cast

import pyspark
import pytest
from pyspark.sql.worker.lookup_data_sources import _main as look_up

import pyspark_bucketq
from bucketq.errors import InvalidRequestError
from bucketq.spark import register
from bucketq.spark.data_source import BucketQDataSource


def session(version: object) -> tuple[Any, list[type]]:
    registered: list[type] = []
    source = SimpleNamespace(register=registered.append)
    context = SimpleNamespace(master="yarn")
    return SimpleNamespace(version=version, dataSource=source, sparkContext=context), registered


@pytest.mark.parametrize("version", ["4.0.1", "4.3.0", "4.10.1", "5.0.0-preview1"])
def test_register_adds_the_format_to_a_supported_spark(version: str) -> None:
    spark, registered = session(version)
    register(spark)
    assert registered == [BucketQDataSource]


@pytest.mark.parametrize("version", ["2.4.8", "3.5.3"])
def test_a_spark_that_is_too_old_is_rejected(version: str) -> None:
    spark, registered = session(version)
    with pytest.raises(
        InvalidRequestError, match=f"needs Spark 4.0 or newer, and this is {version}"
    ):
        register(spark)
    assert not registered


@pytest.mark.parametrize("version", ["4.0.1", "4.1.4"])
def test_streams_are_refused_by_a_spark_that_is_too_old_for_them(
    version: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pyspark, "__version__", version)
    source, schema = BucketQDataSource({"path": "memory://q"}), cast("Any", None)
    for make in (source.streamReader, partial(source.streamWriter, overwrite=False)):
        with pytest.raises(
            InvalidRequestError, match=rf"need Spark 4.2 or newer, and this is {version}.*[Bb]atch"
        ):
            make(schema)


def test_a_format_that_an_older_spark_has_found_by_itself_is_kept() -> None:
    spark, _ = session("4.0.1")

    def refuse(_: type) -> None:
        message = "[DATA_SOURCE_ALREADY_EXISTS] Data source 'bucketq' already exists"
        raise RuntimeError(message)

    spark.dataSource.register = refuse
    register(spark)


def test_a_value_that_is_not_a_session_is_rejected() -> None:
    with pytest.raises(InvalidRequestError, match="takes a SparkSession, got str"):
        register(cast("Any", "local[2]"))


def test_spark_finds_the_format_in_the_installed_packages() -> None:
    """With the program that Spark runs for it, once for each JVM."""
    written = BytesIO()
    look_up(BytesIO(), written)
    written.seek(0)

    def read_text() -> bytes:
        (length,) = struct.unpack("!i", written.read(4))
        return written.read(length)

    assert struct.unpack("!i", written.read(4)) == (1,)
    assert read_text() == b"bucketq"
    assert pickle.loads(read_text()) is BucketQDataSource


def test_without_the_extra_the_package_offers_no_format_and_breaks_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One error would keep Spark from finding the formats of other packages, too."""
    monkeypatch.setitem(sys.modules, "bucketq.spark.data_source", None)
    assert not hasattr(pyspark_bucketq, "DefaultSource")
    with pytest.raises(AttributeError, match=r"install bucketq\[spark\] for this Python"):
        pyspark_bucketq.DefaultSource  # noqa: B018 - it is asked for
    with pytest.raises(AttributeError, match="has no attribute 'Source'"):
        pyspark_bucketq.Source  # noqa: B018
