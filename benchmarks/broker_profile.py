"""The profile of ``broker.py``: where the time of a row goes, at the client and at the broker."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path
from statistics import median

import msgspec
from benchmarks.broker_processes import Sampler, Samples
from benchmarks.broker_rows import Row, Run, measure_once
from benchmarks.serving import broker_on, wait_for

PROFILE_LINES = 40
PROFILE_S = 15.0
PROFILE_RUNS = 6


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


def profile(row: Row, folder: Path) -> None:
    """Profile a row several times, and print where the time went."""
    client, broker = Samples(), Samples()
    runs: list[Run] = []
    while sum(run.took_s for run in runs) < PROFILE_S and len(runs) < PROFILE_RUNS:
        run, of_client, of_broker = asyncio.run(profile_once(row, folder))
        client.add(of_client)
        broker.add(of_broker)
        runs.append(run)
    rate = median(row.jobs / run.took_s for run in runs)
    print(f"{row.name}: {rate:,.0f} jobs/s while profiled")
    show_samples("client", client, median(run.client_cpu_s for run in runs) / row.jobs)
    show_samples("broker", broker, median(run.broker_cpu_s for run in runs) / row.jobs)


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
