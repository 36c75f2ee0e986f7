"""The throughput and latency of a broker, compared with its store and with bare gRPC.

Run it with ``make bench`` or ``python benchmarks/broker.py``; ``--quick`` takes a minute. A broker
runs in a separate process (``bucketq serve``), and one client process has 1, 64 or 1,000 callers,
each of which makes one call after another. They push jobs, or claim and complete them, one or a
hundred per call, mostly 10,000 jobs for each row, beginning with an empty queue.

There are two stores: ``file``, synced, and ``slow``, a file whose every request takes 50 ms longer.
No address names such a store, so this benchmark starts that broker with a program of its own; a
proxy in front of an object-store server would add noise.

Machines differ and are shared, so each row has a reference: the bare PUT, the median time that the
same store takes for an object of the row's mean size, measured right after it. No call is answered
before a write has landed, so no call can be faster. The lines above the table show the rate of a
bare gRPC stream between two processes, with messages of the same sizes. CPU is that of broker and
client for each job; ``others`` is the share of the machine that other programs used.

``claim+complete`` counts jobs for its rate, and calls (two for each job) for its latency.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import platform
import signal
import sys
import tempfile
from contextlib import AsyncExitStack
from fnmatch import fnmatch
from pathlib import Path
from statistics import median, quantiles
from time import perf_counter
from typing import Any

import grpc.aio

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.broker_processes import ECHO, echo_message
from benchmarks.broker_profile import BUDGET, budget, profile
from benchmarks.broker_rows import MANY, Row, Run, measure_once, rows_of
from benchmarks.serving import broker_on, echo_in, measure_bare, wait_for_quiet

import bucketq
from bucketq.queue.queue import Queue

SHORT_S = 5.0
REPEATS = 3
"""How often a row is measured that takes less than that; the table shows the run in which other
programs used the machine least."""
ECHO_S = 1.0
IDLE_CLIENTS = 1000
IDLE_S = 20.0

MESSAGES = {
    ("push", 1): [(188, 39)],
    ("push", MANY): [(14_048, 2_813)],
    ("claim+complete", 1): [(92, 370), (108, 10)],
    ("claim+complete", MANY): [(92, 35_715), (6_448, 113)],
}
"""The bytes of the messages, and of their answers, that a row's calls take."""

RATE_AIMS = {
    ("push", 64, 1): 6_000,
    ("claim+complete", 64, 1): 3_000,
    ("push", 1000, 1): 15_000,
    # Two operations a job.
    ("claim+complete", 1000, 1): 7_500,
    ("push", 64, MANY): 100_000,
    ("claim+complete", 64, MANY): 40_000,
}
P50_AIMS = {64: 1.3, 1000: 1.5}
P99_AIM = 2.5
MOST_IDLE_CPU = 0.05


# Yardsticks.


async def measure_echo(address: str, sizes: list[tuple[int, int]], run_s: float) -> list[float]:
    """Return how long it takes to exchange the messages, one after the other."""
    messages, took_s = [echo_message(*each) for each in sizes], []
    async with grpc.aio.insecure_channel(address) as channel:
        method: Any = channel.stream_stream(ECHO, None, None)
        stream = method()
        over = perf_counter() + run_s
        while perf_counter() < over:
            begin = perf_counter()
            for message in messages:
                await stream.write(message)
                await stream.read()
            took_s.append(perf_counter() - begin)
        await stream.done_writing()
        await stream.code()
    return took_s


async def show_echo(address: str, run_s: float) -> None:
    """Print the rate of a bare gRPC stream."""
    await measure_echo(address, [(1, 1)], run_s / 4)
    for (work, per_call), sizes in MESSAGES.items():
        took_s = await measure_echo(address, sizes, run_s)
        rate = per_call * len(took_s) / sum(took_s)
        name = f"{work}, {per_call} a message"
        print(f"bare gRPC, {name:<31} {rate:>9,.0f}/s {1000 * median(took_s):>8.2f} ms")
    print()


# The table.

_LINE = "{:<20} {:>7} {:>7} {:>7} {:>7} {:>6} {:>6} {:>6} {:>6} {:>6} {:>6} {:>6}  {:<18} {}"
_HEADS = "row,jobs,jobs/s,p50,p99,writes,PUT,p50,p99,broker,client,others,aim,"
_UNITS = ",,,ms,ms,,ms,/PUT,/PUT,us CPU,us CPU,CPU,,"


def show(*cells: str) -> None:
    """Print a line of the table."""
    print(_LINE.format(*cells).rstrip(), flush=True)


def judge(row: Row, rate: float, p50: float, p99: float) -> tuple[str, str]:
    """Return a row's target, and whether it is met; latencies are multiples of the bare write."""
    if row.store == "slow":
        most = P50_AIMS.get(row.callers) if row.per_call == 1 else None
        if most is None:
            return "", ""
        met = p50 <= most and p99 <= P99_AIM
        return f"p50 {most:g}x, p99 {P99_AIM:g}x", "met" if met else "MISSED"
    aim = RATE_AIMS.get((row.work, row.callers, row.per_call))
    if aim is None:
        return "", ""
    return f"{aim:,} jobs/s", "met" if rate >= aim else "MISSED"


