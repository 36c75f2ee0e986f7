"""What bucketq needs of a Spark session: a supported version, pyarrow, and this Python."""

from __future__ import annotations

import re
from importlib.util import find_spec
from typing import TYPE_CHECKING

from bucketq.errors import InvalidRequestError
from bucketq.spark.session.worker_python import use_this_python

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OLDEST_SPARK = (4, 2)
"""The first release in which a Python stream reader can limit the size of a micro-batch."""


def prepare_session(spark: SparkSession) -> None:
    """Check that bucketq can use a session; in local mode, let its workers run this Python.

    Raises ``InvalidRequestError`` if it is not a SparkSession, or too old, or pyarrow is missing.
    """
    version = str(getattr(spark, "version", ""))
    if not re.match(r"\d+\.\d+", version):
        message = f"bucketq takes a SparkSession, got {type(spark).__name__}"
        raise InvalidRequestError(message)
    check_version(version)
    if find_spec("pyarrow") is None:
        message = 'bucketq needs pyarrow for Spark: pip install "bucketq[spark]"'
        raise InvalidRequestError(message)
    if not is_connect_session(spark):
        use_this_python(spark.sparkContext)


def check_version(version: str) -> None:
    """Raise ``InvalidRequestError`` if a version of Spark or pyspark is too old."""
    found = re.match(r"(\d+)\.(\d+)", version)
    if found is not None and (int(found[1]), int(found[2])) < OLDEST_SPARK:
        oldest = ".".join(map(str, OLDEST_SPARK))
        message = (
            f"bucketq needs Spark {oldest} or newer, and this is {version}: "
            f'pip install "pyspark>={oldest}", and upgrade the cluster if there is one'
        )
        raise InvalidRequestError(message)


def is_connect_session(spark: SparkSession) -> bool:
    """Return whether a session uses Spark Connect, and so has no SparkContext in this process."""
    return type(spark).__module__.startswith("pyspark.sql.connect")
