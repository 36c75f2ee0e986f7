"""How many requests a job costs in a queue that has little to do, and so shares no commits.

Run it with ``python benchmarks/quiet.py``. Jobs come one by one, at random, and a worker that waits
for them takes half a second for each. A process commits for both, as a broker does, on storage that
takes 50 ms to write and 30 to read. Time is simulated, so it ends at once and always prints the
same.
"""

from __future__ import annotations

import argparse
import asyncio
import random
from collections import Counter
from functools import partial
from typing import Any

from bucketq.archive.archive_layout import Layout
from bucketq.archive.writer import ArchiveWriter
from bucketq.commit.group_committer import GroupCommitter
from bucketq.commit.objects.register import Register
from bucketq.queue.queue import Queue
from bucketq.store.base import StoredObject
from bucketq.store.memory import MemoryStore
from bucketq.testing.simulated_clock import SimulatedClock
from bucketq.testing.virtual_loop import VirtualLoop, run

PERIODS_S = (0.2, 1.0, 5.0, 20.0)
_KEY, _KIND = "queue.json", "mail"
_WRITE_S, _READ_S = 0.05, 0.03
_HANDLER_S = 0.5
_WAIT_S = 60.0
_LINE = "{:>18} {:>9} {:>9} {:>9} {:>9}"


class CountingStore(MemoryStore):
    """Storage in memory that takes time, and counts."""

    def __init__(self) -> None:
        """Begin empty."""
        super().__init__("quiet")
        self.counts = Counter[str]()

    async def replace(self, key: str, body: bytes, etag: str) -> str:
        """Write the queue's object."""
        self.counts["commits"] += 1
        await asyncio.sleep(_WRITE_S)
        return await super().replace(key, body, etag)

    async def put(self, key: str, body: bytes) -> str:
        """Write a file of the archive."""
        self.counts["files"] += 1
        await asyncio.sleep(_WRITE_S)
        return await super().put(key, body)

    async def get_if_changed(self, key: str, etag: str) -> StoredObject | None:
        """Look whether the queue's object has changed."""
        self.counts["looks"] += 1
        await asyncio.sleep(_READ_S)
        return await super().get_if_changed(key, etag)


async def measure(loop: VirtualLoop, period_s: float, jobs: int) -> Counter[str]:
    """Return how often the storage was asked for so many jobs."""
    store, clock = CountingStore(), SimulatedClock(loop)
    register = Register(store, _KEY, "quiet", clock)
    archive = ArchiveWriter(store, Layout.of(store.url, _KEY))
    committer = GroupCommitter(register, clock, archive=archive)
    opening: Queue[Any]
    opening = Queue(committer, clock, payload_type=Any, worker="worker", timeout_s=60.0)
    async with opening as queue:
        working = loop.create_task(_work(queue, jobs))
        await _push(queue, period_s, jobs)
        await working
        return store.counts


async def _push(queue: Queue[Any], period_s: float, jobs: int) -> None:
    pause = random.Random(1)
    for number in range(jobs):
        await asyncio.sleep(pause.expovariate(1 / period_s))
        await queue.push(_KIND, number)


async def _work(queue: Queue[Any], jobs: int) -> None:
    done = 0
    while done < jobs:
        for job in await queue.claim(_KIND, wait_s=_WAIT_S):
            await asyncio.sleep(_HANDLER_S)
            await queue.complete(job)
            done += 1


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description="Count the requests of a queue with little to do.")
    parser.add_argument("--jobs", type=int, default=300)
    jobs = parser.parse_args().jobs
    print(_LINE.format("for each job", "commits", "files", "PUTs", "GETs"))
    for period_s in PERIODS_S:
        counts = run(partial(measure, period_s=period_s, jobs=jobs))
        commits, files, looks = (counts[name] / jobs for name in ("commits", "files", "looks"))
        figures = (f"{each:.2f}" for each in (commits, files, commits + files, looks))
        print(_LINE.format(f"one every {period_s:g} s", *figures))


if __name__ == "__main__":
    main()
