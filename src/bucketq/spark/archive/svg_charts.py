"""Draws charts as HTML with inline SVG: no scripts, fonts or requests. All text is escaped.

The SVG is stretched to the available width. Labels are HTML beside it, so that they are not
stretched and stay readable on a phone and on paper. Colours are CSS classes, so that the page
chooses them for light and dark screens. Hovering over a bar or a point shows its numbers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from html import escape

_HEIGHT = 100.0
"""The height of a plot in SVG units; its width is the number of points in time."""
_GAP = 0.12
"""The part of its width that a bar leaves free."""
_STEPS_MAX = 5
_LABELS_MAX = 8
"""Steps of the value axis and labels of the time axis that fit on a phone without overlapping."""
_DOTS_MAX = 100
"""With more points their dots would touch."""
_LOG_FROM = 50.0
"""If the largest value is so many times the smallest, a linear scale would hide the small ones."""
_MINUTE_S, _HOUR_S, _DAY_S, _MILLI = 60, 3600, 86400, 1000
_TEN, _MILLION = 10, 1_000_000
_HOUR, _DAY = timedelta(hours=1), timedelta(days=1)
_STEPS_H = (1, 2, 3, 4, 6, 12, 24, 48, 72, 96, 168)
_STEPS_D = (1, 2, 7, 14, 28, 56, 91, 182, 364)
_STEPS_S = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200)
_POWERS_S = (*(10.0**power for power in range(-6, 2)), 60.0, 600.0, 3600.0, 36000.0)


@dataclass(frozen=True)
class ChartSeries:
    """Values over time, with a name and a colour; None means that there is no value."""

    name: str
    colour: str
    values: Sequence[float | None]


@dataclass(frozen=True)
class _Scale:
    """Maps values to a height between 0 and 1, and holds the labels of the axis."""

    ticks: Sequence[float]
    label: Callable[[float], str]
    is_log: bool = False

    def part(self, value: float) -> float:
        low, high = self.ticks[0], self.ticks[-1]
        if self.is_log:
            return math.log(max(value, low) / low) / math.log(high / low)
        return value / high


def bars(times: Sequence[datetime], series: Sequence[ChartSeries], label: str) -> str:
    """Draw stacked bars, one stack for each point in time."""
    tops = [sum(each.values[index] or 0 for each in series) for index in range(len(times))]
    scale = _scale_of_counts(max(tops, default=0))
    shapes = []
    for index, moment in enumerate(times):
        base = 0.0
        rects = []
        for each in series:
            value = each.values[index] or 0
            if value:
                high = scale.part(value) * _HEIGHT
                y = _HEIGHT - scale.part(base + value) * _HEIGHT
                rects.append(
                    f'<rect class="{each.colour}" x="{index + _GAP / 2:.2f}" y="{y:.2f}" '
                    f'width="{1 - _GAP:.2f}" height="{high:.2f}"/>'
                )
                base += value
        labels = [f"{each.name}: {each.values[index] or 0:,.0f}" for each in series]
        shapes.append(_column(index, moment, labels, "".join(rects)))
    return _frame(times, scale, label, "".join(shapes))


def lines(times: Sequence[datetime], series: Sequence[ChartSeries], label: str) -> str:
    """Draw a line of durations for each series, interrupted if there is no value."""
    scale = _scale_of_durations([value for each in series for value in each.values])
    shapes = []
    for each in series:
        pieces: list[list[str]] = [[]]
        for index, value in enumerate(each.values):
            if value is None:
                pieces.append([])
            else:
                y = _HEIGHT - scale.part(value) * _HEIGHT
                pieces[-1].append(f"{index + 0.5:.1f},{y:.2f}")
        for piece in pieces:
            if len(piece) > 1:
                shapes.append(f'<polyline class="{each.colour}" points="{" ".join(piece)}"/>')
            if len(piece) == 1 or len(times) <= _DOTS_MAX:
                # A line of length 0 with round ends: a circle would be stretched.
                shapes += [f'<path class="dot {each.colour}" d="M{point}h0"/>' for point in piece]
    for index, moment in enumerate(times):
        found = [(each.name, each.values[index]) for each in series]
        labels = [f"{name}: {duration(value)}" for name, value in found if value is not None]
        shapes.append(_column(index, moment, labels, ""))
    return _frame(times, scale, label, "".join(shapes))


def small_bars(values: Sequence[float]) -> str:
    """Draw bars of the size of a word, without labels."""
    top = max(values, default=0) or 1
    heights = (f"V{_HEIGHT - value / top * _HEIGHT:.0f}h1" for value in values)
    path = f"M0 {_HEIGHT:.0f}{''.join(heights)}V{_HEIGHT:.0f}z"
    return (
        f'<svg class="small" viewBox="0 0 {max(len(values), 1)} {_HEIGHT:.0f}" '
        f'preserveAspectRatio="none" aria-hidden="true"><path d="{path}"/></svg>'
    )


def legend(series: Sequence[ChartSeries]) -> str:
    """Return a legend of the colours."""
    items = (f'<span><i class="{each.colour}"></i>{escape(each.name)}</span>' for each in series)
    return f'<div class="legend">{"".join(items)}</div>'


def duration(seconds: float) -> str:
    """Format a duration with three digits and a unit."""
    if seconds == 0:
        return "0"
    if seconds < 1:
        return f"{seconds * _MILLI:.3g} ms"
    if seconds < _MINUTE_S:
        return f"{seconds:.3g} s"
    if seconds < _HOUR_S:
        return f"{seconds / _MINUTE_S:.3g} min"
    if seconds < 2 * _DAY_S:
        return f"{seconds / _HOUR_S:.3g} h"
    return f"{seconds / _DAY_S:,.3g} d"


def count(number: float) -> str:
    """Format a count with three digits and a suffix if it is large."""
    if number >= _MILLION:
        return f"{number / _MILLION:.3g}M"
    if number >= _TEN * _MILLI:
        return f"{number / _MILLI:.3g}k"
    return f"{number:.3g}" if number < _MILLI else f"{number:,.0f}"


def _scale_of_durations(values: Sequence[float | None]) -> _Scale:
    """Return a linear scale, or a logarithmic one if it would hide the small values."""
    known = [value for value in values if value]
    highest, lowest = max(known, default=0.0), min(known, default=0.0)
    if highest > _LOG_FROM * lowest > 0:
        days = (_DAY_S * 10.0**power for power in range(10))
        powers = [*_POWERS_S, *days]
        first = max((index for index, each in enumerate(powers) if each <= lowest), default=0)
        last = next((index for index, each in enumerate(powers) if each >= highest), -1)
        return _Scale(powers[first : last + 1 or None], duration, is_log=True)
    unit = _DAY_S if highest > _STEPS_MAX * _STEPS_S[-1] else 1
    step = _round_up(highest / unit / _STEPS_MAX) * unit
    if unit <= step < _DAY_S:
        step = next(each for each in _STEPS_S if highest <= _STEPS_MAX * each)
    return _Scale(_ticks(highest, step), duration)


def _scale_of_counts(highest: float) -> _Scale:
    ticks = _ticks(highest, max(_round_up(highest / _STEPS_MAX), 1))
    unit, name = (_MILLION, "M") if ticks[-1] >= _MILLION else (_MILLI, "k")
    if ticks[-1] < _TEN * _MILLI:
        return _Scale(ticks, lambda value: f"{value:,.0f}")
    return _Scale(ticks, lambda value: f"{value / unit:g}{name}" if value else "0")


def _ticks(highest: float, step: float) -> list[float]:
    """Return ticks from 0 to the first step that is not below the highest value."""
    return [step * index for index in range(max(math.ceil(highest / step - 1e-9), 1) + 1)]


def _round_up(value: float) -> float:
    """Return the next 1, 2 or 5 times a power of ten."""
    if value <= 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(value))
    return next(step * power for step in (1, 2, 5, 10) if step * power >= value * (1 - 1e-9))


def _column(index: int, moment: datetime, labels: Sequence[str], shapes: str) -> str:
    """Return the shapes of one point in time, with a tooltip over its whole height."""
    title = escape("\n".join([f"{moment:%Y-%m-%d %H:%M} UTC", *labels]))
    hit = f'<path class="hit" d="M{index} 0h1v{_HEIGHT:.0f}h-1z"/>'
    return f"<g><title>{title}</title>{hit}{shapes}</g>"


def _frame(times: Sequence[datetime], scale: _Scale, label: str, shapes: str) -> str:
    wide = max(len(times), 1)
    grid, words = [], []
    for tick in scale.ticks:
        part = scale.part(tick)
        y = _HEIGHT - part * _HEIGHT
        grid.append(f'<path class="grid" d="M0 {y:.2f}h{wide}"/>')
        text = escape(scale.label(tick))
        words.append(f'<span class="y" style="bottom:{100 * part:.2f}%">{text}</span>')
    note = '<span class="note">logarithmic</span>' if scale.is_log else ""
    return (
        f'<div class="chart" role="img" aria-label="{escape(label)}">'
        f'<svg viewBox="0 0 {wide} {_HEIGHT:.0f}" preserveAspectRatio="none">'
        f"{''.join(grid)}{shapes}</svg>{''.join(words)}{_time_labels(times)}{note}</div>"
    )


def _time_labels(times: Sequence[datetime]) -> str:
    """Return the labels of the time axis: the day at midnight, the hour otherwise."""
    is_daily = len(times) > 1 and times[1] - times[0] >= _DAY
    fewest = len(times) / _LABELS_MAX
    steps = _STEPS_D if is_daily else _STEPS_H
    every = next((step for step in steps if step >= fewest), steps[-1])
    texts = []
    for index, moment in enumerate(times):
        since = index if is_daily else times[0].hour + (moment - times[0]) // _HOUR
        if since % every == 0:
            is_day = is_daily or moment.hour == 0
            text = f"{moment:%d %b}".lstrip("0") if is_day else f"{moment:%H:%M}"
            # The page hides every second label on a narrow screen.
            kind = "x odd" if since // every % 2 else "x"
            left = 100 * (index + 0.5) / len(times)
            texts.append(f'<span class="{kind}" style="left:{left:.2f}%">{text}</span>')
    return "".join(texts)
