"""The rows of ``broker.py``: what is measured, and how it is run once."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Awaitable, Callable
from itertools import product
from time import perf_counter, process_time
from typing import Any, NamedTuple

from benchmarks.serving import Broker, machine_s

import bucketq
from bucketq.queue.queue import Queue

CALLERS = (1, 64, 1000)
JOBS = 10_000
MANY = 100
"""How many jobs a call of a row ``in bulk`` takes."""
LONELY_JOBS = {"file": 2_000, "slow": 200}
"""For a single caller with single jobs, which would take a quarter of an hour for all."""
PAYLOAD = {"text": "x" * 89}
"""A hundred bytes of JSON."""


class Row(NamedTuple):
    """What is measured."""

    store: str
    work: str
    callers: int
    per_call: int
    jobs: int

    @property
    def name(self) -> str:
        """What it is called on the command line."""
        verb = "push" if self.work == "push" else "cycle"
        return f"{self.store}-{verb}-{self.callers}{'-bulk' if self.per_call > 1 else ''}"


class Run(NamedTuple):
    """The figures of one run."""

    took_s: float
    latencies_s: list[float]
    writes: int
    mean_bytes: int
    broker_cpu_s: float
    client_cpu_s: float
    others: float


Work = Callable[[Queue[Any], int, list[float]], Awaitable[None]]
Hook = Callable[[], None]


def no_more() -> None:
    """Do nothing."""


async def push(queue: Queue[Any], per_call: int, took_s: list[float]) -> None:
    """Push jobs in one call."""
    begin = perf_counter()
    if per_call == 1:
        await queue.push("index", PAYLOAD)
    else:
        await queue.push_many([bucketq.JobSpec(kind="index", payload=PAYLOAD)] * per_call)
    took_s.append(perf_counter() - begin)


async def claim_and_complete(queue: Queue[Any], per_call: int, took_s: list[float]) -> None:
    """Claim and complete jobs, in two calls."""
    begin = perf_counter()
    jobs = await queue.claim(limit=per_call)
    between = perf_counter()
    if len(jobs) != per_call:
        message = f"{len(jobs)} jobs were claimed, not {per_call}"
        raise RuntimeError(message)
    if per_call == 1:
        await queue.complete(jobs[0])
    else:
        await queue.complete_many(jobs)
    took_s += (between - begin, perf_counter() - between)


WORK: dict[str, Work] = {"push": push, "claim+complete": claim_and_complete}


async def work_together(queue: Queue[Any], row: Row) -> list[float]:
    """Run all calls of a row; return how long each took."""
    took_s: list[float] = []
    left = row.jobs // row.per_call

    async def call() -> None:
        nonlocal left
        while left > 0:
            left -= 1
            await WORK[row.work](queue, row.per_call, took_s)

    await asyncio.gather(*(call() for _ in range(row.callers)))
    return took_s


async def fill(queue: Queue[Any], count: int) -> None:
    """Push jobs that wait to be claimed."""
    specs = [bucketq.JobSpec(kind="index", payload=PAYLOAD)] * min(count, 1000)
    for _ in range(0, count, len(specs)):
        await queue.push_many(specs)


async def measure_once(
    row: Row, broker: Broker, begins: Hook = no_more, ends: Hook = no_more
) -> Run:
    """Run a row once, on a new broker; call the hooks around it."""
    async with bucketq.connect(broker.url, worker="bench") as queue:
        warm_up = row._replace(callers=16, per_call=1, jobs=32)
        for work in WORK:
            await work_together(queue, warm_up._replace(work=work))
        if row.work != "push":
            await fill(queue, row.jobs)
        gc.collect()
        sizes, version = [broker.path.stat().st_size], broker.version()
        broker_s, client_s, (busy_s, all_s) = broker.cpu_s(), process_time(), machine_s()
        begins()
        begin = perf_counter()
        latencies_s = await work_together(queue, row)
        took_s = perf_counter() - begin
        ends()
        broker_s, client_s = broker.cpu_s() - broker_s, process_time() - client_s
        busy_s, all_s = (now - then for now, then in zip(machine_s(), (busy_s, all_s), strict=True))
        sizes.append(broker.path.stat().st_size)
        writes = broker.version() - version
    others = max(0.0, busy_s - broker_s - client_s) / all_s if all_s else 0.0
    return Run(took_s, latencies_s, writes, sum(sizes) // 2, broker_s, client_s, others)


def rows_of(scale: int) -> list[Row]:
    """All rows, with a part of their jobs."""
    rows = []
    for store, per_call, callers, work in product(("file", "slow"), (1, MANY), CALLERS, WORK):
        jobs = JOBS // scale
        if callers == per_call == 1:
            jobs = LONELY_JOBS[store] // scale
        if per_call * callers > JOBS:
            jobs = per_call * callers  # One call for each; with less, some would have nothing.
        rows.append(Row(store, work, callers, per_call, jobs))
    return rows
