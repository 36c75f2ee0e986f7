"""Charts and numbers as a page shows them."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from xml.etree import ElementTree as ET

import pytest

from bucketq.spark.charts import Series, bars, count, duration, legend, lines

START = datetime(2026, 2, 15, tzinfo=UTC)


def hours(number: int) -> list[datetime]:
    return [START + timedelta(hours=hour) for hour in range(number)]


def heights(svg: str) -> list[float]:
    return [float(each) for each in re.findall(r'<rect[^>]* height="([\d.]+)"', svg)]


def test_bars_stand_on_one_another_in_proportion() -> None:
    series = [Series("good", "ok", [30, 10]), Series("bad", "bad", [10, 0])]
    svg = bars(hours(2), series, "jobs")
    first, second, third = heights(svg)
    assert first == pytest.approx(3 * second)
    assert second == pytest.approx(third)
    low, high = (float(each) for each in re.findall(r'<rect[^>]* y="([\d.]+)"', svg)[:2])
    assert high == pytest.approx(low - second)


def test_a_line_is_broken_where_nothing_is_known() -> None:
    svg = lines(hours(5), [Series("p50", "a", [1, 2, None, 3, 4])], "time")
    assert svg.count("<polyline") == 2
    assert svg.count("<circle") == 4


@pytest.mark.parametrize("number", [0, 1, 24, 200, 336])
def test_every_chart_is_well_formed_and_has_few_labels(number: int) -> None:
    values = [float(place % 7) for place in range(number)]
    for svg in (
        bars(hours(number), [Series("x", "ok", values)], "a"),
        lines(hours(number), [Series("x", "a", values)], "b"),
    ):
        root = ET.fromstring(svg)
        middles = [each for each in root.iter("text") if each.get("text-anchor") == "middle"]
        assert len(middles) <= 15
        assert "nan" not in svg


def test_what_has_a_meaning_in_html_is_escaped() -> None:
    series = [Series("<b>&", "ok", [1])]
    for text in (bars(hours(1), series, '"><script>'), legend(series)):
        assert "<b>" not in text
        assert "<script>" not in text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0"), (0.0123, "12.3 ms"), (1.5, "1.5 s"), (90, "1.5 min"), (7200, "2 h")],
)
def test_durations_are_short(seconds: float, text: str) -> None:
    assert duration(seconds) == text


@pytest.mark.parametrize(
    ("number", "text"),
    [(0, "0"), (12.5, "12.5"), (1234, "1,234"), (12_340, "12.3k"), (1_500_000, "1.5M")],
)
def test_counts_are_short(number: float, text: str) -> None:
    assert count(number) == text
