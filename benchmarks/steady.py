"""Whether a queue keeps its rate: a steady load of push, claim and complete, by windows of time.

Run it with ``python benchmarks/steady.py`` (ten minutes) or ``--seconds 120``. Finished jobs leave
for the archive while new ones arrive. If archiving falls behind, they accumulate in the object,
which every commit writes again, and the rate falls. It prints the rate and the size of the object
for each window. The exit code is 1 if the rate of the last window is not within a tenth of that of
the second, the first one in which jobs have left. On a busy machine, look at the cycles in
a second of CPU time instead.

``--callers 64 --batch 1`` measures single calls instead of batches.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

import bucketq
from bucketq.queue.queue import Queue

WINDOWS = 10
TOLERANCE = 0.1
PAYLOAD = {"text": "x" * 89}
"""A hundred bytes of JSON."""
_LINE = "{:>8} {:>10} {:>14} {:>12} {:>12} {:>10}"


class Load:
    """Callers that push, claim and complete, as fast as they are answered."""

    def __init__(self, queue: Queue[Any], batch: int) -> None:
        self._queue = queue
        self._jobs = [bucketq.JobSpec(kind="index", payload=PAYLOAD)] * batch
        self.cycles = 0

    async def run(self) -> None:
        """Work until it is cancelled."""
        queue, jobs = self._queue, self._jobs
        while True:
            if len(jobs) == 1:
                await queue.push("index", PAYLOAD)
                for job in await queue.claim():
                    await queue.complete(job)
            else:
                await queue.push_many(jobs)
                await queue.complete_many(await queue.claim(limit=len(jobs)))
            self.cycles += len(jobs)


async def measure(queue: Queue[Any], options: argparse.Namespace) -> list[float]:
    """Print a line for each window, and return the rates."""
    load = Load(queue, options.batch)
    callers = [asyncio.create_task(load.run()) for _ in range(options.callers)]
    window_s, rates = options.seconds / WINDOWS, list[float]()
    titles = ("seconds", "cycles/s", "cycles/CPU-s", "object KiB", "most KiB", "finished")
    print(_LINE.format(*titles), flush=True)
    began = perf_counter()
    try:
        for window in range(1, WINDOWS + 1):
            before, start, sizes = load.cycles, perf_counter(), list[int]()
            start_cpu, end = process_time(), began + window * window_s
            while not sizes or perf_counter() < end:
                await asyncio.sleep(max(0, min(end - perf_counter(), window_s / 10)))
                stats = await queue.stats()
                sizes.append(stats.bytes // 1024)
                for task in callers:
                    if task.done():
                        task.result()
            rate = (load.cycles - before) / (perf_counter() - start)
            rates.append(rate)
            cpu_rate = (load.cycles - before) / (process_time() - start_cpu)
            figures = [
                f"{rate:,.0f}",
                f"{cpu_rate:,.0f}",
                f"{sum(sizes) // len(sizes):,}",
                f"{max(sizes):,}",
            ]
            elapsed = f"{perf_counter() - began:.0f}"
            print(_LINE.format(elapsed, *figures, f"{stats.total('done'):,}"), flush=True)
    finally:
        for task in callers:
            task.cancel()
        await asyncio.wait(callers)
    return rates


async def main() -> int:
    """Measure, and report whether the rate was kept."""
    parser = argparse.ArgumentParser(description="Measure a queue under a steady load.")
    parser.add_argument("--seconds", type=float, default=600.0, help="how long it runs")
    parser.add_argument("--callers", type=int, default=1, help="how many call at once")
    parser.add_argument("--batch", type=int, default=100, help="how many jobs go in one call")
    parser.add_argument("--memory", action="store_true", help="in memory instead of on a disk")
    parser.add_argument("--dir", type=Path, default=Path("/var/tmp"), help="a folder on a disk")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.dir) as name:
        url = "memory://" if options.memory else Path(name, "queue.json").as_uri()
        async with bucketq.connect(url, mode="embedded") as queue:
            rates = await measure(queue, options)
    kept = rates[-1] / rates[1]
    print(f"the last window has {kept:.0%} of the rate of the second")
    return 0 if abs(kept - 1) <= TOLERANCE else 1


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
