"""The profile of ``broker.py``: where the time of a row goes, at the client and at the broker.

``profile`` prints the functions of one row, and ``budget`` a table of the parts of several.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Sequence
from pathlib import Path
from statistics import median

import msgspec
from benchmarks.broker_processes import Sampler, Samples
from benchmarks.broker_rows import Row, Run, measure_once
from benchmarks.serving import broker_on, wait_for

PROFILE_LINES = 40
PROFILE_S = 15.0
PROFILE_RUNS = 6
BUDGET = ("file-push-64", "file-cycle-64", "file-push-64-bulk", "file-cycle-64-bulk")
"""One job a call and a hundred, by 64 callers: what most of the aims are about."""
PARTS = {
    "bucketq/queue/": "verbs",
    "bucketq/client/": "verbs",
    "bucketq/rpc/": "messages",
    "bucketq/broker/": "connections and inbox",
    "bucketq/model/": "model",
    "bucketq/commit/": "group commit and upkeep",
    "bucketq/codec/": "object and segments",
    "bucketq/archive/": "archive",
    "bucketq/store/": "store",
    "bucketq/": "other modules",
    "selectors.py": "other threads: files, gRPC",
    "asyncio/": "asyncio",
}
"""The first that a path contains names its part."""


async def profile_once(row: Row, folder: Path) -> tuple[Run, Samples, Samples]:
    """Run a row with both processes, client and broker, under a profiler."""
    path, here = folder / "profile.json", Sampler()
    path.unlink(missing_ok=True)
    with broker_on(folder, row.store, path) as broker:

        def begins() -> None:
            broker.process.send_signal(signal.SIGUSR1)
            here.start()

        def ends() -> None:
            here.stop()
            broker.process.send_signal(signal.SIGUSR2)

        run = await measure_once(row, broker, begins, ends)
        wait_for(path)
    return run, here.stop(), msgspec.json.decode(path.read_bytes(), type=Samples)


def profiled(row: Row, folder: Path) -> tuple[list[Run], Samples, Samples]:
    """Profile a row several times: the runs, and the samples of client and broker."""
    client, broker = Samples(), Samples()
    runs: list[Run] = []
    while sum(run.took_s for run in runs) < PROFILE_S and len(runs) < PROFILE_RUNS:
        run, of_client, of_broker = asyncio.run(profile_once(row, folder))
        client.add(of_client)
        broker.add(of_broker)
        runs.append(run)
    return runs, client, broker


def profile(row: Row, folder: Path) -> None:
    """Profile a row, and print the functions in which the time went."""
    runs, client, broker = profiled(row, folder)
    rate = median(row.jobs / run.took_s for run in runs)
    print(f"{row.name}: {rate:,.0f} jobs/s while profiled")
    show_samples("client", client, median(run.client_cpu_s for run in runs) / row.jobs)
    show_samples("broker", broker, median(run.broker_cpu_s for run in runs) / row.jobs)


def budget(rows: Sequence[Row], folder: Path) -> None:
    """Profile rows, and print the microseconds of CPU that each part takes for a job."""
    columns: list[dict[tuple[str, str], float]] = []
    for row in rows:
        runs, *samples = profiled(row, folder)
        seconds = [
            median(run.client_cpu_s for run in runs),
            median(run.broker_cpu_s for run in runs),
        ]
        column = dict[tuple[str, str], float]()
        for who, cpu_s, of in zip(("client", "broker"), seconds, samples, strict=True):
            for part, share in parts_of(of).items():
                column[who, part] = 1e6 * share * cpu_s / row.jobs
        columns.append(column)
    width = max(len(name) for name in PARTS.values()) + 8
    print(f"{'us of CPU a job':<{width}}" + "".join(f"{row.name:>20}" for row in rows))
    for who in ("client", "broker"):
        lines = dict.fromkeys(part for column in columns for name, part in column if name == who)
        for part in sorted(
            lines, key=lambda part: -sum(col.get((who, part), 0) for col in columns)
        ):
            figures = "".join(f"{column.get((who, part), 0.0):>20.1f}" for column in columns)
            print(f"{who} {part:<{width - 7}}{figures}")
        sums = [sum(us for (name, _), us in column.items() if name == who) for column in columns]
        print(f"{who + ' in all':<{width}}" + "".join(f"{us:>20.1f}" for us in sums))


def parts_of(samples: Samples) -> dict[str, float]:
    """The share of each part, by the file in which the time was spent."""
    shares = dict[str, float]()
    for where, lines in samples.own.items():
        path = where.split(" ", 1)[0]
        part = next((name for start, name in PARTS.items() if start in path), "other packages")
        shares[part] = shares.get(part, 0.0) + sum(lines.values()) / max(1, samples.count)
    return shares


def show_samples(who: str, samples: Samples, job_s: float) -> None:
    """Print the functions that took most of a process's time, in microseconds for each job."""
    print(f"\n{who}: {1e6 * job_s:.0f} us of CPU a job\n  own us  with callees  at")
    sample_us = 1e6 * job_s / max(1, samples.count)
    worst = sorted(samples.own, key=lambda where: -sum(samples.own[where].values()))
    for where in worst[:PROFILE_LINES]:
        lines, (path, name) = samples.own[where], where.split(" ", 1)
        line = max(lines, key=lambda line: lines[line])
        own, total = sum(lines.values()) * sample_us, samples.total[where] * sample_us
        print(f"{own:>8.1f}  {total:>12.1f}  {path}:{line} {name}")
