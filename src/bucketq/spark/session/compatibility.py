"""What bucketq needs of a Spark session: a supported version, pyarrow, and this Python."""

from __future__ import annotations

import re
from importlib.util import find_spec
from typing import TYPE_CHECKING

from bucketq.errors import InvalidRequestError
from bucketq.spark.session.worker_python import use_this_python

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OLDEST_SPARK = (4, 0)
"""The first release with data sources in Python."""
OLDEST_FOR_STREAMS = (4, 2)
"""The first in which a stream reader in Python can limit the size of a micro-batch."""


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
    _check(version, OLDEST_SPARK, "bucketq needs")


def check_streams(version: str) -> None:
    """Raise ``InvalidRequestError`` if a version is too old for streams, to or from a queue."""
    _check(version, OLDEST_FOR_STREAMS, "streams of bucketq need")


def _check(version: str, oldest: tuple[int, int], what: str) -> None:
    found = re.match(r"(\d+)\.(\d+)", version)
    if found is not None and (int(found[1]), int(found[2])) < oldest:
        wanted = ".".join(map(str, oldest))
        message = (
            f"{what} Spark {wanted} or newer, and this is {version}: "
            f'pip install "pyspark>={wanted}", and upgrade the cluster if there is one'
        )
        if oldest != OLDEST_SPARK:
            message += ". Batch reads and writes work with Spark 4.0 and 4.1, too"
        raise InvalidRequestError(message)


def is_connect_session(spark: SparkSession) -> bool:
    """Return whether a session uses Spark Connect, and so has no SparkContext in this process."""
    return type(spark).__module__.startswith("pyspark.sql.connect")
