"""Charts and numbers as a page shows them."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from xml.etree import ElementTree as ET

import pytest

from bucketq.spark.archive.svg_charts import (
    ChartSeries,
    bars,
    count,
    duration,
    legend,
    lines,
    small_bars,
)

START = datetime(2026, 2, 15, tzinfo=UTC)


def hours(number: int) -> list[datetime]:
    return [START + timedelta(hours=hour) for hour in range(number)]


def heights(svg: str) -> list[float]:
    return [float(each) for each in re.findall(r'<rect[^>]* height="([\d.]+)"', svg)]


def test_bars_are_stacked_in_proportion() -> None:
    series = [ChartSeries("good", "ok", [30, 10]), ChartSeries("bad", "bad", [10, 0])]
    svg = bars(hours(2), series, "jobs")
    first, second, third = heights(svg)
    assert first == pytest.approx(3 * second)
    assert second == pytest.approx(third)
    low, high = (float(each) for each in re.findall(r'<rect[^>]* y="([\d.]+)"', svg)[:2])
    assert high == pytest.approx(low - second)


def test_a_line_is_interrupted_if_there_is_no_value() -> None:
    svg = lines(hours(5), [ChartSeries("p50", "a", [1, 2, None, 3, 4])], "time")
    assert svg.count("<polyline") == 2
    assert svg.count('class="dot a"') == 4


def test_a_single_value_between_gaps_is_drawn_as_a_dot() -> None:
    svg = lines(hours(200), [ChartSeries("p50", "a", [1.0, *[None] * 199])], "time")
    assert (svg.count("<polyline"), svg.count('class="dot a"')) == (0, 1)


@pytest.mark.parametrize("number", [0, 1, 24, 200, 336])
def test_every_chart_is_well_formed_and_has_few_labels(number: int) -> None:
    values = [float(place % 7) for place in range(number)]
    for svg in (
        bars(hours(number), [ChartSeries("x", "ok", values)], "a"),
        lines(hours(number), [ChartSeries("x", "a", values)], "b"),
    ):
        root = ET.fromstring(svg)
        times = [each for each in root.iter("span") if (each.get("class") or "").startswith("x")]
        assert len(times) <= 15
        assert "nan" not in svg


def words(chart: str, axis: str) -> list[str]:
    return re.findall(rf'<span class="{axis}(?: odd)?" [^>]*>([^<]*)<', chart)


def test_days_are_named_at_midnight_and_hours_are_round() -> None:
    places = [START + timedelta(hours=7 + hour) for hour in range(48)]
    chart = bars(places, [ChartSeries("x", "ok", [1] * 48)], "jobs")
    days = [word for word in words(chart, "x") if "Feb" in word]
    assert days == ["16 Feb", "17 Feb"]
    assert words(chart, "x")[:4] == ["12:00", "18:00", "16 Feb", "06:00"]


@pytest.mark.parametrize(
    ("highest", "axis"),
    [
        (0, ["0", "1"]),
        (3, ["0", "1", "2", "3"]),
        (1623, ["0", "500", "1,000", "1,500", "2,000"]),
        (21_500, ["0", "5k", "10k", "15k", "20k", "25k"]),
        (1_460_000, ["0", "0.5M", "1M", "1.5M"]),
    ],
)
def test_an_axis_of_counts_has_round_numbers(highest: float, axis: list[str]) -> None:
    assert words(bars(hours(1), [ChartSeries("x", "ok", [highest])], "jobs"), "y") == axis


@pytest.mark.parametrize(
    ("values", "axis"),
    [
        ([0.0], ["0", "1 s"]),
        ([0.05, 0.27], ["0", "100 ms", "200 ms", "300 ms"]),
        ([50.0, 66.0], ["0", "15 s", "30 s", "45 s", "1 min", "1.25 min"]),
        ([7.0 * 86400], ["0", "2 d", "4 d", "6 d", "8 d"]),
        ([0.2, 66.0], ["100 ms", "1 s", "10 s", "1 min", "10 min"]),
        ([0.0, 0.2, 66.0], ["100 ms", "1 s", "10 s", "1 min", "10 min"]),
    ],
)
def test_an_axis_of_durations_shows_small_ones_beside_large_ones(
    values: list[float], axis: list[str]
) -> None:
    chart = lines(hours(len(values)), [ChartSeries("x", "a", values)], "time")
    assert words(chart, "y") == axis
    assert ("logarithmic" in chart) == (axis[0] != "0")
    heights_of = [float(each) for each in re.findall(r"[ M][\d.]+,([\d.]+)h0", chart)]
    assert all(0 <= each <= 100 for each in heights_of)
    assert len(heights_of) == len(values)


def test_a_tooltip_shows_all_numbers_of_a_point_in_time() -> None:
    series = [ChartSeries("p50", "a", [1.0, None]), ChartSeries("p95", "b", [2.0, None])]
    titles = re.findall("<title>([^<]*)</title>", lines(hours(2), series, "time"))
    assert titles == ["2026-02-15 00:00 UTC\np50: 1 s\np95: 2 s", "2026-02-15 01:00 UTC"]


def test_small_bars_are_as_high_as_their_values() -> None:
    assert 'd="M0 100V100h1V50h1V0h1V100z"' in small_bars([0, 2, 4])
    ET.fromstring(small_bars([]))


def test_html_is_escaped() -> None:
    series = [ChartSeries("<b>&", "ok", [1])]
    for text in (bars(hours(1), series, '"><script>'), legend(series)):
        assert "<b>" not in text
        assert "<script>" not in text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0"),
        (0.0123, "12.3 ms"),
        (1.5, "1.5 s"),
        (90, "1.5 min"),
        (7200, "2 h"),
        (3e5, "3.47 d"),
    ],
)
def test_durations_are_short(seconds: float, text: str) -> None:
    assert duration(seconds) == text


@pytest.mark.parametrize(
    ("number", "text"),
    [(0, "0"), (12.5, "12.5"), (1234, "1,234"), (12_340, "12.3k"), (1_500_000, "1.5M")],
)
def test_counts_are_short(number: float, text: str) -> None:
    assert count(number) == text
