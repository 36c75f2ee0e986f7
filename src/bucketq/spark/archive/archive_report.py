"""Measures an archive with Spark SQL: how many jobs, how long they took, what failed.

One pass over the archive computes all numbers, by kind and hour; the result on the driver is as
large as the number of kinds times the number of hours. Times:

- wait: from the push to the claim, of jobs that were claimed once, including a requested delay
- run: from the last claim to the end, of jobs that a worker finished
- a retry is an attempt after the first
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct, convert

from bucketq.clock import SystemClock
from bucketq.spark.archive.archive_frame import check_range, read_archive
from bucketq.spark.registration import register
from bucketq.spark.session.spark_errors import translate_errors

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession

PERCENTILES = (50, 95, 99)
REASONS_MAX = 50
"""More than a person reads; the Parquet tables have all of them."""
_ARCHIVED, _MEASURED_VIEW = "bucketq_archived", "bucketq_measured"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_PARTS = ", ".join(f"{each / 100:g}" for each in PERCENTILES)

_NUMBERS = f"""
SELECT kind, hour,
  count(*) AS jobs,
  count_if(outcome = 'completed') AS completed,
  count_if(outcome = 'cancelled') AS cancelled,
  count_if(outcome = 'dead') AS dead,
  count_if(attempt > 1) AS retried,
  sum(greatest(attempt - 1, 0)) AS retries,
  sum(lost_leases) AS lost_leases,
  percentile_approx(wait_s, array({_PARTS}), 1000) AS wait_s,
  percentile_approx(run_s, array({_PARTS}), 1000) AS run_s,
  sum(run_s) AS busy_s,
  grouping(kind) AS all_kinds, grouping(hour) AS all_hours
FROM bucketq_measured
GROUP BY GROUPING SETS ((kind, hour), (kind), (hour), ())
"""  # noqa: S608 - only numbers of this module are inserted

_MEASURED = """
SELECT kind, outcome, attempt, lost_leases, errors,
  unix_seconds(finished_at) DIV 3600 AS hour,
  CASE WHEN attempt = 1
    THEN greatest(unix_micros(claimed_at) - unix_micros(pushed_at), 0) / 1e6 END AS wait_s,
  CASE WHEN claimed_at IS NOT NULL
    THEN greatest(unix_micros(finished_at) - unix_micros(claimed_at), 0) / 1e6 END AS run_s
FROM bucketq_archived
"""

# Ids and numbers are replaced by #, so that failures of the same cause are counted together.
_REASONS = r"""
SELECT kind, reason, count(*) AS count, unix_micros(max(at)) AS last_us
FROM (
  SELECT kind, each.at AS at,
    left(
      regexp_replace(
        regexp_replace(
          regexp_replace(split_part(each.error, '\n', 1),
            '[0-9a-fA-F]{8}-[0-9a-fA-F-]{27}|0x[0-9a-fA-F]+|[0-9A-HJKMNP-TV-Z]{26}', '#'),
          '[0-9a-f]{12,}', '#'),
        '[0-9]+([.:][0-9]+)*', '#'),
      160) AS reason
  FROM (SELECT kind, explode(errors) AS each FROM bucketq_measured)
)
GROUP BY kind, reason ORDER BY count DESC, kind, reason
"""


class JobNumbers(Struct, frozen=True, kw_only=True):
    """Counts and times of some jobs. The tuples are percentiles 50, 95 and 99."""

    jobs: int = 0
    completed: int = 0
    cancelled: int = 0
    dead: int = 0
    retried: int = 0
    retries: int = 0
    lost_leases: int = 0
    wait_s: tuple[float, ...] = ()
    run_s: tuple[float, ...] = ()
    busy_s: float = 0.0


class ReportLine(Struct, frozen=True, kw_only=True):
    """Numbers of a kind, of an hour, or of a kind in an hour; None means all of them."""

    kind: str | None
    hour: datetime | None
    numbers: JobNumbers


class FailureReason(Struct, frozen=True):
    """Why attempts failed: the first line of the error, with numbers and ids replaced by #."""

    kind: str
    reason: str
    count: int
    last_at: datetime


