"""A time range of an archive as a DataFrame."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from bucketq.errors import InvalidRequestError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def read_archive(spark: SparkSession, url: str, since: datetime, until: datetime) -> DataFrame:
    """Return the jobs that finished from ``since`` up to but not including ``until``."""
    reader = spark.read.format("bucketq").option("table", "archive")
    return reader.option("from", since.isoformat()).option("to", until.isoformat()).load(url)


def check_range(since: datetime | None, until: datetime | None) -> None:
    """Raise ``InvalidRequestError`` if a time has no zone, or if the range is empty."""
    for name, moment in (("since", since), ("until", until)):
        if moment is not None and getattr(moment, "tzinfo", None) is None:
            what = "has no time zone" if isinstance(moment, datetime) else f"is {moment!r}"
            message = f"{name} {what}: write datetime(2026, 11, 1, tzinfo=UTC)"
            raise InvalidRequestError(message)
    if since is not None and until is not None and since >= until:
        message = f"since ({since}) is not before until ({until})"
        raise InvalidRequestError(message)
