"""What the depth of a queue costs: commits, cycles, opening, failover and memory.

Run it with ``python benchmarks/depth.py``: queues of up to a million waiting jobs, on a file and on
SeaweedFS. ``--depths 0 10000000`` chooses others, and ``--old`` measures the layout without
segments, in which every commit writes the whole queue.

Each line is one depth, with a queue and a process of its own. The process opens the queue and
claims a job (``open``), and pushes jobs one after the other, in turns with a bare PUT of an object
of the same size. ``push`` is what the caller waits; ``commit`` is the part of it in which the
queue is encoded and written, which is all that could depend on the depth; and ``ratio`` is how many
times the bare ``PUT`` that is.

Then 64 callers push, claim and complete (``cycles/s``). A machine is not equally fast for minutes,
so the depths take turns: all have a round of a few seconds, then all have the next one. What is
printed is the median round, how many times it is the one at a depth of 1,000 (``of 1k``), and the
CPU time of the process for a cycle, over all rounds. Requests and bytes are those of the cycles,
for 1,000 jobs; the memory of the process is ``MiB``.

At last two brokers serve the queue, the leader is killed with SIGKILL, and the time until a client
has claimed a job from the other one is ``failover``.

``$/million`` is what the requests of a million jobs cost, by the prices below. ``--markdown``
prints rows for a page of the documentation.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median
from time import perf_counter, process_time
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import msgspec
from benchmarks.counting_store import CountingStore
from msgspec import Struct

import bucketq
from bucketq.commit.group_committer import GroupCommitter
from bucketq.queue.queue import Queue
from bucketq.store.url import open_store
from tests.servers import seaweedfs
from tests.servers.server import ENVIRON

DEPTHS = (0, 1_000, 10_000, 100_000, 1_000_000)
SHALLOW = 1_000
"""The depth that others are compared with."""
CALLERS = 64
COMMITS = 100
PUSH_JOBS = 5_000
BULK_JOBS = 1_000_000
"""So many jobs are pushed in one commit if a queue is to be deeper: that takes a third as long."""
SETTLED_BYTES = 1 << 20
"""A head that is smaller has spilled what was pushed."""
SETTLED_S = 3.0
"""If nothing was written for so long, what was pushed has been merged."""
PUT_PRICE = 5.0 / 1_000_000
GET_PRICE = 0.4 / 1_000_000
"""Dollars for a request, at the list prices of a large provider (S3 Standard, us-east-1, 2026);
PUT, LIST and DELETE as PUT. Transfer within a region is free."""
_LINE = "{:>10} {:>9} {:>8} {:>8} {:>8} {:>6} {:>9} {:>6} {:>7} {:>7} {:>9} {:>6} {:>9} {:>9} {:>9}"
_TITLES = (
    "waiting",
    "head KiB",
    "push",
    "commit",
    "PUT",
    "ratio",
    "cycles/s",
    "of 1k",
    "CPU us",
    "open",
    "failover",
    "MiB",
    "req/1000",
    "KiB/1000",
    "$/million",
)


class Opened(Struct):
    """What a process has measured before the first round."""

    head_bytes: int
    push_s: float
    commit_s: float
    put_s: float
    open_s: float


class Round(Struct):
    """What 64 callers did in a while, and what it cost."""

    cycles: int
    took_s: float
    cpu_s: float
    writes: int
    reads: int
    transferred_bytes: int
    memory_mib: float


class Rounds:
    """All rounds of one depth."""

    def __init__(self, rounds: list[Round]) -> None:
        """Put them together."""
        cycles = sum(each.cycles for each in rounds)
        self.cycles_per_s = median(each.cycles / each.took_s for each in rounds)
        self.cpu_s = sum(each.cpu_s for each in rounds) / cycles
        self.writes = sum(each.writes for each in rounds) / cycles
        self.reads = sum(each.reads for each in rounds) / cycles
        self.transferred_bytes = sum(each.transferred_bytes for each in rounds) / cycles
        """Requests and bytes for one job."""
        self.memory_mib = rounds[-1].memory_mib

    @property
    def price(self) -> float:
        """Dollars for the requests of a million jobs."""
        return 1_000_000 * (self.writes * PUT_PRICE + self.reads * GET_PRICE)


def payload_of(size_bytes: int) -> dict[str, str]:
    """A payload of so many bytes of JSON."""
    return {"text": "x" * (size_bytes - len('{"text":""}'))}


async def fill(url: str, count: int, payload: dict[str, str], *, is_old: bool) -> None:
    """Push jobs until so many wait, and let them spill."""
    async with bucketq.connect(url, mode="embedded") as queue:
        if is_old:
            await queue.configure(max_format=1)
        there = (await queue.stats()).total("queued")
        while not is_old and count - there > BULK_JOBS:
            await asyncio.to_thread(push_bulk, url, payload, there)
            there += BULK_JOBS
        spec = bucketq.JobSpec(kind="index", payload=payload)
        while there < count:
            some = min(PUSH_JOBS, count - there)
            await queue.push_many([spec] * some)
            there += some
        for _ in range(120):
            if is_old or (await queue.stats()).head_bytes < SETTLED_BYTES:
                return
            await asyncio.sleep(0.5)


def push_bulk(url: str, payload: dict[str, str], there: int) -> None:
    """Push a million jobs as a user would push a file, if so many are ``there``."""
    number = str(there)  # The same file again would add nothing.
    payload = {"text": number + payload["text"][len(number) :]}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "jobs.jsonl")
        path.write_bytes((msgspec.json.encode(payload) + b"\n") * BULK_JOBS)
        command = [sys.executable, "-m", "bucketq.cli", "push", url, "index", "--bulk", "--quiet"]
        subprocess.run([*command, "--file", str(path)], check=True)


async def cycle(queue: Queue[Any], payload: dict[str, str], until: float) -> int:
    """Push, claim and complete until a time; return how often."""
    count = 0
    while perf_counter() < until:
        await queue.push("index", payload)
        for job in await queue.claim():
            await queue.complete(job)
        count += 1
    return count


async def settle(store: CountingStore) -> None:
    """Wait until nothing is left to do: merges would take time from other depths."""
    before = -1
    while before != store.writes:
        before = store.writes
        await asyncio.sleep(SETTLED_S)


async def time_commits(queue: Queue[Any], url: str, payload: dict[str, str]) -> Opened:
    """Commit pushes, in turns with PUTs of the same size; ``open_s`` is left to the caller."""
    first_bytes = (await queue.stats()).head_bytes
    pushes, commits, puts = list[float](), list[float](), list[float]()
    committer = queue._committer
    assert isinstance(committer, GroupCommitter)
    location = open_store(url)
    name = f"{location.key}.put"
    etag = await location.store.create(name, b"x")
    for _ in range(COMMITS):
        start = perf_counter()
        await queue.push("index", payload)
        pushes.append(perf_counter() - start)
        commits.append(committer.last_write_s)
        body = b"x" * (await queue.stats()).head_bytes  # A little more with every push.
        start = perf_counter()
        etag = await location.store.replace(name, body, etag)
        puts.append(perf_counter() - start)
    await location.store.delete(name)
    await location.store.close()
    return Opened(first_bytes, median(pushes), median(commits), median(puts), 0.0)


async def run_round(
    queue: Queue[Any], store: CountingStore, payload: dict[str, str], seconds: float
) -> Round:
    """Let all callers work for a while."""
    writes, reads, transferred_bytes = store.writes, store.reads, store.transferred_bytes
    began_s, began_cpu_s = perf_counter(), process_time()
    callers = (cycle(queue, payload, began_s + seconds) for _ in range(CALLERS))
    cycles = sum(await asyncio.gather(*callers))
    return Round(
        cycles,
        took_s=perf_counter() - began_s,
        cpu_s=process_time() - began_cpu_s,
        writes=store.writes - writes,
        reads=store.reads - reads,
        transferred_bytes=store.transferred_bytes - transferred_bytes,
        memory_mib=peak_memory_mib(),
    )


def peak_memory_mib() -> float:
    """How much memory this process has used.

    Not ``ru_maxrss``: a process begins with that of the one that started it, which has pushed a
    million jobs.
    """
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:")) / 1024


async def measure_here(url: str, payload: dict[str, str]) -> None:
    """Measure a queue in this process; each line of the input asks for a round of that long."""

    def write(found: Struct) -> None:
        sys.stdout.buffer.write(msgspec.json.encode(found) + b"\n")
        sys.stdout.buffer.flush()

    location = open_store(url)
    store = CountingStore(location.store)
    began = perf_counter()
    async with bucketq.connect(location.key, mode="embedded", store=store) as queue:
        for job in await queue.claim():
            await queue.release(job)
        open_s = perf_counter() - began
        await settle(store)
        opened = await time_commits(queue, url, payload)
        write(msgspec.structs.replace(opened, open_s=open_s))
        while line := await asyncio.to_thread(sys.stdin.readline):
            write(await run_round(queue, store, payload, float(line)))


class Measurer:
    """A new process that keeps one queue open, and whose memory holds nothing else."""

    def __init__(self, url: str, size_bytes: int) -> None:
        """Start it, and wait until it has opened the queue."""
        command = [sys.executable, __file__, "--measure", url, "--payloads", str(size_bytes)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.opened = msgspec.json.decode(self._read(), type=Opened)
        self.rounds: list[Round] = []

    def run(self, seconds: float) -> None:
        """Run a round."""
        if self._process.stdin is not None:
            self._process.stdin.write(f"{seconds}\n".encode())
            self._process.stdin.flush()
        self.rounds.append(msgspec.json.decode(self._read(), type=Round))

    def close(self) -> None:
        """Let it close the queue, and end."""
        if self._process.stdin is not None:
            self._process.stdin.close()
        self._process.wait()

    def _read(self) -> bytes:
        line = self._process.stdout.readline() if self._process.stdout is not None else b""
        if not line:
            message = f"the measuring process has ended with {self._process.wait()}"
            raise RuntimeError(message)
        return line


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


def cells_of(
    waiting: int, opened: Opened, found: Rounds, of: float, failover_s: float
) -> tuple[str, ...]:
    """What is printed of a depth; ``of`` is the rate that it is compared with."""
    return (
        f"{waiting:,}",
        f"{opened.head_bytes / 1024:,.0f}",
        f"{opened.push_s * 1000:.1f} ms",
        f"{opened.commit_s * 1000:.1f} ms",
        f"{opened.put_s * 1000:.1f} ms",
        f"{opened.commit_s / opened.put_s:.2f}",
        f"{found.cycles_per_s:,.0f}",
        f"{found.cycles_per_s / of:.2f}" if of else "-",
        f"{found.cpu_s * 1e6:,.0f}",
        f"{opened.open_s:.2f} s",
        f"{failover_s:.1f} s" if failover_s else "-",
        f"{found.memory_mib:,.0f}",
        f"{1000 * (found.writes + found.reads):,.0f}",
        f"{1000 * found.transferred_bytes / 1024:,.0f}",
        f"{found.price:.2f}",
    )


def measure_place(urls: dict[int, str], size_bytes: int, given: argparse.Namespace) -> None:
    """Print the table of a place and a size of payloads; ``urls`` has the queue of each depth."""
    for waiting, url in urls.items():
        asyncio.run(fill(url, waiting, payload_of(size_bytes), is_old=given.old))
    with ExitStack() as open_measurers:
        measurers = dict[int, Measurer]()
        for waiting, url in urls.items():
            measurers[waiting] = Measurer(url, size_bytes)
            open_measurers.callback(measurers[waiting].close)
        for number in range(given.rounds):
            # Back and forth, so that no depth always comes after the same one.
            for measurer in [*measurers.values()][:: 1 if number % 2 == 0 else -1]:
                measurer.run(given.seconds)
    found = {waiting: Rounds(measurer.rounds) for waiting, measurer in measurers.items()}
    of = found[SHALLOW].cycles_per_s if SHALLOW in found else 0.0
    print_cells(_TITLES, given)
    if given.markdown:
        print_cells(["--:"] * len(_TITLES), given)
    for waiting, url in urls.items():
        failover_s = asyncio.run(failover(url)) if waiting else 0.0
        opened = measurers[waiting].opened
        print_cells(cells_of(waiting, opened, found[waiting], of, failover_s), given)


def print_cells(cells: Sequence[str], given: argparse.Namespace) -> None:
    """Print a line of the table."""
    line = f"| {' | '.join(cells)} |" if given.markdown else _LINE.format(*cells)
    print(line, flush=True)


def main() -> None:
    """Measure."""
    parser = argparse.ArgumentParser(description="Measure what the depth of a queue costs.")
    parser.add_argument("--depths", type=int, nargs="+", default=DEPTHS, help="waiting jobs")
    parser.add_argument("--payloads", type=int, nargs="+", default=[100, 1000], help="bytes")
    parser.add_argument("--places", nargs="+", default=["file", "seaweedfs"])
    parser.add_argument("--rounds", type=int, default=3, help="how often the callers work")
    parser.add_argument("--seconds", type=float, default=4.0, help="how long, each time")
    parser.add_argument("--old", action="store_true", help="without segments")
    parser.add_argument("--markdown", action="store_true", help="print tables for the docs")
    parser.add_argument("--dir", type=Path, default=Path("/var/tmp"), help="a folder on a disk")
    parser.add_argument("--measure", metavar="URL", help="measure one queue, as it is asked to")
    given = parser.parse_args()
    if given.measure:
        asyncio.run(measure_here(given.measure, payload_of(given.payloads[0])))
        return
    os.environ.update(ENVIRON)
    with tempfile.TemporaryDirectory(dir=given.dir) as folder:
        server = seaweedfs.start(Path(folder)) if "seaweedfs" in given.places else None
        try:
            for place in given.places:
                for size_bytes in given.payloads:
                    print(f"\n{place}, payloads of {size_bytes:,} bytes", flush=True)
                    names = {depth: f"{place}-{size_bytes}-{depth}.json" for depth in given.depths}
                    urls = {depth: Path(folder, name).as_uri() for depth, name in names.items()}
                    if server is not None and place == "seaweedfs":
                        urls = {depth: server.url(name) for depth, name in names.items()}
                    measure_place(urls, size_bytes, given)
        finally:
            if server is not None and server.child is not None:
                server.child.stop()


if __name__ == "__main__":
    main()
