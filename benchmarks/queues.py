"""The throughput of a queue on a local file, compared with its disk.

Run it with ``python benchmarks/queues.py``. Each row is one kind of queue with a number of
concurrent callers, which push as fast as they are answered, or claim a job and complete it. The
reference is how often a file of the same size can be replaced and synced, measured right before and
after: a direct queue cannot be faster than that, and group commit is, because its callers share a
write. A cycle of claim and complete takes two writes.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
from collections.abc import Awaitable, Callable
from itertools import product
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import bucketq
from bucketq.queue.queue import Queue
from bucketq.store.local import LocalStore

CALLERS = (1, 16, 64)
MODES = ("direct", "embedded")
NAMES = {"direct": "direct", "embedded": "group commit"}
FILLED = 1_000
PAYLOAD = {"text": "x" * 89}
"""A hundred bytes of JSON."""
BARE_WRITES = 15

Work = Callable[[Queue[Any]], Awaitable[None]]


async def push(queue: Queue[Any]) -> None:
    """Push a job."""
    await queue.push("index", PAYLOAD)


async def claim_and_complete(queue: Queue[Any]) -> None:
    """Claim and complete a job."""
    for job in await queue.claim():
        await queue.complete(job)


async def measure_rate(queue: Queue[Any], work: Work, callers: int, run_s: float) -> float:
    """Return how often a second the callers, each one call after another, do the work."""
    done = 0
    begin = perf_counter()

    async def call() -> None:
        nonlocal done
        while perf_counter() - begin < run_s:
            await work(queue)
            done += 1

    await asyncio.gather(*(call() for _ in range(callers)))
    return done / (perf_counter() - begin)


async def measure_bare(folder: Path, body: bytes) -> list[float]:
    """Return how long it takes to replace a file, for each of several times."""
    store = LocalStore(folder)
    etag = await store.put("bare.json", body)
    took_s = []
    for _ in range(BARE_WRITES):
        begin = perf_counter()
        etag = await store.replace("bare.json", body, etag)
        took_s.append(perf_counter() - begin)
    await store.close()
    return took_s


async def fill(queue: Queue[Any], count: int) -> None:
    """Push jobs that wait to be claimed."""
    await queue.push_many([bucketq.JobSpec(kind="index", payload=PAYLOAD)] * count)


async def measure(folder: Path, mode: Any, callers: int, run_s: float) -> list[str]:
    """Measure one kind of queue with a number of callers; return a row of the table."""
    path = folder / f"{mode}-{callers}.json"
    row = [NAMES[mode], str(callers)]
    for work, ahead in ((push, FILLED), (claim_and_complete, FILLED * callers)):
        async with bucketq.connect(path.as_uri(), mode=mode) as queue:
            await fill(queue, min(ahead, 10 * FILLED))
            bare_s = await measure_bare(folder, read(path))
            rate = await measure_rate(queue, work, callers, run_s)
        bare_s += await measure_bare(folder, read(path))
        limit = 1 / median(bare_s)
        row += [f"{rate:.0f}", f"{limit:.0f}", f"{rate / limit:.2f}x"]
        path.unlink()
    return row


def read(path: Path) -> bytes:
    """Read a file whole."""
    return path.read_bytes()


def show(rows: list[list[str]]) -> str:
    """Lay out the table: the name to the left, figures to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])]) for row in rows
    )


async def main() -> None:
    """Measure, and print the table."""
    parser = argparse.ArgumentParser(description="Measure queues on a local file.")
    parser.add_argument("--seconds", type=float, default=2.0, help="how long each run takes")
    parser.add_argument("--dir", type=Path, default=Path("/var/tmp"), help="a folder on a disk")
    options = parser.parse_args()
    rows = [["queue", "callers", "pushes/s", "writes/s", "", "cycles/s", "writes/s", ""]]
    with tempfile.TemporaryDirectory(dir=options.dir) as name:
        for mode, callers in product(MODES, CALLERS):
            rows += [await measure(Path(name), mode, callers, options.seconds)]
    print(show(rows))


if __name__ == "__main__":
    asyncio.run(main())
