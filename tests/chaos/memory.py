"""How much memory the processes of a run use, over time: it is to stay as it is.

A process is judged by itself, from the time when it has seen a bit of everything to its end. One
that was started again begins anew.
"""

from __future__ import annotations

import os
import statistics
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

WARM_UP_S = 12.0
"""What a process uses before it has lived so long tells nothing."""
_SPAN_S = 8.0
"""How long it is looked at in the beginning and at the end."""
SHORTEST_S = WARM_UP_S + 2 * _SPAN_S
TOLERANCE = 0.08
"""How much a process may grow all the same, and a few megabytes for what grows in steps."""
_STEP_BYTES = 4 << 20
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True)
class Growth:
    """What one process used after it was warm, and in the end."""

    name: str
    role: str
    before_bytes: float
    after_bytes: float
    lived_s: float

    @property
    def is_too_much(self) -> bool:
        return self.after_bytes > self.before_bytes * (1 + TOLERANCE) + _STEP_BYTES

    def __str__(self) -> str:
        before, after = self.before_bytes / (1 << 20), self.after_bytes / (1 << 20)
        return f"{before:.0f} -> {after:.0f} MiB"


class Memory:
    """Samples of all processes, by name."""

    def __init__(self) -> None:
        self._samples: dict[tuple[str, str], list[tuple[float, int]]] = defaultdict(list)

    def note(self, role: str, name: str, pid: int, now_s: float) -> None:
        """Look at one process, if it is there."""
        try:
            words = Path(f"/proc/{pid}/statm").read_text().split()
        except OSError:
            return
        if len(words) > 1 and int(words[1]):
            self._samples[role, name].append((now_s, int(words[1]) * _PAGE_BYTES))

    def growths(self) -> list[Growth]:
        """How those who lived long enough have grown, the worst first."""
        found = []
        for (role, name), samples in self._samples.items():
            first_s, last_s = samples[0][0], samples[-1][0]
            if last_s - first_s < SHORTEST_S:
                continue
            warm_s = first_s + WARM_UP_S
            early = [size for at, size in samples if warm_s <= at < warm_s + _SPAN_S]
            late = [size for at, size in samples if at > last_s - _SPAN_S]
            if early and late:
                before, after = statistics.median(early), statistics.median(late)
                found.append(Growth(name, role, before, after, last_s - first_s))
        return sorted(found, key=lambda one: one.before_bytes - one.after_bytes)
