"""What each kind of store costs: one request, and one commit of a queue.

Run ``make servers`` once, then ``.venv/bin/python benchmarks/stores.py``; name stores to measure
only those. Each server runs on this machine and is stopped again, so this measures our own share
and the server's, without a network. Real services take tens of milliseconds for each write.

Columns: the median of a conditional write, of a read that finds nothing new, and of a read that
finds what another process has just written (a file is synced before that is returned), with bodies
of 1 KiB and of 1 MiB; then pushes a second into a queue, by one caller that waits for each
(direct), and by 64 callers whose pushes share commits (group commit), with the number of commits.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path
from statistics import median
from time import perf_counter

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import bucketq
from bucketq.store.base import ObjectStore
from bucketq.store.url import open_store
from tests.servers.process import NotInstalledError
from tests.servers.running import SERVERS
from tests.servers.server import ENVIRON, Server

STORES = ["memory", "file", *SERVERS]
CALLERS = 64
_LINE = "{:<10} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9} {:>10} {:>10} {:>10}"


async def times_ms(seconds: float, work: Callable[[], Awaitable[object]]) -> list[float]:
    """Repeat something for a while; return how long it took each time."""
    found: list[float] = []
    end = perf_counter() + seconds
    while not found or perf_counter() < end:
        began = perf_counter()
        await work()
        found.append(1000 * (perf_counter() - began))
    return found


async def requests(
    store: ObjectStore, other: ObjectStore, key: str, size: int, seconds: float
) -> tuple[float, float, float]:
    """The median time of a conditional write, and of reads: of nothing new, of another's write."""
    number = 0

    def body() -> bytes:
        nonlocal number
        number += 1
        return b"%020d" % number + bytes(size - 20)

    etag = await store.create(key, body())

    async def write() -> None:
        nonlocal etag
        etag = await store.replace(key, body(), etag)

    async def read() -> None:
        assert await store.get_if_changed(key, etag) is None

    writes, reads = await times_ms(seconds, write), await times_ms(seconds, read)
    found: list[float] = []
    for _ in writes[: 1 + len(writes) // 4]:
        await write()
        began = perf_counter()
        await other.get(key)
        found.append(1000 * (perf_counter() - began))
    return median(writes), median(reads), median(found)


async def pushes_direct(url: str, seconds: float) -> float:
    """Return how many pushes a second one caller makes that waits for each."""
    async with bucketq.connect(url, mode="direct") as queue:
        found = await times_ms(seconds, lambda: queue.push("bench", {"to": "ada"}))
    return 1000 * len(found) / sum(found)


async def pushes_together(url: str, seconds: float) -> tuple[float, float]:
    """Return how many pushes a second many callers make together, and how many commits it took."""
    async with bucketq.connect(url, mode="embedded") as queue:
        before = (await queue.snapshot()).version
        began = perf_counter()
        found = await asyncio.gather(
            *(times_ms(seconds, lambda: queue.push("bench", {"to": "ada"})) for _ in range(CALLERS))
        )
        took_s = perf_counter() - began
        commits = (await queue.snapshot()).version - before
    return sum(map(len, found)) / took_s, commits / took_s


async def measure(name: str, new_url: Callable[[], str], seconds: float) -> None:
    """Measure one store, and print its line."""
    url = new_url()
    store, other = open_store(url).store, open_store(url).store
    small = await requests(store, other, "small", 1024, seconds)
    large = await requests(store, other, "large", 1 << 20, seconds)
    await store.close()
    await other.close()
    direct = await pushes_direct(new_url(), seconds)
    together, commits = await pushes_together(new_url(), seconds)
    times = [f"{ms:.2f}" for ms in (*small, *large)]
    print(_LINE.format(name, *times, f"{direct:.0f}", f"{together:.0f}", f"{commits:.0f}"))


def urls_of(name: str, folder: Path) -> tuple[Callable[[], str], Server | None]:
    """Yield addresses of new queues on one kind of store; run its server, if it has one."""
    if name in SERVERS:
        server = SERVERS[name](folder)
        return server.url, server
    numbers = iter(range(1000))
    if name == "memory":
        return lambda: f"memory://bench-{next(numbers)}", None
    return lambda: f"{folder.as_uri()}/{next(numbers)}/queue.json", None


def main() -> None:
    """Measure the stores that were asked for."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("stores", nargs="*", metavar="STORE", help=", ".join(STORES))
    parser.add_argument("--seconds", type=float, default=2.0, help="for each figure")
    chosen = parser.parse_args()
    if unknown := set(chosen.stores) - set(STORES):
        parser.error(f"unknown: {', '.join(sorted(unknown))}; there are {', '.join(STORES)}")
    os.environ.update(ENVIRON)
    requested = ("write", "read", "read new")
    print(_LINE.format("", *requested, *requested, "direct", "group", "group"))
    heads = (*["1 KiB ms"] * 3, *["1 MiB ms"] * 3, "pushes/s", "pushes/s", "commits/s")
    print(_LINE.format("store", *heads))
    for name in chosen.stores or STORES:
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
            try:
                new_url, server = urls_of(name, Path(folder))
            except NotInstalledError as error:
                print(f"{name:<10} {error}")
                continue
            asyncio.run(measure(name, new_url, chosen.seconds))
            if server is not None:
                server.stop()


if __name__ == "__main__":
    main()
