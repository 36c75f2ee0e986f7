"""What a report says of an archive."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from bucketq.spark import page, report
from bucketq.spark.archive.archive_report import ArchiveReport
from tests.spark.finished_jobs import HOUR, archive, finished, hours_ago

TIMEOUTS = [f"TimeoutError: no answer from 10.0.0.{n} after {n}.5s\n  File x" for n in (1, 22)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("report")


@pytest.fixture(scope="module")
def measured(spark: SparkSession, folder: Path) -> ArchiveReport:
    """A report that all tests look at: it takes some seconds to make."""
    file_url = (folder / "queue.json").as_uri()
    jobs = [finished(f"job{place}", hours_ago(2 + place % 2), "index") for place in range(10)]
    bad = finished("job77", hours_ago(2), "mail", *TIMEOUTS, "<script>alert(1)</script>")
    archive(file_url, [*jobs, bad])
    since = hours_ago(4).replace(minute=0)
    return report(spark, file_url, since, since + 4 * HOUR, folder / "tables")


def test_jobs_are_counted_by_kind_and_by_hour(measured: ArchiveReport) -> None:
    assert (measured.total.jobs, measured.total.completed, measured.total.dead) == (11, 10, 1)
    assert (measured.total.retries, measured.total.retried) == (2, 1)
    assert [(line.kind, line.numbers.jobs) for line in measured.kinds] == [
        ("index", 10),
        ("mail", 1),
    ]
    hours = [hours_ago(ago).replace(minute=0) for ago in (3, 2)]
    assert [(line.hour, line.numbers.jobs) for line in measured.hours] == [
        (hours[0], 5),
        (hours[1], 6),
    ]
    assert len(measured.kind_hours) == 3


def test_times_are_those_between_push_claim_and_end(measured: ArchiveReport) -> None:
    index, mail = measured.kinds
    assert index.numbers.wait_s == (10.0, 10.0, 10.0)
    assert index.numbers.run_s == (2.0, 2.0, 2.0)
    assert (mail.numbers.wait_s, mail.numbers.run_s) == ((), ())


def test_failures_are_grouped_by_their_first_line_without_numbers(
    measured: ArchiveReport,
) -> None:
    found = [(each.kind, each.reason, each.count) for each in measured.reasons]
    assert found == [
        ("mail", "TimeoutError: no answer from # after #s", 2),
        ("mail", "<script>alert(#)</script>", 1),
    ]


def test_the_tables_are_also_written_as_parquet(
    measured: ArchiveReport, spark: SparkSession, folder: Path
) -> None:
    numbers = spark.read.parquet(str(folder / "tables" / "numbers"))
    rows = numbers.where("kind is not null and hour is not null")
    assert sorted(row.jobs for row in rows.collect()) == [1, 5, 5]
    reasons = spark.read.parquet(str(folder / "tables" / "reasons"))
    assert reasons.count() == len(measured.reasons)


def test_the_page_shows_the_whole_report_without_scripts(measured: ArchiveReport) -> None:
    text = page(measured, "file:///srv/<jobs>/queue.json")
    assert "file:///srv/&lt;jobs&gt;/queue.json" in text
    assert "&lt;script&gt;alert(#)&lt;/script&gt;" in text
    assert "<script" not in text
    assert "http-equiv" in text
    assert text.count('class="chart"') == 3
    assert text.count('class="small"') == 2


def test_a_range_in_which_nothing_finished_makes_an_empty_report(
    spark: SparkSession, file_url: str
) -> None:
    archive(file_url, [finished("job1", hours_ago(9))])
    found = report(spark, file_url, hours_ago(4), hours_ago(2))
    assert (found.total.jobs, found.kinds, found.reasons) == (0, [], [])
    assert "Nothing finished" in page(found, file_url)