class ArchiveReport(Struct, frozen=True, kw_only=True):
    """The report of a time range."""

    since: datetime
    until: datetime
    total: JobNumbers
    kinds: list[ReportLine]
    hours: list[ReportLine]
    kind_hours: list[ReportLine]
    reasons: list[FailureReason]
    """The most frequent first, up to 50."""


def report(
    spark: SparkSession,
    url: str,
    since: datetime,
    until: datetime | None = None,
    parquet: Path | None = None,
) -> ArchiveReport:
    """Measure the jobs that finished from ``since`` up to but not including ``until``, or now.

    With ``parquet``, the tables are also written there, as ``numbers`` and ``reasons``.
    """
    register(spark)
    check_range(since, until)
    until = SystemClock().now() if until is None else until
    with translate_errors():
        rows, found = _measure(spark, url, since, until, parquet)
    total = _lines(row for row in rows if row.all_kinds and row.all_hours)
    return ArchiveReport(
        since=since,
        until=until,
        total=total[0].numbers if total else JobNumbers(),
        kinds=_lines(row for row in rows if row.all_hours and not row.all_kinds),
        hours=_lines(row for row in rows if row.all_kinds and not row.all_hours),
        kind_hours=_lines(row for row in rows if not row.all_kinds and not row.all_hours),
        reasons=found,
    )


def _measure(
    spark: SparkSession, url: str, since: datetime, until: datetime, parquet: Path | None
) -> tuple[list[Row], list[FailureReason]]:
    """Read the archive once, and compute all numbers."""
    read_archive(spark, url, since, until).createOrReplaceTempView(_ARCHIVED)
    measured = spark.sql(_MEASURED).persist()
    measured.createOrReplaceTempView(_MEASURED_VIEW)
    try:
        numbers, reasons = spark.sql(_NUMBERS), spark.sql(_REASONS)
        if parquet is not None:
            _save(numbers, "hour", "timestamp_seconds(hour * 3600)", parquet / "numbers")
            _save(reasons, "last_at", "timestamp_micros(last_us)", parquet / "reasons")
        rows = numbers.collect()
        found = [_reason(row) for row in reasons.limit(REASONS_MAX).collect()]
    finally:
        measured.unpersist()
        for view in (_ARCHIVED, _MEASURED_VIEW):
            spark.catalog.dropTempView(view)
    return rows, found


def _save(table: DataFrame, column: str, moment: str, folder: Path) -> None:
    """Write a table as Parquet, with times as timestamps.

    The driver writes it, because the disk of an executor may be on another machine.
    """
    import pyarrow.parquet as pq  # noqa: PLC0415 - an extra
    from pyspark.sql.functions import expr  # noqa: PLC0415 - an extra

    shown = table.withColumn(column, expr(moment)).drop("last_us", "all_kinds", "all_hours")
    rows = shown.toArrow()
    folder.mkdir(parents=True, exist_ok=True)
    for older in folder.glob("*.parquet"):
        older.unlink()
    pq.write_table(rows, folder / "part-0.parquet")


def _lines(rows: Iterable[Row]) -> list[ReportLine]:
    found = []
    for row in rows:
        known = {name: value for name, value in row.asDict().items() if value is not None}
        hour = None if row.hour is None else _EPOCH + timedelta(hours=row.hour)
        found.append(ReportLine(kind=row.kind, hour=hour, numbers=convert(known, JobNumbers)))
    return sorted(found, key=lambda line: (line.hour or _EPOCH, line.kind or ""))


def _reason(row: Row) -> FailureReason:
    last_at = _EPOCH + timedelta(microseconds=row.last_us)
    return FailureReason(row.kind, row.reason, row["count"], last_at)
