"""What the depth of a queue costs: commits, cycles, opening, failover and memory.

Run it with ``python benchmarks/depth.py``: queues of up to a million waiting jobs, on a file and on
SeaweedFS. ``--depths 0 10000000`` chooses others, and ``--old`` measures the layout without
segments, in which every commit writes the whole queue.

Each line is one depth. A new process opens the queue and claims a job (``open``), commits pushes
one after the other, in turns with a bare PUT of an object of the same size (``commit``, ``PUT``),
and lets 64 callers push, claim and complete (``cycles/s``); its own memory is ``MiB``. Requests and
bytes are those of the cycles, for 1,000 jobs. Then two brokers serve the queue, the leader is
killed with SIGKILL, and the time until a client has claimed a job from the other one is
``failover``.

The last lines have the price of a million jobs, by the prices below.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import resource
import signal
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import msgspec
from msgspec import Struct

import bucketq
from bucketq.queue.queue import Queue
from bucketq.store.base import ObjectInfo, ObjectStore, StoredObject
from bucketq.store.url import open_store
from tests.servers import seaweedfs
from tests.servers.server import ENVIRON

DEPTHS = (0, 1_000, 10_000, 100_000, 1_000_000)
CALLERS = 64
COMMITS = 40
PUSH_JOBS = 5_000
SETTLED_BYTES = 1 << 20
"""A head that is smaller has spilled what was pushed."""
PUT_PRICE = 5.0 / 1_000_000
GET_PRICE = 0.4 / 1_000_000
"""Dollars for a request, at the list prices of a large provider (S3 Standard, us-east-1, 2026);
PUT, LIST and DELETE as PUT. Transfer within a region is free."""
_LINE = "{:>9} {:>9} {:>8} {:>8} {:>8} {:>9} {:>7} {:>8} {:>9} {:>9} {:>9}"
_TITLES = (
    "waiting",
    "head KiB",
    "commit",
    "PUT",
    "ratio",
    "cycles/s",
    "open",
    "failover",
    "MiB",
    "req/1000",
    "KiB/1000",
)


class Measured(Struct):
    """What a process has measured at one depth."""

    head_bytes: int
    commit_s: float
    put_s: float
    cycles_per_s: float
    open_s: float
    memory_mib: float
    writes: float
    reads: float
    transferred_bytes: float
    """Requests and bytes for one job."""


class CountingStore:
    """A store that counts the requests to another."""

    def __init__(self, inner: ObjectStore) -> None:
        """Count the requests to ``inner``."""
        self._inner = inner
        self.writes = self.reads = self.transferred_bytes = 0

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
        found = await self._inner.get(key)
        self._read(len(found.body))
        return found

    async def get_if_changed(self, key: str, etag: str) -> StoredObject | None:
        """Read an object that has changed."""
        found = await self._inner.get_if_changed(key, etag)
        self._read(len(found.body) if found else 0)
        return found

    async def get_range(self, key: str, offset: int, length: int) -> bytes:
        """Read a range of an object."""
        self._read(length)
        return await self._inner.get_range(key, offset, length)

    async def create(self, key: str, body: bytes) -> str:
        """Create an object."""
        self._write(len(body))
        return await self._inner.create(key, body)

    async def replace(self, key: str, body: bytes, etag: str) -> str:
        """Replace an object."""
        self._write(len(body))
        return await self._inner.replace(key, body, etag)

    async def put(self, key: str, body: bytes) -> str:
        """Write an object."""
        self._write(len(body))
        return await self._inner.put(key, body)

    async def delete(self, key: str) -> None:
        """Delete an object."""
        self._write(0)
        await self._inner.delete(key)

    async def list(self, prefix: str) -> AsyncIterator[ObjectInfo]:
        """List objects."""
        self._write(0)
        async for info in self._inner.list(prefix):
            yield info

    async def close(self) -> None:
        """Close it."""
        await self._inner.close()

    def _read(self, size_bytes: int) -> None:
        self.reads += 1
        self.transferred_bytes += size_bytes

    def _write(self, size_bytes: int) -> None:
        self.writes += 1
        self.transferred_bytes += size_bytes


def payload_of(size_bytes: int) -> dict[str, str]:
    """A payload of so many bytes of JSON."""
    return {"text": "x" * (size_bytes - len('{"text":""}'))}


async def fill(url: str, count: int, payload: dict[str, str], *, is_old: bool) -> None:
    """Push jobs until so many wait, and let them spill."""
    async with bucketq.connect(url, mode="embedded") as queue:
        if is_old:
            await queue.configure(max_format=1)
        there = (await queue.stats()).total("queued")
        spec = bucketq.JobSpec(kind="index", payload=payload)
        while there < count:
            some = min(PUSH_JOBS, count - there)
            await queue.push_many([spec] * some)
            there += some
        for _ in range(120):
            if is_old or (await queue.stats()).head_bytes < SETTLED_BYTES:
                return
            await asyncio.sleep(0.5)


async def cycle(queue: Queue[Any], payload: dict[str, str], until: float) -> int:
    """Push, claim and complete until a time; return how often."""
    count = 0
    while perf_counter() < until:
        await queue.push("index", payload)
        for job in await queue.claim():
            await queue.complete(job)
        count += 1
    return count


async def measure_here(url: str, payload: dict[str, str], seconds: float) -> Measured:
    """Measure a queue in this process."""
    location = open_store(url)
    store = CountingStore(location.store)
    began = perf_counter()
    async with bucketq.connect(location.key, mode="embedded", store=store) as queue:
        for job in await queue.claim():
            await queue.release(job)
        open_s = perf_counter() - began
        head_bytes = (await queue.stats()).head_bytes
        commits, puts = list[float](), list[float]()
        body, etag = b"x" * head_bytes, await location.store.create("put.bin", b"x")
        for _ in range(COMMITS):
            start = perf_counter()
            await queue.push("index", payload)
            middle = perf_counter()
            etag = await location.store.replace("put.bin", body, etag)
            commits.append(middle - start)
            puts.append(perf_counter() - middle)
        await location.store.delete("put.bin")
        before = (store.writes, store.reads, store.transferred_bytes)
        began = perf_counter()
        until = began + seconds
        callers = (cycle(queue, payload, until) for _ in range(CALLERS))
        cycles = sum(await asyncio.gather(*callers))
        took_s = perf_counter() - began
        after = (store.writes, store.reads, store.transferred_bytes)
    writes, reads, transferred = (b - a for a, b in zip(before, after, strict=True))
    return Measured(
        head_bytes=head_bytes,
        commit_s=median(commits),
        put_s=median(puts),
        cycles_per_s=cycles / took_s,
        open_s=open_s,
        memory_mib=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        writes=writes / cycles,
        reads=reads / cycles,
        transferred_bytes=transferred / cycles,
    )


def measure(url: str, size_bytes: int, seconds: float) -> Measured:
    """Measure a queue in a new process, whose memory holds nothing else."""
    command = [sys.executable, __file__, "--measure", url, "--payloads", str(size_bytes)]
    done = subprocess.run([*command, "--seconds", str(seconds)], check=True, stdout=subprocess.PIPE)
    return msgspec.json.decode(done.stdout, type=Measured)


@contextmanager
def broker(url: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run a broker."""
    command = [str(Path(sys.executable).with_name("bucketq")), "serve", url, "--quiet"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


async def failover(url: str) -> float:
    """Kill the leader of two brokers; return how long it took until a job was claimed."""
    with broker(url) as leader:
        async with bucketq.connect(url, mode="remote") as queue:
            for job in await queue.claim(wait_s=60):
                await queue.release(job)
            with broker(url):
                await asyncio.sleep(3)
                leader.send_signal(signal.SIGKILL)
                began = perf_counter()
                for job in await queue.claim(wait_s=60):
                    await queue.release(job)
                return perf_counter() - began


def print_line(waiting: int, found: Measured, failover_s: float | None) -> None:
    """Print the line of a depth."""
    cells = (
        f"{waiting:,}",
        f"{found.head_bytes / 1024:,.0f}",
        f"{found.commit_s * 1000:.1f} ms",
        f"{found.put_s * 1000:.1f} ms",
        f"{found.commit_s / found.put_s:.2f}",
        f"{found.cycles_per_s:,.0f}",
        f"{found.open_s:.2f} s",
        "-" if failover_s is None else f"{failover_s:.1f} s",
        f"{found.memory_mib:,.0f}",
        f"{1000 * (found.writes + found.reads):,.0f}",
        f"{1000 * found.transferred_bytes / 1024:,.0f}",
    )
    print(_LINE.format(*cells), flush=True)


def price(found: Measured) -> float:
    """Dollars for the requests of a million jobs."""
    return 1_000_000 * (found.writes * PUT_PRICE + found.reads * GET_PRICE)


def measure_place(url: str, size_bytes: int, given: argparse.Namespace) -> None:
    """Print the table of a place and a size of payloads."""
    print(_LINE.format(*_TITLES), flush=True)
    prices = {}
    for waiting in given.depths:
        asyncio.run(fill(url, waiting, payload_of(size_bytes), is_old=given.old))
        found = measure(url, size_bytes, given.seconds)
        failover_s = asyncio.run(failover(url)) if waiting else None
        print_line(waiting, found, failover_s)
        prices[waiting] = price(found)
    listed = ", ".join(f"${dollars:,.2f} at {waiting:,}" for waiting, dollars in prices.items())
    print(f"requests of a million jobs, by 64 callers: {listed}", flush=True)


def main() -> None:
    """Measure."""
    parser = argparse.ArgumentParser(description="Measure what the depth of a queue costs.")
    parser.add_argument("--depths", type=int, nargs="+", default=DEPTHS, help="waiting jobs")
    parser.add_argument("--payloads", type=int, nargs="+", default=[100, 1000], help="bytes")
    parser.add_argument("--places", nargs="+", default=["file", "seaweedfs"])
    parser.add_argument("--seconds", type=float, default=10.0, help="how long the callers work")
    parser.add_argument("--old", action="store_true", help="without segments")
    parser.add_argument("--dir", type=Path, default=Path("/var/tmp"), help="a folder on a disk")
    parser.add_argument("--measure", metavar="URL", help="measure one queue, and print JSON")
    given = parser.parse_args()
    if given.measure:
        payload = payload_of(given.payloads[0])
        found = asyncio.run(measure_here(given.measure, payload, given.seconds))
        sys.stdout.buffer.write(msgspec.json.encode(found))
        return
    os.environ.update(ENVIRON)
    with tempfile.TemporaryDirectory(dir=given.dir) as folder:
        server = seaweedfs.start(Path(folder)) if "seaweedfs" in given.places else None
        try:
            for place in given.places:
                for size_bytes in given.payloads:
                    print(f"\n{place}, payloads of {size_bytes:,} bytes", flush=True)
                    name = f"{place}-{size_bytes}.json"
                    url = server.url(name) if server and place == "seaweedfs" else None
                    measure_place(url or Path(folder, name).as_uri(), size_bytes, given)
        finally:
            if server is not None and server.child is not None:
                server.child.stop()


if __name__ == "__main__":
    main()
