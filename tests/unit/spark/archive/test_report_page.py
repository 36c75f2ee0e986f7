"""The report as a page."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from msgspec import structs

from bucketq.spark.archive.archive_report import (
    ArchiveReport,
    FailureReason,
    JobNumbers,
    ReportLine,
)
from bucketq.spark.archive.report_page import page

START = datetime(2026, 2, 15, tzinfo=UTC)
NUMBERS = JobNumbers(
    jobs=10, completed=9, dead=1, retries=2, wait_s=(1.0, 2.0, 3.0), run_s=(0.1, 0.2, 0.3)
)


def made(hours: int, kinds: int = 1) -> ArchiveReport:
    return ArchiveReport(
        since=START,
        until=START + timedelta(hours=hours),
        total=NUMBERS,
        kinds=[
            ReportLine(kind=f"k<{place}>", hour=None, numbers=NUMBERS) for place in range(kinds)
        ],
        hours=[
            ReportLine(kind=None, hour=START + timedelta(hours=hour), numbers=NUMBERS)
            for hour in range(hours)
        ],
        kind_hours=[],
        reasons=[FailureReason("k", "<img src=x onerror=alert(1)>", 3, START)],
    )


def test_the_page_requests_nothing_and_has_no_script() -> None:
    text = page(made(3), "s3://bucket/queue.json")
    assert "default-src 'none'" in text
    for word in ("<script", "<img", "http:", "https:", "url(", "@import"):
        assert word not in text


def test_text_from_jobs_is_escaped() -> None:
    text = page(made(3), "s3://bucket/queue.json")
    assert "k&lt;0&gt;" in text
    assert "&lt;img src=x onerror=alert(1)&gt;" in text


def test_hours_without_jobs_are_shown() -> None:
    report = made(10)
    gap = structs.replace(report, hours=[report.hours[0], report.hours[9]])
    assert page(gap, "x").count("UTC\ncompleted") == 10


def test_a_long_range_is_shown_by_days() -> None:
    assert page(made(24 * 14), "x").count("UTC\ncompleted") == 24 * 14
    assert page(made(24 * 30), "x").count("UTC\ncompleted") == 30


def test_a_short_time_is_shown_with_the_requested_hours_around_it() -> None:
    report = made(1)
    for hours, places in ((1, 1), (6, 6), (100, 12)):
        since, until = START - timedelta(hours=hours), START + timedelta(minutes=20)
        before = structs.replace(report, since=since, until=until)
        assert page(before, "x").count("UTC\ncompleted") == min(places + 1, 12)
    after = structs.replace(report, until=START + timedelta(hours=3))
    assert page(after, "x").count("UTC\ncompleted") == 3


def test_each_kind_is_shown_over_time() -> None:
    report = made(3)
    lines = [
        ReportLine(kind="k<0>", hour=START + timedelta(hours=hour), numbers=JobNumbers(jobs=jobs))
        for hour, jobs in ((0, 2), (2, 4))
    ]
    assert 'd="M0 100V50h1V100h1V0h1V100z"' in page(structs.replace(report, kind_hours=lines), "x")


def test_large_numbers_are_abbreviated_and_zeros_are_grey() -> None:
    large = JobNumbers(jobs=54_000_000, completed=54_000_000)
    line = ReportLine(kind="k", hour=None, numbers=large)
    text = page(structs.replace(made(1), total=large, kinds=[line]), "x")
    assert text.count(">54M<") == 3
    assert text.count('<td class="none">0</td>') == 2
    assert "<td>-</td>" in text


def test_many_kinds_are_cut_and_the_rest_is_counted() -> None:
    assert "and 5 more kinds" in page(made(1, kinds=35), "x")
