"""What a run measured, as one JSON file that can be rendered again and again."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median


@dataclass(frozen=True)
class Measurement:
    """The figures of one row in one cell in one round."""

    peer: str
    cell: str
    work: str
    """``push``, ``claim+complete``, ``cycle``, or the name of the cell."""
    round: int
    figures: dict[str, float]


@dataclass(frozen=True)
class Spread:
    """A figure over the rounds."""

    median: float
    low: float
    high: float

    @property
    def share(self) -> float:
        """How far the rounds are apart, as a share of the median."""
        return (self.high - self.low) / self.median if self.median else 0.0


@dataclass
class Results:
    """A run: how it was made, what was measured, and what could not be."""

    command: str = ""
    made_at: str = ""
    machine: str = ""
    is_quick: bool = False
    rounds: int = 0
    burst_s: float = 0.0
    sustained_s: float = 0.0
    others: list[float] = field(default_factory=list)
    """The share of the machine that other programs used before each round."""
    versions: dict[str, dict[str, str]] = field(default_factory=dict)
    """For each row the packages and servers, with their versions."""
    measurements: list[Measurement] = field(default_factory=list)
    failures: dict[str, str] = field(default_factory=dict)
    """Why a row, or ``row/cell``, has no figure."""

    def spread(self, peer: str, cell: str, work: str, figure: str) -> Spread | None:
        """A figure's median and range over the rounds, or None if it was not measured."""
        values = [
            each.figures[figure]
            for each in self.measurements
            if (each.peer, each.cell, each.work) == (peer, cell, work) and figure in each.figures
        ]
        return Spread(median(values), min(values), max(values)) if values else None

    def value(self, peer: str, cell: str, work: str, figure: str = "rate") -> float | None:
        """The median of a figure."""
        spread = self.spread(peer, cell, work, figure)
        return spread.median if spread else None

    def write(self, path: Path) -> None:
        """Write the file whole, so that an interrupted run keeps what it had."""
        path.parent.mkdir(parents=True, exist_ok=True)
        text = json.dumps(asdict(self), indent=1, ensure_ascii=False)
        new = path.with_suffix(".new")
        new.write_text(text + "\n", encoding="utf-8")
        new.replace(path)

    @classmethod
    def read(cls, path: Path) -> Results:
        """Read a file."""
        found = json.loads(path.read_text(encoding="utf-8"))
        found["measurements"] = [Measurement(**each) for each in found["measurements"]]
        return cls(**found)
