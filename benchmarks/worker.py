"""The throughput of workers, compared with only claiming and completing.

Run it with ``make bench`` or ``python benchmarks/worker.py``; ``--quick`` takes half a minute. A
broker runs in a separate process on a synced local file, and so does each worker.

* *Throughput*: jobs whose handlers do nothing, by 1, 2 and 4 worker processes, beside as many
  processes that claim and complete as many jobs a call as such a worker prefetches, and do nothing
  else. The ratio is what a worker adds: handlers, leases, bookkeeping. CPU is that of the
  worker's process and of the broker's, for each job.
* *Latency*: from the call of push to the first line of the handler, with an idle worker, on the
  file and on one that delays every request by 50 ms; beside the bare PUT of the same store.
* *Parts*: the time of each part of a worker for a job, in microseconds, measured alone; CPU is that
  of this process. ``--parts`` prints only these.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import subprocess
import sys
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path
from statistics import median, quantiles
from time import monotonic, perf_counter, process_time, sleep
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.serving import broker_on, measure_bare, wait_for_quiet
from benchmarks.worker_parts import PARTS
from benchmarks.worker_process import ROUND

import bucketq

PROCESS = Path(__file__).with_name("worker_process.py")
PAYLOAD = {"text": "x" * 89}
"""A hundred bytes of JSON."""
JOBS = 120_000
"""Four workers have them for seven seconds or more."""
PUSHES = 200
REPEATS = 3
PUSH_BATCH = 10_000
BATCH = 1000
OBJECT_BYTES = 1000
LATENCY_AIM = 2.0


class Round(NamedTuple):
    """The figures of some processes together."""

    jobs_per_s: float
    process_us: float
    broker_us: float


async def fill(url: str, count: int) -> None:
    """Push jobs."""
    async with bucketq.connect(url) as queue:
        for first in range(0, count, PUSH_BATCH):
            jobs = [bucketq.JobSpec(kind=ROUND, payload=PAYLOAD)] * min(PUSH_BATCH, count - first)
            await queue.push_many(jobs)


def start(*arguments: str) -> subprocess.Popen[str]:
    """Start a process, and wait until it is ready."""
    process = subprocess.Popen(
        [sys.executable, str(PROCESS), *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    line = process.stdout.readline() if process.stdout else ""
    if line.strip() != "ready":
        message = f"a process did not start: {line!r}"
        raise RuntimeError(message)
    return process


def finish(process: subprocess.Popen[str]) -> dict[str, Any]:
    """Wait for the result of a process."""
    out, _ = process.communicate("\n", timeout=600)
    found: dict[str, Any] = json.loads(out)
    return found


def measure_throughput(folder: Path, what: str, size: int, processes: int, jobs: int) -> Round:
    """Let some processes empty a queue."""
    with broker_on(folder, "file") as broker:
        asyncio.run(fill(broker.url, jobs))
        started = [start(what, broker.url, str(size)) for _ in range(processes)]
        cpu_s = broker.cpu_s()
        for process in started:
            if process.stdin:
                process.stdin.write("go\n")
                process.stdin.flush()
        found = [finish(process) for process in started]
        cpu_s = broker.cpu_s() - cpu_s
    done = sum(each["jobs"] for each in found)
    if done != jobs:
        message = f"{done} jobs were done, not {jobs}"
        raise RuntimeError(message)
    took_s = max(each["ended"] for each in found) - min(each["began"] for each in found)
    spent_s = sum(each["cpu_s"] for each in found)
    return Round(jobs / took_s, spent_s / jobs * 1e6, cpu_s / jobs * 1e6)


def show_throughput(folder: Path, jobs: int, repeats: int, patience_s: float) -> None:
    """Print the table of jobs per second."""
    print(f"{'throughput, no-op jobs':<30}{'jobs/s':>9}{'ratio':>7}{'us CPU':>8}{'broker':>8}")
    for processes in (1, 2, 4):
        alone: float | None = None
        for what, size in (("bare", BATCH), ("work", 10), ("work", 100)):
            rounds = []
            for _ in range(repeats):
                wait_for_quiet(patience_s)
                rounds.append(measure_throughput(folder, what, size, processes, jobs))
            best = max(rounds, key=lambda found: found.jobs_per_s)
            alone = alone or best.jobs_per_s
            name = "claim+complete alone" if what == "bare" else f"worker, concurrency {size}"
            print(
                f"{name + f' x{processes}':<30}{best.jobs_per_s:>9,.0f}"
                f"{best.jobs_per_s / alone:>7.2f}{best.process_us:>8.1f}{best.broker_us:>8.1f}"
            )
    print()


async def push_singly(url: str, count: int, pause_s: float) -> None:
    """Push one job after the other, each when the last one has certainly begun."""
    async with bucketq.connect(url) as queue:
        for _ in range(count):
            await queue.push(ROUND, monotonic())
            await asyncio.sleep(pause_s)


def show_latency(folder: Path, pushes: int, patience_s: float) -> None:
    """Print the table of the times from push to handler."""
    print(
        f"{'push to handler, idle worker':<30}{'p50 ms':>9}{'p99 ms':>9}{'PUT ms':>9}{'p50/PUT':>9}"
    )
    for store, pause_s in (("file", 0.02), ("slow", 0.2)):
        wait_for_quiet(patience_s)
        with broker_on(folder, store) as broker:
            process = start("wait", broker.url)
            sleep(1.0)
            asyncio.run(push_singly(broker.url, pushes, pause_s))
            sleep(0.5)
            late_s = finish(process)["late_s"]
        if len(late_s) != pushes:
            message = f"{len(late_s)} jobs began, not {pushes}"
            raise RuntimeError(message)
        bare_s = asyncio.run(measure_bare(folder, store, OBJECT_BYTES))
        cuts = quantiles(late_s, n=100)
        ratio = median(late_s) / bare_s
        verdict = "met" if ratio < LATENCY_AIM else "MISSED"
        print(
            f"{store:<30}{median(late_s) * 1e3:>9.2f}{cuts[98] * 1e3:>9.2f}{bare_s * 1e3:>9.2f}"
            f"{ratio:>8.2f}x  {LATENCY_AIM:g}x {verdict}"
        )
    print()


async def show_parts(count: int) -> None:
    """Print the time of each part."""
    print(f"{'parts of a worker, us a job':<46}{'CPU':>9}{'time':>9}")
    part: Callable[[int], Awaitable[None]]
    for name, part in PARTS.items():
        cpu_s, took_s = map(min, *[await _timed(part, count) for _ in range(REPEATS)])
        print(f"{name:<46}{cpu_s / count * 1e6:>9.1f}{took_s / count * 1e6:>9.1f}")


async def _timed(part: Callable[[int], Awaitable[None]], count: int) -> tuple[float, float]:
    begin, cpu = perf_counter(), process_time()
    await part(count)
    return process_time() - cpu, perf_counter() - begin


def main() -> None:
    """Measure, and print the tables."""
    parser = argparse.ArgumentParser(description="Measure workers.")
    parser.add_argument("--quick", action="store_true", help="fewer jobs, each row once")
    parser.add_argument("--dir", type=Path, default=Path("/var/tmp"), help="a folder on a disk")
    parser.add_argument(
        "--patience",
        type=float,
        default=0.0,
        metavar="SECONDS",
        help="how long to wait for a quiet machine before each run",
    )
    parser.add_argument("--parts", action="store_true", help="only the parts of a worker")
    options = parser.parse_args()
    print(
        f"Python {platform.python_version()}, {os.cpu_count()} x {platform.machine()}; payloads of "
        f"100 bytes; load {os.getloadavg()[0]:.1f}\n"
    )
    jobs, repeats = (JOBS // 4, 1) if options.quick else (JOBS, REPEATS)
    if options.parts:
        asyncio.run(show_parts(jobs // 4))
        return
    with tempfile.TemporaryDirectory(dir=options.dir, ignore_cleanup_errors=True) as name:
        folder = Path(name).resolve()
        show_throughput(folder, jobs, repeats, options.patience)
        show_latency(folder, PUSHES // 4 if options.quick else PUSHES, options.patience)
    asyncio.run(show_parts(jobs // 8))


if __name__ == "__main__":
    main()
