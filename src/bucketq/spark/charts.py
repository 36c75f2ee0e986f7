"""Charts as inline SVG: no script, no font, nothing from elsewhere. All text is escaped.

Colours are classes, so that the page decides what they look like by day and by night.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from html import escape

WIDTH, HEIGHT = 920, 240
_LEFT, _RIGHT, _TOP, _BOTTOM = 56, 12, 12, 28
_PLOT_WIDTH, _PLOT_HEIGHT = WIDTH - _LEFT - _RIGHT, HEIGHT - _TOP - _BOTTOM
_STEPS = (1, 2, 2.5, 5, 10)
_GRID_LINES = 4
_MOST_LABELS = 8
_NARROW = 3
_MINUTE_S, _HOUR_S, _MILLI = 60, 3600, 1000
_TEN, _MILLION = 10, 1_000_000
_DAY_HOURS = 24


@dataclass(frozen=True)
class Series:
    """Values by place, under a name and in a colour; None: nothing is known there."""

    name: str
    colour: str
    values: Sequence[float | None]


def bars(places: Sequence[datetime], series: Sequence[Series], label: str) -> str:
    """Bars that stand on one another, one stack for each place."""
    tops = [sum(each.values[place] or 0 for each in series) for place in range(len(places))]
    top = _round_up(max(tops, default=0))
    step = _PLOT_WIDTH / max(len(places), 1)
    width = max(step - (2 if step > _NARROW else 0), 0.5)
    shapes = []
    for place, moment in enumerate(places):
        base = 0.0
        told = [f"{each.name}: {each.values[place] or 0:,.0f}" for each in series]
        rects = []
        for each in series:
            value = each.values[place] or 0
            if value:
                high = value / top * _PLOT_HEIGHT
                y = _TOP + _PLOT_HEIGHT - (base + value) / top * _PLOT_HEIGHT
                rects.append(
                    f'<rect class="{each.colour}" x="{_LEFT + place * step + 1:.1f}" '
                    f'y="{y:.1f}" width="{width:.1f}" height="{high:.1f}"/>'
                )
                base += value
        title = escape(f"{moment:%Y-%m-%d %H:%M} UTC\n" + "\n".join(told))
        shapes.append(f"<g><title>{title}</title>{''.join(rects)}</g>")
    return _frame(places, top, count, label, "".join(shapes))


def lines(places: Sequence[datetime], series: Sequence[Series], label: str) -> str:
    """A line for each series; it is broken where nothing is known."""
    known = [value for each in series for value in each.values if value is not None]
    highest = max(known, default=0.0)
    unit_s = next((unit for unit in (_HOUR_S, _MINUTE_S) if highest > unit), 1)
    top = _round_up(highest / unit_s) * unit_s
    step = _PLOT_WIDTH / max(len(places), 1)
    shapes = []
    for each in series:
        pieces: list[list[str]] = [[]]
        for place, value in enumerate(each.values):
            if value is None:
                pieces.append([])
                continue
            x = _LEFT + (place + 0.5) * step
            y = _TOP + _PLOT_HEIGHT - value / top * _PLOT_HEIGHT
            pieces[-1].append(f"{x:.1f},{y:.1f}")
            title = escape(f"{places[place]:%Y-%m-%d %H:%M} UTC\n{each.name}: {duration(value)}")
            shapes.append(
                f'<circle class="{each.colour}" cx="{x:.1f}" cy="{y:.1f}" r="2.5">'
                f"<title>{title}</title></circle>"
            )
        shapes += [
            f'<polyline class="{each.colour}" points="{" ".join(piece)}"/>'
            for piece in pieces
            if len(piece) > 1
        ]
    return _frame(places, top, duration, label, "".join(shapes))


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
    return f"{seconds / _HOUR_S:,.3g} h"


def count(number: float) -> str:
    """A number as short as it can be said."""
    if number >= _MILLION:
        return f"{number / _MILLION:.3g}M"
    if number >= _TEN * _MILLI:
        return f"{number / _MILLI:.3g}k"
    return f"{number:.3g}" if number < _MILLI else f"{number:,.0f}"


def _frame(
    places: Sequence[datetime], top: float, spell: Callable[[float], str], label: str, shapes: str
) -> str:
    grid = []
    for line in range(_GRID_LINES + 1):
        y = _TOP + _PLOT_HEIGHT * (1 - line / _GRID_LINES)
        text = escape(spell(top * line / _GRID_LINES))
        grid.append(
            f'<line class="grid" x1="{_LEFT}" x2="{WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>'
            f'<text x="{_LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{text}</text>'
        )
    return (
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(label)}">'
        f"{''.join(grid)}{_axis(places)}{shapes}</svg>"
    )


def _axis(places: Sequence[datetime]) -> str:
    """Times below the plot: the day where it begins, else the hour."""
    if not places:
        return ""
    step = _PLOT_WIDTH / len(places)
    every = max(math.ceil(len(places) / _MOST_LABELS), 1)
    if every > 1 and len(places) > _DAY_HOURS:
        every = math.ceil(every / _DAY_HOURS) * _DAY_HOURS if every > _DAY_HOURS / 2 else every
    texts = []
    for place in range(0, len(places), every):
        moment = places[place]
        is_day = place == 0 or moment.date() != places[place - every].date()
        text = f"{moment:%d %b}" if is_day else f"{moment:%H:%M}"
        x = _LEFT + (place + 0.5) * step
        texts.append(f'<text x="{x:.1f}" y="{HEIGHT - 8}" text-anchor="middle">{text}</text>')
    return "".join(texts)


def _round_up(value: float) -> float:
    """The next number that makes a good end of an axis."""
    if value <= 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(value))
    return next(step * power for step in _STEPS if step * power >= value * (1 - 1e-9))
