"""``register``: makes the format ``bucketq`` known to a Spark session."""

from __future__ import annotations

import os
import re
from importlib.util import find_spec
from typing import TYPE_CHECKING

from bucketq.errors import InvalidRequestError
from bucketq.spark.session.worker_python import use_this_python

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OLDEST = (4, 2)
"""The first Spark whose Python streams can be told how much to take at once."""


def register(spark: SparkSession) -> None:
    """Make ``format("bucketq")`` known to a session, of this process or over Spark Connect.

    A Spark in local mode runs the Python that runs this, where ``PYSPARK_PYTHON`` says nothing.
    """
    check_session(spark)
    from bucketq.spark.data_source import BucketQDataSource  # noqa: PLC0415 - pyspark is an extra

    settle_python(spark)
    spark.dataSource.register(BucketQDataSource)


def settle_python(spark: SparkSession) -> None:
    """Let a Spark in local mode run the Python that runs this, unless somebody has chosen."""
    if not is_remote(spark):
        use_this_python(spark.sparkContext, os.environ)


def check_version(version: str) -> None:
    """Raise ``InvalidRequestError`` where a Spark, or a pyspark, is too old."""
    found = re.match(r"(\d+)\.(\d+)", version)
    if found is not None and (int(found[1]), int(found[2])) < OLDEST:
        oldest = ".".join(map(str, OLDEST))
        message = (
            f"bucketq needs Spark {oldest} or newer, and this is {version}: "
            f'pip install "pyspark>={oldest}", and on a cluster upgrade that'
        )
        raise InvalidRequestError(message)


def check_session(spark: SparkSession) -> None:
    """Raise ``InvalidRequestError`` where this is no Spark that bucketq can work with."""
    version = str(getattr(spark, "version", ""))
    if not re.match(r"\d+\.\d+", version):
        message = f"bucketq takes a SparkSession, got {type(spark).__name__}"
        raise InvalidRequestError(message)
    check_version(version)
    if find_spec("pyarrow") is None:
        message = 'bucketq needs pyarrow for Spark: pip install "bucketq[spark]"'
        raise InvalidRequestError(message)


def is_remote(spark: SparkSession) -> bool:
    """Whether a session goes over Spark Connect, and so has no context in this process."""
    return type(spark).__module__.startswith("pyspark.sql.connect")
