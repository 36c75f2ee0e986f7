"""The report as a page."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from bucketq.spark.page import page
from bucketq.spark.report import Line, Numbers, Reason, Report

START = datetime(2026, 2, 15, tzinfo=UTC)
NUMBERS = Numbers(
    jobs=10, completed=9, dead=1, retries=2, wait_s=(1.0, 2.0, 3.0), run_s=(0.1, 0.2, 0.3)
)


def made(hours: int, kinds: int = 1) -> Report:
    return Report(
        since=START,
        until=START + timedelta(hours=hours),
        total=NUMBERS,
        kinds=[Line(kind=f"k<{place}>", hour=None, numbers=NUMBERS) for place in range(kinds)],
        hours=[
            Line(kind=None, hour=START + timedelta(hours=hour), numbers=NUMBERS)
            for hour in range(hours)
        ],
        kind_hours=[],
        reasons=[Reason("k", "<img src=x onerror=alert(1)>", 3, START)],
    )


def test_it_needs_nothing_from_elsewhere_and_runs_nothing() -> None:
    text = page(made(3), "s3://bucket/queue.json")
    assert "default-src 'none'" in text
    for word in ("<script", "<img", "http:", "https:", "url(", "@import"):
        assert word not in text


def test_what_came_from_jobs_is_escaped() -> None:
    text = page(made(3), "s3://bucket/queue.json")
    assert "k&lt;0&gt;" in text
    assert "&lt;img src=x onerror=alert(1)&gt;" in text


def test_hours_in_which_nothing_happened_have_their_place() -> None:
    report = made(10)
    gap = Report(
        since=report.since,
        until=report.until,
        total=report.total,
        kinds=[],
        hours=[report.hours[0], report.hours[9]],
        kind_hours=[],
        reasons=[],
    )
    assert page(gap, "x").count("UTC\ncompleted") == 10


def test_a_long_range_is_shown_by_days() -> None:
    assert page(made(24 * 14), "x").count("UTC\ncompleted") == 24 * 14
    assert page(made(24 * 30), "x").count("UTC\ncompleted") == 30


def test_many_kinds_are_cut_and_that_is_said() -> None:
    assert "and 5 more kinds" in page(made(1, kinds=35), "x")
