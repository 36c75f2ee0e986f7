"""Rows of the table that ``spark.py`` prints, and the timing of two ways to do the same.

A part of the benchmark is a function that takes a ``Bench`` and yields rows. bucketq and plain
Spark are timed alternately in one run, so that other load on the machine affects both; the median
counts. A first round does not: Java and Python are slower when they do something for the first
time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from time import perf_counter

from benchmarks.serving import wait_for_quiet
from pyspark.sql import SparkSession


@dataclass(frozen=True)
class Bench:
    """What the parts of the benchmark are given."""

    spark: SparkSession
    folder: Path
    """Empty, on a disk; each part makes folders of its own there."""
    jobs: int
    """How many jobs or rows a large test has."""
    repeats: int
    patience_s: float = 0.0

    def beside(
        self, ours: Callable[[], object], plain: Callable[[], object]
    ) -> tuple[float, float]:
        """How long two things take, in seconds: the median of some turns."""
        plain()
        ours()
        ours_s, plain_s = [], []
        for _ in range(self.repeats):
            wait_for_quiet(self.patience_s)
            plain_s.append(timed(plain))
            ours_s.append(timed(ours))
        return median(ours_s), median(plain_s)


@dataclass(frozen=True)
class Row:
    """One line: the figures of bucketq and of plain Spark, and the gap."""

    name: str
    ours: float
    plain: float
    unit: str
    """Of both, as ``rows/s`` or ``ms``."""
    gap: float
    """How many times as long bucketq takes, or what it adds."""
    gap_unit: str
    """``x``, or the unit of what is added."""
    aim: float | None = None
    """The gap should be at most this; None: no target."""

    @property
    def verdict(self) -> str:
        """Whether the aim is met."""
        if self.aim is None:
            return ""
        return f"{self.aim:g}{self.gap_unit} {'met' if self.gap <= self.aim else 'MISSED'}"


def rated(
    name: str, count: int, ours_s: float, plain_s: float, aim: float | None, unit: str = "rows/s"
) -> Row:
    """A row about how many things are done in a second."""
    return Row(name, count / ours_s, count / plain_s, unit, ours_s / plain_s, "x", aim)


def added(name: str, ours_ms: float, plain_ms: float, aim: float | None) -> Row:
    """A row about how many milliseconds bucketq adds to something."""
    return Row(name, ours_ms, plain_ms, "ms", ours_ms - plain_ms, "ms", aim)


def timed(do: Callable[[], object]) -> float:
    """How long something takes, in seconds."""
    begin = perf_counter()
    do()
    return perf_counter() - begin


Part = Callable[[Bench], Iterator[Row]]
