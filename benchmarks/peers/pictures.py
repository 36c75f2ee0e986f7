"""Draws a run: bars of rates for each number of callers, and lines of rates over depth.

Plain SVG that follows the reader's light or dark theme. bucketq has the colour; bounds are hollow.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from html import escape
from math import ceil, floor, log10

from benchmarks.peers.results import Results
from benchmarks.peers.table import BURSTS, DEPTHS, PEERS, Peer

WIDTH = 860
LABELS = 230
BAR, GAP, TITLE = 11, 7, 30
VALUES = 110
"""The room for a figure at the end of a bar."""

STYLE = """
text { font: 12px system-ui, sans-serif; fill: #24292f }
.title { font-weight: 600; font-size: 13px }
.quiet { fill: #6e7781; font-size: 11px }
.ours { fill: #0b7285; stroke: #0b7285 }
.peer { fill: #8c959f; stroke: #8c959f }
.bound { fill: none; stroke: #8c959f }
.second { opacity: 0.55 }
.grid { stroke: #d0d7de; stroke-width: 0.5 }
polyline.line { fill: none; stroke-width: 1.8 }
.dashed { stroke-dasharray: 5 3 }
@media (prefers-color-scheme: dark) {
  text { fill: #e6edf3 }
  .quiet { fill: #8d96a0 }
  .ours { fill: #3bc9db; stroke: #3bc9db }
  .grid { stroke: #30363d }
}
"""


def draw_rates(results: Results) -> str:
    """A panel for each number of callers; each row has a bar for pushes and one for completions."""
    parts, top = list[str](), 10.0
    for cell, burst in BURSTS.items():
        rows = [
            (peer, push, done)
            for peer in PEERS
            if (push := results.value(peer.name, cell, "push")) is not None
            and (done := results.value(peer.name, cell, "claim+complete")) is not None
        ]
        if not rows:
            continue
        parts += panel(f"{burst.title}: push, and claim + complete, jobs a second", rows, top)
        top += TITLE + len(rows) * (2 * BAR + GAP) + 14
    return svg(parts, top, "Jobs a second of bucketq and other queues, by callers")


def panel(title: str, rows: list[tuple[Peer, float, float]], top: float) -> Iterator[str]:
    """The bars of one cell, on a scale of their own."""
    most = max(max(push, done) for _, push, done in rows) or 1.0
    yield text(title, 0, top + 14, style="title")
    for number, (peer, push, done) in enumerate(rows):
        y = top + TITLE + number * (2 * BAR + GAP)
        yield text(peer.title, LABELS - 10, y + BAR + 4, anchor="end")
        for rate, down, style in ((push, 0, ""), (done, BAR, " second")):
            width = max(1.0, (WIDTH - LABELS - VALUES) * rate / most)
            yield (
                f'<rect class="{kind(peer)}{style}" x="{LABELS}" y="{y + down:.1f}" '
                f'width="{width:.1f}" height="{BAR - 1}"/>'
            )
            yield text(f"{rate:,.0f}", LABELS + width + 5, y + down + BAR - 1.5, style="quiet")


def draw_depth(results: Results) -> str:
    """Cycles a second over waiting jobs, both on logarithmic scales."""
    lines = {
        peer: [
            (number, rate)
            for number, cell in enumerate(DEPTHS)
            if (rate := results.value(peer.name, cell, "cycle"))
        ]
        for peer in PEERS
    }
    rates = [rate for points in lines.values() for _, rate in points] or [1.0, 10.0]
    low, high = floor(log10(min(rates))), ceil(log10(max(rates)))
    left, right, bottom, height = 60.0, WIDTH - 250.0, 340.0, 290.0

    def x(number: int) -> float:
        return left + (right - left) * number / (len(DEPTHS) - 1)

    def y(rate: float) -> float:
        return bottom - height * (log10(rate) - low) / max(1, high - low)

    parts = [text("Cycles a second with 64 callers, by waiting jobs", 0, 20, style="title")]
    for power in range(low, high + 1):
        parts.append(line((left, y(10**power)), (right, y(10**power))))
        parts.append(
            text(f"{10**power:,}", left - 8, y(10**power) + 4, style="quiet", anchor="end")
        )
    for number, depth in enumerate(DEPTHS.values()):
        parts.append(text(f"{depth:,}", x(number), bottom + 18, style="quiet", anchor="middle"))
    ends = spread_out({peer: y(points[-1][1]) for peer, points in lines.items() if points})
    for peer, end in ends.items():
        points = [(x(number), y(rate)) for number, rate in lines[peer]]
        path = " ".join(f"{across:.1f},{down:.1f}" for across, down in points)
        style = f"{kind(peer)} line{' dashed' if is_bound(peer) else ''}"
        parts.append(f'<polyline class="{style}" points="{path}"/>')
        parts.append(line(points[-1], (right + 12, end)))
        parts.append(text(peer.title, right + 16, end + 4))
    return svg(parts, bottom + 30, "Cycles a second of bucketq and other queues, by waiting jobs")


def spread_out(heights: dict[Peer, float], apart: float = 15.0) -> dict[Peer, float]:
    """Move labels so that none covers another."""
    placed: dict[Peer, float] = {}
    last = float("-inf")
    for peer, height in sorted(heights.items(), key=lambda item: item[1]):
        last = max(height, last + apart)
        placed[peer] = last
    return placed


def svg(parts: Iterable[str], height: float, title: str) -> str:
    """A picture."""
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:.0f}" role="img">\n'
        f"<title>{escape(title)}</title>\n<style>{STYLE}</style>\n"
        + "\n".join(parts)
        + "\n</svg>\n"
    )


def text(words: str, x: float, y: float, *, style: str = "", anchor: str = "start") -> str:
    """Some words."""
    place = f'x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"'
    return f'<text class="{style}" {place}>{escape(words)}</text>'


def line(start: tuple[float, float], end: tuple[float, float]) -> str:
    """A thin line."""
    (x1, y1), (x2, y2) = start, end
    return f'<line class="grid" x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"/>'


def is_bound(peer: Peer) -> bool:
    """Whether it is the least that a server can do, and not a queue."""
    return peer.title.endswith("(bound)")


def kind(peer: Peer) -> str:
    """The style of a row."""
    if peer.is_ours:
        return "ours"
    return "bound" if is_bound(peer) else "peer"
