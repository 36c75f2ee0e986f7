"""What bucketq aims at beside its peers: ratios of medians in one run, and limits of latency."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from benchmarks.peers.results import Results
from benchmarks.peers.table import BURSTS, DEPTHS, title_of

OPERATIONS = {"push": 1, "claim+complete": 2}
"""How many operations the work on a job takes."""


@dataclass(frozen=True)
class Figure:
    """A median of a run."""

    cell: str
    work: str
    figure: str = "rate"
    peer: str = "bucketq"


@dataclass(frozen=True)
class Aim:
    """A limit for a figure, or for its ratio to another one."""

    title: str
    of: Figure
    limit: float
    beside: Figure | None = None
    is_most: bool = False
    """Whether the limit is the most that it may be, and not the least."""
    unit: str = "x"

    def value(self, results: Results) -> float | None:
        """What was measured, or None if some of it was not."""
        ours = median_of(results, self.of)
        if self.beside is None or ours is None:
            return ours
        other = median_of(results, self.beside)
        return ours / other if other else None

    def is_met(self, value: float) -> bool:
        """Whether a value keeps the limit."""
        return value <= self.limit if self.is_most else value >= self.limit


def median_of(results: Results, figure: Figure) -> float | None:
    """The median of a figure."""
    return results.value(figure.peer, figure.cell, figure.work, figure.figure)


def beside(cell: str, work: str, peer: str, least: float) -> Aim:
    """At least so many times as fast as a peer."""
    title = f"{title_of(cell)}, {work}, beside {peer}"
    return Aim(title, Figure(cell, work), least, Figure(cell, work, peer=peer))


def latency(cell: str, figure: str, most_ms: float) -> Aim:
    """A push takes at most so long."""
    title = f"{title_of(cell)}, push, {figure.removesuffix('_ms')}"
    return Aim(title, Figure(cell, "push", figure), most_ms, is_most=True, unit=" ms")


def aims() -> Iterator[Aim]:
    """All aims, in the order of the cells."""
    yield latency("1", "p50_ms", 1.0)
    for cell, least, most_ms in (("64", 1.2, 7.0), ("64x4", 0.8, 8.0)):
        for work in OPERATIONS:
            yield beside(cell, work, "redis", least)
        yield latency(cell, "p50_ms", most_ms)
        kept = Figure(f"sustained-{cell}", "cycle", "kept")
        yield Aim(f"{BURSTS[cell].title}, cycles kept for two minutes", kept, 0.9)
    for work, operations in OPERATIONS.items():
        title = f"{title_of('1000x2')}, {work}"
        yield Aim(title, Figure("1000x2", work), 40_000 / operations, unit="/s")
    yield latency("1000x2", "p99_ms", 60.0)
    yield beside("bulk", "push", "postgres", 1.2)
    yield beside("bulk", "claim+complete", "postgres", 1.3)
    cycles = [Figure("sustained-bulk", "cycle", peer=peer) for peer in ("bucketq", "postgres")]
    yield Aim("bulk of 100, sustained cycles, beside postgres", cycles[0], 1.0, cycles[1])
    for cell in DEPTHS:
        for peer in ("redis", "postgres"):
            yield beside(cell, "cycle", peer, 1.0)
    deep, shallow = Figure("depth-1m", "cycle"), Figure("depth-0", "cycle")
    yield Aim("1,000,000 waiting, cycle, beside 0 waiting", deep, 0.85, shallow)
    started = Figure("start", "start", "seconds", "bucketq-embedded")
    yield Aim("`bucketq push` without a broker", started, 0.2, is_most=True, unit=" s")


def verdicts(results: Results) -> str:
    """A line for each aim whose figures were measured."""
    lines = []
    for aim in aims():
        value = aim.value(results)
        if value is not None:
            relation = "at most" if aim.is_most else "at least"
            verdict = "met" if aim.is_met(value) else "MISSED"
            limit = f"{relation} {aim.limit:,g}{aim.unit}"
            measured = f"{value:,.4g}{aim.unit}"
            lines.append(f"{aim.title:<62} {measured:>12}   {limit:<20} {verdict}\n")
    return "".join(lines)
