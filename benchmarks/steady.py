"""Whether a queue keeps its rate: a steady load of push, claim and complete, by windows of time.

Run it with ``python benchmarks/steady.py`` (ten minutes) or ``--seconds 120``. Finished jobs leave
for the archive while new ones arrive. If archiving falls behind, they accumulate in the object,
which every commit writes again, and the rate falls. It prints the rate, the size of the object and
the memory of the process for each window, and beside it the rate of queues that were just created,
measured in turns with the load: if both fall, the machine has become slower and not the queue. The
exit code is 1 if the last window is more than a tenth slower than the second, the first one in
which jobs have left, both by itself and beside the new queues.

``--callers 64 --batch 1`` measures single calls instead of batches. ``--jobs 10000000`` ends a
window after a tenth of so many jobs instead of after a time: whether memory grows with the jobs
that have passed.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from time import perf_counter, process_time
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.core import resident_bytes

import bucketq
from bucketq.queue.queue import Queue

WINDOWS = 10
TOLERANCE = 0.1
SLICES = 10
"""How often a window changes between the load and a new queue: the machine's speed varies by the
second."""
NEW_SHARE = 0.2
"""How much of the time new queues get: enough for a rate that can be compared."""
PAYLOAD = {"text": "x" * 89}
"""A hundred bytes of JSON."""
_LINE = "{:>8} {:>12} {:>10} {:>12} {:>10} {:>12} {:>12} {:>10} {:>6}"


class Load:
    """Callers that push, claim and complete, as fast as they are answered, while they may."""

    def __init__(self, queue: Queue[Any], options: argparse.Namespace) -> None:
        self._queue = queue
        self._jobs = [bucketq.JobSpec(kind="index", payload=PAYLOAD)] * options.batch
        self._may_work = asyncio.Event()
        self._callers = [asyncio.create_task(self._run()) for _ in range(options.callers)]
        self.cycles = 0

    async def work(self, seconds: float) -> float:
        """Let them work for a while; return how long it was."""
        start = perf_counter()
        self._may_work.set()
        await asyncio.sleep(seconds)
        self._may_work.clear()
        for caller in self._callers:
            if caller.done():
                caller.result()
        return perf_counter() - start

    async def stop(self) -> None:
        """Stop them."""
        for caller in self._callers:
            caller.cancel()
        await asyncio.wait(self._callers)

    async def _run(self) -> None:
        queue, jobs = self._queue, self._jobs
        while True:
            await self._may_work.wait()
            if len(jobs) == 1:
                await queue.push("index", PAYLOAD)
                for job in await queue.claim():
                    await queue.complete(job)
            else:
                await queue.push_many(jobs)
                await queue.complete_many(await queue.claim(limit=len(jobs)))
            self.cycles += len(jobs)


class Window(NamedTuple):
    """What was measured in a window."""

    rate: float
    cpu_rate: float
    new_rate: float
    sizes: list[int]
    finished: int
    memory: int


async def work_on_new(options: argparse.Namespace, seconds: float) -> float:
    """Let the load work on a new queue; return its rate."""
    async with open_queue(options) as queue:
        load = Load(queue, options)
        took_s = await load.work(seconds)
        cycles = load.cycles
        await load.stop()
    return cycles / took_s


async def measure_window(queue: Queue[Any], load: Load, options: argparse.Namespace) -> Window:
    """Let the load and new queues work in turns, for a time or a number of jobs."""
    slice_s = options.seconds / WINDOWS / SLICES
    cycles, busy_s, cpu_s, new_rates, sizes = 0, 0.0, 0.0, list[float](), list[int]()
    while cycles < options.jobs / WINDOWS if options.jobs else len(sizes) < SLICES:
        before, start_cpu = load.cycles, process_time()
        busy_s += await load.work(slice_s * (1 - NEW_SHARE))
        cycles += load.cycles - before
        cpu_s += process_time() - start_cpu
        stats = await queue.stats()
        sizes.append(stats.bytes // 1024)
        new_rates.append(await work_on_new(options, max(slice_s * NEW_SHARE, 0.5)))
    new_rate = sum(new_rates) / len(new_rates)
    finished = stats.total("done")
    rates = cycles / busy_s, cycles / cpu_s, new_rate
    return Window(*rates, sizes, finished, resident_bytes() >> 20)


async def measure(queue: Queue[Any], options: argparse.Namespace) -> list[Window]:
    """Print a line for each window, and return what was measured."""
    load = Load(queue, options)
    windows = list[Window]()
    titles = ("seconds", "jobs", "jobs/s", "per CPU-s", "new queue", "object KiB", "most KiB")
    print(_LINE.format(*titles, "finished", "MiB"), flush=True)
    began = perf_counter()
    try:
        for _ in range(WINDOWS):
            window = await measure_window(queue, load, options)
            windows.append(window)
            figures = [
                perf_counter() - began,
                load.cycles,
                window.rate,
                window.cpu_rate,
                window.new_rate,
                sum(window.sizes) // len(window.sizes),
                max(window.sizes),
                window.finished,
                window.memory,
            ]
            print(_LINE.format(*(f"{figure:,.0f}" for figure in figures)), flush=True)
    finally:
        await load.stop()
    return windows


@asynccontextmanager
async def open_queue(options: argparse.Namespace) -> AsyncIterator[Queue[Any]]:
    """Create a queue, and delete it at the end."""
    with tempfile.TemporaryDirectory(dir=options.dir) as folder:
        url = "memory://" if options.memory else Path(folder, "queue.json").as_uri()
        async with bucketq.connect(url, mode="embedded") as queue:
            yield queue


async def main() -> int:
    """Measure, and report whether the rate was kept."""
    parser = argparse.ArgumentParser(description="Measure a queue under a steady load.")
    parser.add_argument("--seconds", type=float, default=600.0, help="how long it runs")
    parser.add_argument("--jobs", type=int, default=0, help="how many jobs pass; 0: by the time")
    parser.add_argument("--callers", type=int, default=1, help="how many call at once")
    parser.add_argument("--batch", type=int, default=100, help="how many jobs go in one call")
    parser.add_argument("--memory", action="store_true", help="in memory instead of on a disk")
    parser.add_argument("--dir", type=Path, default=Path("/var/tmp"), help="a folder on a disk")
    options = parser.parse_args()
    async with open_queue(options) as queue:
        windows = await measure(queue, options)
    second, last = windows[1], windows[-1]
    kept = last.rate / second.rate
    machine = last.new_rate / second.new_rate
    print(f"the last window has {kept:.0%} of the rate of the second; new queues {machine:.0%}")
    print(f"beside new queues, the queue has kept {kept / machine:.0%} of its rate")
    print(f"memory from the second window to the last: {second.memory} to {last.memory} MiB")
    return 0 if max(kept, kept / machine) >= 1 - TOLERANCE else 1


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
