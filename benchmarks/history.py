"""What a history costs: cycles a second and bytes a job, with history on and off.

Run it with ``python benchmarks/history.py``. Callers push a job, claim one and complete it, in one
process with group commit, on a file. Rounds with and without a history alternate, because machines
are shared; what a history costs is the median over the rounds, as a part of the cycles a second of
the queue without one. The cost in CPU time is the more reliable one.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from pathlib import Path
from statistics import median
from time import perf_counter, process_time
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.queues import PAYLOAD

import bucketq

CALLERS = (1, 64)
MOST_COST = 0.15
"""The aim: this part of the cycles a second."""


class Round(NamedTuple):
    """What was measured in one round."""

    cycles_per_s: float
    cycles_per_cpu_s: float
    history_bytes: float
    """How many bytes of the history there are for each job."""


async def measure(folder: Path, callers: int, run_s: float, *, history: bool) -> Round:
    """Push, claim and complete jobs for a while."""
    url = f"file://{folder}/queue.json"
    done = 0
    async with bucketq.connect(url, mode="embedded") as queue:
        await queue.configure(history_retention_s=86400.0 if history else 0.0)
        begin, cpu = perf_counter(), process_time()

        async def call() -> None:
            nonlocal done
            while perf_counter() - begin < run_s:
                await queue.push("index", PAYLOAD)
                for job in await queue.claim():
                    await queue.complete(job)
                    done += 1

        await asyncio.gather(*(call() for _ in range(callers)))
        took_s, took_cpu_s = perf_counter() - begin, process_time() - cpu
    size_bytes = _history_bytes(folder) if history else 0
    return Round(done / took_s, done / took_cpu_s, size_bytes / max(1, done))


def _history_bytes(folder: Path) -> int:
    files = [*folder.glob("queue/history/*/*.jsonl"), folder / "queue.json"]
    return sum(path.stat().st_size for path in files)


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description="Measure what a history costs.")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--run-s", type=float, default=3.0)
    parser.add_argument("--dir", type=Path, help="a folder on a disk")
    arguments = parser.parse_args()
    print("callers  off/s  on/s  costs  costs in CPU time  bytes a job  aim")
    for callers in CALLERS:
        rounds: dict[bool, list[Round]] = {False: [], True: []}
        for _ in range(arguments.rounds):
            for history in (False, True):
                with tempfile.TemporaryDirectory(dir=arguments.dir) as folder:
                    found = asyncio.run(
                        measure(Path(folder), callers, arguments.run_s, history=history)
                    )
                rounds[history].append(found)
        pairs = list(zip(rounds[False], rounds[True], strict=True))
        cost = 1 - median(on.cycles_per_s / off.cycles_per_s for off, on in pairs)
        cpu = 1 - median(on.cycles_per_cpu_s / off.cycles_per_cpu_s for off, on in pairs)
        off = median(each.cycles_per_s for each in rounds[False])
        on = median(each.cycles_per_s for each in rounds[True])
        size_bytes = median(each.history_bytes for each in rounds[True])
        verdict = "met" if cost <= MOST_COST else "missed"
        print(
            f"{callers:7} {off:6,.0f} {on:5,.0f} {cost:6.1%} {cpu:18.1%} {size_bytes:12,.0f}"
            f"  {verdict}"
        )


if __name__ == "__main__":
    main()