async def measure(row: Row, folder: Path, repeats: int, patience_s: float) -> None:
    """Measure a row, several times if that is fast, and print its line."""
    runs: list[Run] = []
    while not runs or (runs[-1].took_s < SHORT_S and len(runs) < repeats):
        wait_for_quiet(patience_s)
        with broker_on(folder, row.store) as broker:
            runs.append(await measure_once(row, broker))
    run = min(runs, key=lambda run: run.others)
    bare_s = await measure_bare(folder, row.store, run.mean_bytes)
    rate = row.jobs / run.took_s
    percents = quantiles(run.latencies_s, n=100)
    p50_s, p99_s = percents[49], percents[98]
    aim, verdict = judge(row, rate, p50_s / bare_s, p99_s / bare_s)
    show(
        row.name,
        f"{row.jobs:,}",
        f"{rate:,.0f}",
        f"{1000 * p50_s:.2f}",
        f"{1000 * p99_s:.2f}",
        f"{run.writes:,}",
        f"{1000 * bare_s:.2f}",
        f"{p50_s / bare_s:.2f}x",
        f"{p99_s / bare_s:.2f}x",
        f"{1e6 * run.broker_cpu_s / row.jobs:.0f}",
        f"{1e6 * run.client_cpu_s / row.jobs:.0f}",
        f"{run.others:.0%}",
        aim,
        verdict,
    )


# Idle clients.


async def measure_idle(folder: Path, clients: int, run_s: float) -> None:
    """Let clients wait, each on its own connection; print what that costs the broker."""
    with broker_on(folder, "file") as broker:
        async with AsyncExitStack() as stack:
            gate = asyncio.Semaphore(16)

            async def connect() -> Queue[Any]:
                async with gate:
                    return await stack.enter_async_context(bucketq.connect(broker.url))

            begin = perf_counter()
            queues = await asyncio.gather(*(connect() for _ in range(clients)))
            connected_s = perf_counter() - begin
            claims = [asyncio.create_task(queue.claim(wait_s=run_s + 10)) for queue in queues]
            await asyncio.sleep(3)
            version, broker_s, begin = broker.version(), broker.cpu_s(), perf_counter()
            await asyncio.sleep(run_s)
            took_s = perf_counter() - begin
            share, writes = (broker.cpu_s() - broker_s) / took_s, broker.version() - version
            early = sum(claim.done() for claim in claims)
            for claim in claims:
                claim.cancel()
            await asyncio.gather(*claims, return_exceptions=True)
    verdict = "met" if share < MOST_IDLE_CPU and not writes and not early else "MISSED"
    print(
        f"\n{clients:,} idle clients, each waiting for a job over its own connection (made in "
        f"{connected_s:.1f} s): {share:.1%} of a core over {took_s:.0f} s, {writes} writes, "
        f"{early} claims ended early   aim: < {MOST_IDLE_CPU:.0%} and 0   {verdict}"
    )


def main() -> None:
    """Measure, and print the table."""
    parser = argparse.ArgumentParser(description="Measure a broker and its clients.")
    parser.add_argument("--quick", action="store_true", help="fewer jobs, each row once")
    parser.add_argument("--only", default="*", metavar="PATTERN", help="rows, as in 'file-*-64'")
    parser.add_argument("--profile", metavar="ROW", help="print where the time of one row goes")
    parser.add_argument("--budget", action="store_true", help="print what each part takes of a job")
    parser.add_argument("--dir", type=Path, default=Path("/var/tmp"), help="a folder on a disk")
    parser.add_argument(
        "--patience",
        type=float,
        default=0.0,
        metavar="SECONDS",
        help="how long to wait for a quiet machine before each run",
    )
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # Not without the other processes.
    rows = rows_of(5 if options.quick else 1)
    names = [row.name for row in rows]
    if options.profile and options.profile not in names:
        parser.error(f"no row {options.profile!r}: there are {', '.join(names)}")
    with tempfile.TemporaryDirectory(dir=options.dir, ignore_cleanup_errors=True) as name:
        folder = Path(name).resolve()
        if options.profile:
            profile(rows[names.index(options.profile)], folder)
            return
        if options.budget:
            budget([rows[names.index(name)] for name in BUDGET], folder)
            return
        print(
            f"Python {platform.python_version()}, {os.cpu_count()} x {platform.machine()}, "
            f"grpcio {grpc.__version__}; payloads of 100 bytes; load {os.getloadavg()[0]:.1f}\n"
        )
        with echo_in(folder) as address:
            asyncio.run(show_echo(address, ECHO_S / 4 if options.quick else ECHO_S))
        show(*_HEADS.split(","))
        show(*_UNITS.split(","))
        for row in rows:
            if fnmatch(row.name, options.only):
                repeats = 1 if options.quick else REPEATS
                asyncio.run(measure(row, folder, repeats, options.patience))
        if fnmatch("idle", options.only):
            wait_for_quiet(options.patience)
            scale = 5 if options.quick else 1
            asyncio.run(measure_idle(folder, IDLE_CLIENTS // scale, IDLE_S / scale))


if __name__ == "__main__":
    main()
