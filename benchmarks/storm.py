"""What happens to a deep queue if very many of its jobs change: how large its object becomes.

Run it with ``python benchmarks/storm.py``: a million jobs are pushed, all of them die, are
redriven, fail once, and are cancelled, half of them in the order of the pushes and the others in
any order. The object must stay below four times ``spill_bytes``. ``--jobs 100000`` chooses another
number, ``--only die redrive`` some of the operations.

``--spread`` pushes jobs of 1,000 kinds, with random priorities and times to run at, and works them
off: what is written of segments, merges included, must stay below 2 KB a job.

Each line is one operation: how long it took, the largest object that was written during it, the
object when nothing was left to do, and what was written of segments, in all and for each job.
The exit code is 1 if a limit was exceeded.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import resource
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from time import perf_counter
from typing import Any

import bucketq
from bucketq.queue.queue import Queue
from bucketq.store.base import ObjectInfo, ObjectStore, StoredObject
from bucketq.store.url import open_store

CALLERS = 64
WORKERS = 8
PUSH_JOBS = 5000
CLAIM_JOBS = 50
"""Every commit writes the jobs that run, which must be few beside the rest of the object."""
KINDS = 1000
LONGEST_DELAY_S = 60.0
BACKOFF_S = 7200.0
"""No job is retried meanwhile, so that each fails once."""
MOST_HEADS = 4
"""The object may be so many times as large as ``spill_bytes``."""
MOST_JOB_BYTES = 2000
"""What may be written of segments for a job."""
PAYLOAD = {"text": "x" * 89}
"""A hundred bytes of JSON."""
SETTLED_S = 3.0
"""Nothing is left to do if nothing was written for so long."""
_LINE = "{:>9} {:<22} {:>8} {:>12} {:>12} {:>12} {:>10} {:>8}"
_TITLES = ("jobs", "operation", "seconds", "largest KiB", "at end KiB", "segment MiB", "bytes/job")


class WatchingStore:
    """A store that notes how large the queue object is, and what is written of segments."""

    def __init__(self, inner: ObjectStore, key: str) -> None:
        """Watch the object ``key`` in another store."""
        self._inner = inner
        self._key = key
        self.largest_bytes = self.head_bytes = self.segment_bytes = 0
        self.wrote_at = 0.0

    @property
    def url(self) -> str:
        """Where the store is."""
        return self._inner.url

    @property
    def write_interval_s(self) -> float:
        """The pause that the provider wants between two writes of one object."""
        return self._inner.write_interval_s

    async def get(self, key: str) -> StoredObject:
        """Read an object."""
        return await self._inner.get(key)

    async def get_if_changed(self, key: str, etag: str) -> StoredObject | None:
        """Read an object that has changed."""
        return await self._inner.get_if_changed(key, etag)

    async def get_range(self, key: str, offset: int, length: int) -> bytes:
        """Read a range of an object."""
        return await self._inner.get_range(key, offset, length)

    async def create(self, key: str, body: bytes) -> str:
        """Create an object."""
        self._note(key, body)
        return await self._inner.create(key, body)

    async def replace(self, key: str, body: bytes, etag: str) -> str:
        """Replace an object."""
        self._note(key, body)
        return await self._inner.replace(key, body, etag)

    async def put(self, key: str, body: bytes) -> str:
        """Write an object."""
        self._note(key, body)
        return await self._inner.put(key, body)

    async def delete(self, key: str) -> None:
        """Delete an object."""
        await self._inner.delete(key)

    async def list(self, prefix: str) -> AsyncIterator[ObjectInfo]:
        """List objects."""
        async for info in self._inner.list(prefix):
            yield info

    async def close(self) -> None:
        """Close it."""
        await self._inner.close()

    def _note(self, key: str, body: bytes) -> None:
        self.wrote_at = perf_counter()
        if key == self._key:
            self.head_bytes = len(body)
            self.largest_bytes = max(self.largest_bytes, len(body))
        elif "/segments/" in key:
            self.segment_bytes += len(body)


class Storm:
    """A queue, and what is done to it."""

    def __init__(self, queue: Queue[Any], store: WatchingStore, jobs: int) -> None:
        """Do everything to so many jobs."""
        self.queue = queue
        self._store = store
        self._jobs = jobs
        self.ids: list[str] = []
        self._random = random.Random(1)  # The same jobs in every run.
        self.is_good = True

    async def measure(self, name: str, operation: Callable[[], Awaitable[None]]) -> None:
        """Do one thing, wait until nothing is left to do, and print the line."""
        store = self._store
        store.largest_bytes, before = 0, store.segment_bytes
        began = perf_counter()
        await operation()
        took_s = perf_counter() - began
        # Until nothing was written for a while.
        while (left_s := store.wrote_at + SETTLED_S - perf_counter()) > 0:  # noqa: ASYNC110 - no event
            await asyncio.sleep(left_s)
        written = store.segment_bytes - before
        limit = MOST_HEADS * (await self.queue.settings()).spill_bytes
        self.is_good &= store.largest_bytes <= limit
        cells = (
            f"{self._jobs:,}",
            name,
            f"{took_s:.0f}",
            f"{store.largest_bytes / 1024:,.0f}",
            f"{store.head_bytes / 1024:,.0f}",
            f"{written / 2**20:,.1f}",
            f"{written / self._jobs:,.0f}",
        )
        print(_LINE.format(*cells, "" if store.largest_bytes <= limit else "TOO LARGE"), flush=True)

    async def push(self) -> None:
        """Push jobs of one kind."""
        while len(self.ids) < self._jobs:
            some = min(PUSH_JOBS, self._jobs - len(self.ids))
            spec = bucketq.JobSpec(kind="index", payload=PAYLOAD)
            self.ids += await self.queue.push_many([spec] * some)

    async def push_spread(self) -> None:
        """Push jobs of many kinds and priorities, half of them with a time to run at."""
        while len(self.ids) < self._jobs:
            some = min(PUSH_JOBS, self._jobs - len(self.ids))
            specs = [
                bucketq.JobSpec(
                    kind=f"kind-{self._random.randrange(KINDS)}",
                    payload=PAYLOAD,
                    priority=self._random.randrange(10),
                    delay_s=self._random.choice([None, self._random.random() * LONGEST_DELAY_S]),
                )
                for _ in range(some)
            ]
            self.ids += await self.queue.push_many(specs)

    async def fail(self, *, retry: bool) -> None:
        """Claim every job, and fail it."""

        async def fail(jobs: list[Any]) -> None:
            await asyncio.gather(*(self.queue.fail(job, "no", retry=retry) for job in jobs))

        await self._work(fail)

    async def complete(self) -> None:
        """Claim every job, and complete it."""
        await self._work(self.queue.complete_many)

    async def _work(self, finish: Callable[[list[Any]], Awaitable[Any]]) -> None:
        left = self._jobs

        async def work() -> None:
            nonlocal left
            while left > 0:
                jobs = await self.queue.claim(limit=CLAIM_JOBS, wait_s=1)
                left -= len(jobs)
                await finish(jobs)

        await asyncio.gather(*(work() for _ in range(WORKERS)))

    async def redrive(self) -> None:
        """Queue all dead jobs again."""
        print_if_other("redriven", await self.queue.redrive(), self._jobs)

    async def cancel(self, ids: Sequence[str]) -> None:
        """Cancel jobs one by one."""
        rest: Iterator[str] = iter(ids)

        async def work() -> None:
            for job in rest:
                with suppress(bucketq.JobNotFoundError):  # It was cancelled, and archived.
                    await self.queue.cancel(job)

        await asyncio.gather(*(work() for _ in range(CALLERS)))

    def shuffled(self) -> list[str]:
        """Return the ids in any order."""
        return self._random.sample(self.ids, len(self.ids))


def print_if_other(what: str, count: int, expected: int) -> None:
    """Print a count that is not the expected one."""
    if count != expected:
        print(f"{count:,} were {what}, not {expected:,}", flush=True)


async def run_storm(storm: Storm, names: Sequence[str]) -> None:
    """Change all jobs, again and again."""
    await storm.queue.configure(max_dead=10**9, backoff={"base_s": BACKOFF_S, "max_s": BACKOFF_S})
    await storm.measure("push", storm.push)
    steps: dict[str, Callable[[], Awaitable[None]]] = {
        "die": lambda: storm.fail(retry=False),
        "redrive": storm.redrive,
        "fail": lambda: storm.fail(retry=True),
        "cancel": lambda: storm.cancel(storm.ids[: len(storm.ids) // 2]),
        "cancel, in any order": lambda: storm.cancel(storm.shuffled()),
    }
    for name, step in steps.items():
        if not names or name.partition(",")[0] in names:
            await storm.measure(name, step)


async def run_spread(storm: Storm) -> None:
    """Push jobs of many kinds, and work them off."""
    await storm.measure("push, spread", storm.push_spread)
    await storm.measure("complete", storm.complete)


async def measure(folder: str, given: argparse.Namespace) -> bool:
    """Measure a new queue; return whether it kept its limits."""
    location = open_store(Path(folder, "queue.json").as_uri())
    store = WatchingStore(location.store, location.key)
    async with bucketq.connect(location.key, mode="embedded", store=store) as queue:
        storm = Storm(queue, store, given.jobs)
        print(_LINE.format(*_TITLES, ""), flush=True)
        await (run_spread(storm) if given.spread else run_storm(storm, given.only))
    per_job = store.segment_bytes / given.jobs
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"{per_job:,.0f} bytes of segments for each job; {memory:,.0f} MiB of memory", flush=True)
    return storm.is_good and (not given.spread or per_job < MOST_JOB_BYTES)


def main() -> int:
    """Measure."""
    parser = argparse.ArgumentParser(description="Change very many jobs of a deep queue.")
    parser.add_argument("--jobs", type=int, default=1_000_000)
    parser.add_argument("--spread", action="store_true", help="many kinds, priorities and times")
    parser.add_argument("--only", nargs="+", default=[], help="die, redrive, fail, cancel")
    parser.add_argument("--dir", type=Path, default=Path("/var/tmp"), help="a folder on a disk")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=given.dir) as folder:
        return 0 if asyncio.run(measure(folder, given)) else 1


if __name__ == "__main__":
    sys.exit(main())
