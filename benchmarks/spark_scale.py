"""What a day of many jobs costs on Spark: commits, requests, bytes and money, by extrapolation.

Run it with ``python benchmarks/spark_scale.py``; it needs no Spark, and takes half a minute. It
pushes jobs into a queue in memory, takes them with the code of a stream, or claims and completes
them as handlers on executors are served, archives them, and counts what reaches the store. That
is linear in the number of batches, so a day is that many times more. The prices are those of
``tools/storage_cost.py``.

Executors make none of these requests: jobs travel to them with their tasks, and back. Exceptions
are large payloads, and the rows of a bulk write, which each task puts into segments of its own. So
the number of executors matters for the last row alone.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil
from pathlib import Path
from time import process_time
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.counting_store import CountingStore
from benchmarks.queues import PAYLOAD
from tools.storage_cost import PRICES

import bucketq
from bucketq.codec.segment_file import SEGMENT_BYTES
from bucketq.queue.queue import Queue
from bucketq.spark.format_options import StreamOptions, stream_options
from bucketq.spark.stream.micro_batches import MicroBatches
from bucketq.store.memory import MemoryStore

DAY_S = 86_400
JOBS, EXECUTORS = 100_000_000, 1_000
BATCH, BATCHES = 10_000, 10
"""A default micro-batch, and how many are measured after a first one."""
BULK_LINE_BYTES, BULK_LINE_US = 131, 0.6
"""What a job of a bulk write takes, in bytes and CPU, as measured by ``benchmarks/spark.py``."""
KIND = "index"


class CommitCounter(CountingStore):
    """Also counts the commits: each replaces the object of the queue."""

    commits = 0

    async def replace(self, key: str, body: bytes, etag: str) -> str:
        """Replace an object."""
        self.commits += 1
        return await super().replace(key, body, etag)


@dataclass(frozen=True)
class Cost:
    """What some jobs cost."""

    what: str
    jobs: int
    commits: float
    writes: float
    """Also those of commits."""
    reads: float
    transferred_bytes: float
    cpu_s: float

    def times(self, factor: float) -> Cost:
        """Return what so many times as many jobs cost."""
        return Cost(
            self.what,
            round(self.jobs * factor),
            self.commits * factor,
            self.writes * factor,
            self.reads * factor,
            self.transferred_bytes * factor,
            self.cpu_s * factor,
        )


class Meter:
    """Counts what reaches a store between two moments."""

    def __init__(self, store: CommitCounter) -> None:
        self._store = store
        self._before = self._now()

    def _now(self) -> tuple[float, ...]:
        store = self._store
        counts = (store.commits, store.writes, store.reads, store.transferred_bytes)
        return (*counts, process_time())

    def lap(self, what: str, jobs: int) -> Cost:
        """Return what was done since the last lap."""
        before, self._before = self._before, self._now()
        commits, writes, reads, size, cpu_s = (
            now - then for now, then in zip(self._before, before, strict=True)
        )
        return Cost(what, jobs, commits, writes, reads, size, cpu_s)


async def push(queue: Queue[Any], batches: int) -> None:
    """Push as a stream does that writes to a queue: each micro-batch in one call."""
    for _ in range(batches):
        await queue.push_many([bucketq.JobSpec(kind=KIND, payload=PAYLOAD)] * BATCH)


async def take(micro: MicroBatches, start: int, batches: int) -> int:
    """Claim micro-batches, read and acknowledge them as a stream that lags behind does.

    Returns the number of the last one.
    """
    for _ in range(batches):
        end = await micro.latest(start, BATCH)
        found = await micro.jobs(start, end)
        if len(found) != BATCH:
            message = f"batch {end} has {len(found)} jobs"
            raise RuntimeError(message)
        await micro.prepare_next()
        await asyncio.sleep(0)  # It begins at once, and Spark has work to do.
        start = end
    return start


async def handle(queue: Queue[Any], batches: int) -> None:
    """Claim and complete as the driver does for handlers on executors: 5,000 jobs at once."""
    for _ in range(batches * 2):
        jobs = await queue.claim(KIND, limit=BATCH // 2)
        await queue.complete_many([(job, None) for job in jobs])


def options() -> StreamOptions:
    """Return the options of the stream."""
    return stream_options({"path": "file:///not/used/queue.json", "consumer": "scale"})


async def measure(batches: int = BATCHES) -> list[Cost]:
    """Measure each way with so many batches."""
    store = CommitCounter(MemoryStore("scale"))
    jobs, found = batches * BATCH, list[Cost]()
    async with bucketq.connect("queue.json", store=store, mode="direct") as queue:
        # Archiving is counted by itself, and not whenever its time has come.
        await queue.configure(archive_after_s=3600.0)
        await push(queue, 1)
        meter = Meter(store)
        await push(queue, 2 * batches)
        found.append(meter.lap("push, by a stream of micro-batches", 2 * jobs).times(0.5))
        async with MicroBatches(queue, options()) as micro:
            start = await take(micro, micro.first(), 1)
            meter.lap("", 0)
            start = await take(micro, start, batches)
            found.append(meter.lap("take by a stream, and acknowledge", jobs))
            await queue.flush_archive()
            found.append(meter.lap("archive", jobs))
        await handle(queue, batches - 1)
        found.append(meter.lap("claim and complete for handlers", jobs - BATCH))
    return found


def bulk(jobs: int, executors: int) -> Cost:
    """Compute what one write of all jobs costs, with a task for each executor."""
    each = ceil(jobs / executors) * BULK_LINE_BYTES
    segments = executors * ceil(each / SEGMENT_BYTES)
    return Cost(
        f"push, in one write by {executors:,} executors",
        jobs,
        commits=2,
        writes=segments + 2,
        reads=executors,
        transferred_bytes=each * executors,
        cpu_s=jobs * BULK_LINE_US / 1e6,
    )


def table(found: list[Cost], jobs: int, executors: int) -> Iterator[str]:
    """Yield the lines of a table in Markdown."""
    yield (
        f"| {jobs:,} jobs a day | Commits | a second | Writes | Reads | GB | hours of CPU | "
        f"{' | '.join(PRICES)} |"
    )
    yield "|---" + "|--:" * (6 + len(PRICES)) + "|"
    for cost in (*(each.times(jobs / each.jobs) for each in found), bulk(jobs, executors)):
        dollars = (
            (cost.writes * price.put + cost.reads * price.get) / 1000 for price in PRICES.values()
        )
        yield (
            f"| {cost.what} | {cost.commits:,.0f} | {cost.commits / DAY_S:.2f} | "
            f"{cost.writes:,.0f} | {cost.reads:,.0f} | {cost.transferred_bytes / 1e9:,.0f} | "
            f"{cost.cpu_s / 3600:.2f} | {' | '.join(f'${each:.2f}' for each in dollars)} |"
        )


def main() -> None:
    """Measure, and print the table."""
    parser = argparse.ArgumentParser(description="What a day of many jobs costs on Spark.")
    parser.add_argument("--jobs", type=int, default=JOBS, help=f"jobs a day; {JOBS:,}")
    parser.add_argument("--executors", type=int, default=EXECUTORS, help=f"{EXECUTORS:,}")
    parser.add_argument("--batches", type=int, default=BATCHES, help="how many are measured")
    given = parser.parse_args()
    found = asyncio.run(measure(given.batches))
    print("\n".join(table(found, given.jobs, given.executors)))


if __name__ == "__main__":
    main()
