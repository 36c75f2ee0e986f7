"""Charts as HTML with inline SVG: no script, no font, nothing from elsewhere. All text is escaped.

Shapes are stretched to the width that there is, and words are not: they stand beside the SVG, so
that they can be read on a telephone and on paper. Colours are classes, so that the page decides
what they look like by day and by night. Whoever points at a place of a chart is shown its numbers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from html import escape

_HIGH = 100.0
"""The height of a plot in its own units; its width is the number of places."""
_GAP = 0.12
_MOST_STEPS = 5
_MOST_LABELS = 8
_MOST_DOTS = 100
_WIDE_RANGE = 50.0
"""From so many times the smallest value on, small ones are not to be seen on a linear scale."""
_MINUTE_S, _HOUR_S, _DAY_S, _MILLI = 60, 3600, 86400, 1000
_TEN, _MILLION = 10, 1_000_000
_DAY = timedelta(days=1)
_STEPS_H = (1, 2, 3, 4, 6, 12, 24, 48, 72, 96, 168)
_STEPS_D = (1, 2, 7, 14, 28, 56, 91, 182, 364)
_STEPS_S = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200)
_POWERS_S = (*(10.0**power for power in range(-6, 2)), 60.0, 600.0, 3600.0, 36000.0)


@dataclass(frozen=True)
class Series:
    """Values by place, under a name and in a colour; None: nothing is known there."""

    name: str
    colour: str
    values: Sequence[float | None]


@dataclass(frozen=True)
class _Scale:
    """Where a value stands between the bottom and the top of a plot, and what the axis says."""

    ticks: Sequence[float]
    spell: Callable[[float], str]
    is_log: bool = False

    def part(self, value: float) -> float:
        low, high = self.ticks[0], self.ticks[-1]
        if self.is_log:
            return math.log(max(value, low) / low) / math.log(high / low)
        return value / high


def bars(places: Sequence[datetime], series: Sequence[Series], label: str) -> str:
    """Bars that stand on one another, one stack for each place."""
    tops = [sum(each.values[place] or 0 for each in series) for place in range(len(places))]
    scale = _scale_of_counts(max(tops, default=0))
    shapes = []
    for place, moment in enumerate(places):
        base = 0.0
        rects = []
        for each in series:
            value = each.values[place] or 0
            if value:
                high = scale.part(value) * _HIGH
                y = _HIGH - scale.part(base + value) * _HIGH
                rects.append(
                    f'<rect class="{each.colour}" x="{place + _GAP / 2:.2f}" y="{y:.2f}" '
                    f'width="{1 - _GAP:.2f}" height="{high:.2f}"/>'
                )
                base += value
        told = [f"{each.name}: {each.values[place] or 0:,.0f}" for each in series]
        shapes.append(_place(place, moment, told, "".join(rects)))
    return _frame(places, scale, label, "".join(shapes))


def lines(places: Sequence[datetime], series: Sequence[Series], label: str) -> str:
    """A line of durations for each series; it is broken where nothing is known."""
    scale = _scale_of_durations([value for each in series for value in each.values])
    shapes = []
    for each in series:
        pieces: list[list[str]] = [[]]
        for place, value in enumerate(each.values):
            if value is None:
                pieces.append([])
            else:
                y = _HIGH - scale.part(value) * _HIGH
                pieces[-1].append(f"{place + 0.5:.1f},{y:.2f}")
        for piece in pieces:
            if len(piece) > 1:
                shapes.append(f'<polyline class="{each.colour}" points="{" ".join(piece)}"/>')
            if len(piece) == 1 or len(places) <= _MOST_DOTS:
                # A line without length and with round ends: a circle would be stretched.
                shapes += [f'<path class="dot {each.colour}" d="M{point}h0"/>' for point in piece]
    for place, moment in enumerate(places):
        found = [(each.name, each.values[place]) for each in series]
        told = [f"{name}: {duration(value)}" for name, value in found if value is not None]
        shapes.append(_place(place, moment, told, ""))
    return _frame(places, scale, label, "".join(shapes))


def small_bars(values: Sequence[float]) -> str:
    """Bars as small as a word, without any words."""
    top = max(values, default=0) or 1
    heights = (f"V{_HIGH - value / top * _HIGH:.0f}h1" for value in values)
    path = f"M0 {_HIGH:.0f}{''.join(heights)}V{_HIGH:.0f}z"
    return (
        f'<svg class="small" viewBox="0 0 {max(len(values), 1)} {_HIGH:.0f}" '
        f'preserveAspectRatio="none" aria-hidden="true"><path d="{path}"/></svg>'
    )


def legend(series: Sequence[Series]) -> str:
    """What the colours mean."""
    items = (f'<span><i class="{each.colour}"></i>{escape(each.name)}</span>' for each in series)
    return f'<div class="legend">{"".join(items)}</div>'


def duration(seconds: float) -> str:
    """A duration as short as it can be said."""
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
    """A number as short as it can be said."""
    if number >= _MILLION:
        return f"{number / _MILLION:.3g}M"
    if number >= _TEN * _MILLI:
        return f"{number / _MILLI:.3g}k"
    return f"{number:.3g}" if number < _MILLI else f"{number:,.0f}"


def _scale_of_durations(values: Sequence[float | None]) -> _Scale:
    """Linear, or by powers of ten where the small ones would not be seen otherwise."""
    known = [value for value in values if value]
    highest, lowest = max(known, default=0.0), min(known, default=0.0)
    if highest > _WIDE_RANGE * lowest > 0:
        days = (_DAY_S * 10.0**power for power in range(10))
        powers = [*_POWERS_S, *days]
        first = max((place for place, each in enumerate(powers) if each <= lowest), default=0)
        last = next((place for place, each in enumerate(powers) if each >= highest), -1)
        return _Scale(powers[first : last + 1 or None], duration, is_log=True)
    unit = _DAY_S if highest > _MOST_STEPS * _STEPS_S[-1] else 1
    step = _round_up(highest / unit / _MOST_STEPS) * unit
    if unit <= step < _DAY_S:
        step = next(each for each in _STEPS_S if highest <= _MOST_STEPS * each)
    return _Scale(_ticks(highest, step), duration)


def _scale_of_counts(highest: float) -> _Scale:
    ticks = _ticks(highest, max(_round_up(highest / _MOST_STEPS), 1))
    unit, name = (_MILLION, "M") if ticks[-1] >= _MILLION else (_MILLI, "k")
    if ticks[-1] < _TEN * _MILLI:
        return _Scale(ticks, lambda value: f"{value:,.0f}")
    return _Scale(ticks, lambda value: f"{value / unit:g}{name}" if value else "0")


def _ticks(highest: float, step: float) -> list[float]:
    """From nothing to the first step that is not below the highest value."""
    return [step * place for place in range(max(math.ceil(highest / step - 1e-9), 1) + 1)]


def _round_up(value: float) -> float:
    """The next number that makes a good step."""
    if value <= 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(value))
    return next(step * power for step in (1, 2, 5, 10) if step * power >= value * (1 - 1e-9))


def _place(place: int, moment: datetime, told: Sequence[str], shapes: str) -> str:
    """One place, which tells its numbers wherever one points at it."""
    title = escape("\n".join([f"{moment:%Y-%m-%d %H:%M} UTC", *told]))
    hit = f'<path class="hit" d="M{place} 0h1v{_HIGH:.0f}h-1z"/>'
    return f"<g><title>{title}</title>{hit}{shapes}</g>"


def _frame(places: Sequence[datetime], scale: _Scale, label: str, shapes: str) -> str:
    wide = max(len(places), 1)
    grid, words = [], []
    for tick in scale.ticks:
        part = scale.part(tick)
        y = _HIGH - part * _HIGH
        grid.append(f'<path class="grid" d="M0 {y:.2f}h{wide}"/>')
        text = escape(scale.spell(tick))
        words.append(f'<span class="y" style="bottom:{100 * part:.2f}%">{text}</span>')
    note = '<span class="note">logarithmic</span>' if scale.is_log else ""
    return (
        f'<div class="chart" role="img" aria-label="{escape(label)}">'
        f'<svg viewBox="0 0 {wide} {_HIGH:.0f}" preserveAspectRatio="none">'
        f"{''.join(grid)}{shapes}</svg>{''.join(words)}{_times(places)}{note}</div>"
    )


def _times(places: Sequence[datetime]) -> str:
    """Times below the plot: the day at midnight, else the hour."""
    is_daily = len(places) > 1 and places[1] - places[0] >= _DAY
    fewest = len(places) / _MOST_LABELS
    steps = _STEPS_D if is_daily else _STEPS_H
    every = next((step for step in steps if step >= fewest), steps[-1])
    texts = []
    for place, moment in enumerate(places):
        since = place if is_daily else _hours_since_first_day(places[0], moment)
        if since % every == 0:
            is_day = is_daily or moment.hour == 0
            text = f"{moment:%d %b}".lstrip("0") if is_day else f"{moment:%H:%M}"
            # On a narrow screen there is room for every second one.
            kind = "x odd" if since // every % 2 else "x"
            left = 100 * (place + 0.5) / len(places)
            texts.append(f'<span class="{kind}" style="left:{left:.2f}%">{text}</span>')
    return "".join(texts)


def _hours_since_first_day(first: datetime, moment: datetime) -> int:
    midnight = first.replace(hour=0, minute=0, second=0, microsecond=0)
    return int((moment - midnight).total_seconds() // _HOUR_S)
