"""What the core costs, as a queue grows from a thousand jobs to a million.

Run it with ``make bench``, or ``python benchmarks/core.py --sizes 1000,100000 --repeat 3``. It
prints one table, and marks each target as met or missed:

* ``apply`` costs the same at any depth, within a factor of three from 1,000 jobs to a million;
* a commit of 100,000 jobs takes at most one and a half times the bare write of its bytes;
* a load takes at most twice as long as reading the bytes and parsing them as plain JSON;
* a job takes at most a KiB of memory.

Machines differ and are shared, so figures are ratios: what is compared is measured alternately in
one run, and a ratio is the median over the rounds. Work that never waits (``apply``, encoding a
commit) is measured in CPU time, so that other programs on the machine do not count; reading and
writing are measured in wall time.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import platform
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from itertools import islice
from pathlib import Path
from statistics import median
from time import perf_counter, thread_time
from typing import Any, NamedTuple

import msgspec
from msgspec import Raw

from bucketq.codec.decode import decode
from bucketq.codec.document import Document, Prepared
from bucketq.model.base import NewJob
from bucketq.model.operations import (
    AnyOperation,
    Claim,
    Complete,
    CompleteMany,
    Completion,
    Heartbeat,
    LeaseRef,
    Push,
    Release,
    Request,
)
from bucketq.model.settings import Settings
from bucketq.model.state import State
from bucketq.model.transitions import apply
from bucketq.store.local import LocalStore

SIZES = (1_000, 10_000, 100_000, 1_000_000)
PAYLOAD_BYTES = 100
NOW = datetime(2026, 1, 1, tzinfo=UTC)
SECRET = "5" * 32
MANY = 1_000
OUTSTANDING = 16
"""How many requests a client waits for at once."""
FILL_PUSH = 4
FILL_COMMIT = 20_000
APPLY_BATCH = 100
APPLY_TURNS = 5
"""``apply`` is measured this many times as often as the rest, because it is fast."""
SMALL = 10_000
SMALL_TURNS = 4
"""Small queues are measured this many times as often, because they are fast."""
MEMORY_FROM = 10_000
"""With fewer jobs than this, the memory of a job is lost in that of the interpreter."""

MEMORY = ("pushed", "loaded", "loaded and committed")

MOST_APPLY_RATIO = 3.0
MOST_COMMIT_RATIO = 1.5
COMMIT_AIM_SIZE = 100_000
MOST_LOAD_RATIO = 2.0
MOST_JOB_BYTES = 1024


class Cell(NamedTuple):
    """A figure and, if it has a reference, the ratio to it."""

    figure: str
    ratio: float | None = None
    is_met: bool | None = None
    """Return whether it meets the target; None if it has none."""


Column = dict[str, Cell]


class Client:
    """Numbers requests like a client that waits for several answers at once."""

    def __init__(self, session: str = "bench") -> None:
        self._session = session
        self._number = 0

    def request(self, operation: AnyOperation) -> Request:
        """Give an operation an id."""
        self._number += 1
        floor = max(1, self._number - OUTSTANDING)
        return Request(operation, self._session, self._number, floor)


def new_jobs(size: int, first: int = 0) -> Iterator[NewJob]:
    """Make jobs; a thousand of them, spread evenly, are of a kind of their own."""
    step = max(1, size // MANY)
    for number in range(first, first + size):
        start = b'{"number":%d,"text":"' % number
        payload = start + b"x" * (PAYLOAD_BYTES - len(start) - 2) + b'"}'
        kind = "spread" if number % step == 0 else "index"
        yield NewJob(id=f"01JBENCH{number:018}", kind=kind, payload=Raw(payload))


def fill(client: Client, size: int) -> Document:
    """Make a queue of waiting jobs, pushed a few at a time and committed many at a time."""
    state = State(incarnation="bench", created_at=NOW)
    state.settings = Settings(max_jobs=2_000_000, max_bytes=2**31)
    document = Document(state)
    jobs = new_jobs(size)
    while few := tuple(islice(jobs, FILL_PUSH)):
        now = NOW + timedelta(microseconds=state.next_seq)
        apply(state, client.request(Push(jobs=few)), now).result()
        if state.next_seq % FILL_COMMIT < FILL_PUSH:
            prepare(document)
    return document


def prepare(document: Document) -> Prepared:
    """Freeze the next version of a queue."""
    return document.prepare(f"{document.state.version + 1:016x}")


# How apply grows.


APPLIED = ("push", "claim", "complete", "push, of 100", "claim, of 100", "complete, of 100")
"""Requests for one job, and what a job takes in requests for many."""


class Bench:
    """A queue under load that keeps its depth."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.client = Client()
        self.document = fill(self.client, size)
        self.body = prepare(self.document).body
        self._pushed = 10**9

    def cycle(self) -> list[float]:
        """Push, claim and complete jobs, each alone and then together, and time each request."""
        self._restore()
        self._pushed += 2 * APPLY_BATCH
        alone = new_jobs(APPLY_BATCH, first=self._pushed)
        together = new_jobs(APPLY_BATCH, first=self._pushed + APPLY_BATCH)
        push_s, _ = self._apply([Push(jobs=(job,)) for job in alone])
        claims = [Claim(worker="bench", secret=SECRET) for _ in range(APPLY_BATCH)]
        claim_s, claimed = self._apply(claims)
        completes = [Complete(job=job.id, lease=job.lease) for (job,) in claimed]
        complete_s, _ = self._apply(completes)
        push_many_s, _ = self._apply([Push(jobs=tuple(together))])
        claim_many_s, (jobs,) = self._apply(
            [Claim(worker="bench", secret=SECRET, limit=APPLY_BATCH)]
        )
        finished = tuple(Completion(job=job.id, lease=job.lease) for job in jobs)
        complete_many_s, _ = self._apply([CompleteMany(jobs=finished)])
        prepare(self.document)
        return [push_s, claim_s, complete_s, push_many_s, claim_many_s, complete_many_s]

    def _restore(self) -> None:
        """Start with a new queue before finished jobs, which are not archived here, count."""
        if len(self.document.state.jobs) > 1.05 * self.size:
            self.document = decode(self.body, "bench")

    def _apply(self, operations: list[Any]) -> tuple[float, list[Any]]:
        """Apply requests for a hundred jobs in all; return the time for a job, and the answers."""
        state, requests = self.document.state, [*map(self.client.request, operations)]
        begin = thread_time()
        applied = [apply(state, request, NOW) for request in requests]
        took_s = thread_time() - begin
        return took_s / APPLY_BATCH, [each.result() for each in applied]


def measure_apply(bench: Bench, small: Bench, rounds: int) -> Column:
    """Time requests alternately on a deep queue and on the smallest one."""
    pairs = [(bench.cycle(), small.cycle()) for _ in range(rounds + 1)][1:]
    column = {}
    for index, name in enumerate(APPLIED):
        cost_s = median(deep[index] for deep, _ in pairs)
        ratio = median(deep[index] / shallow[index] for deep, shallow in pairs)
        column[f"apply {name}"] = Cell(f"{1e6 * cost_s:.1f} us", ratio, ratio <= MOST_APPLY_RATIO)
    return column


# What a commit costs beside its PUT.


class Changes:
    """The kinds of change that a commit is measured with."""

    def __init__(self, bench: Bench) -> None:
        self._bench = bench
        self._leases: tuple[LeaseRef, ...] = ()

    def claim_one(self) -> None:
        """Change one job."""
        self._ask(Claim(worker="bench", secret=SECRET))

    def claim_many(self) -> None:
        """Change a thousand jobs that stand together."""
        self._ask(Claim(worker="bench", secret=SECRET, limit=MANY))

    def beat_spread(self) -> None:
        """Change a thousand jobs that stand far apart."""
        if not self._leases:
            claim = Claim(worker="bench", secret=SECRET, kinds=("spread",), limit=MANY)
            self._leases = tuple(LeaseRef(job.id, job.lease) for job in self._ask(claim))
        self._ask(Heartbeat(leases=self._leases))

    def undo(self) -> None:
        """Release all jobs, unmeasured."""
        state = self._bench.document.state
        for job_id in list(state.running):
            lease = state.jobs.by_id[job_id].lease or ""
            self._ask(Release(job=job_id, lease=lease))
        self._leases = ()
        prepare(self._bench.document)

    def _ask(self, operation: AnyOperation) -> Any:
        request = self._bench.client.request(operation)
        return apply(self._bench.document.state, request, NOW).result()


async def measure_commits(bench: Bench, store: LocalStore, repeat: int) -> Column:
    """Time commits alternately with bare writes of the same bytes."""
    bench.document = decode(bench.body, "bench")
    changes = Changes(bench)
    kinds: dict[str, Callable[[], None]] = {
        "commit, 1 job": changes.claim_one,
        "commit, 1,000 claimed": changes.claim_many,
        "commit, 1,000 spread": changes.beat_spread,
    }
    etags = {name: await store.put(name, bench.body) for name in ("queue.json", "bare.json")}

    async def put(name: str, body: bytes) -> float:
        begin = perf_counter()
        etags[name] = await store.replace(name, body, etags[name])
        return perf_counter() - begin

    async def commit() -> float:
        begin = thread_time()
        body = prepare(bench.document).body
        return thread_time() - begin + await put("queue.json", body)

    pairs: dict[str, list[tuple[float, float]]] = {name: [] for name in kinds}
    for turn in range(repeat):
        for name, change in kinds.items():
            change()
            if turn % 2:
                bare_s = await put("bare.json", bench.body)
                commit_s = await commit()
            else:
                commit_s = await commit()
                bare_s = await put("bare.json", bench.body)
            pairs[name].append((commit_s, bare_s))
            changes.undo()
    column = {}
    for name in kinds:
        cost_s = median(commit_s for commit_s, _ in pairs[name])
        ratio = median(commit_s / bare_s for commit_s, bare_s in pairs[name])
        is_met = ratio <= MOST_COMMIT_RATIO if bench.size == COMMIT_AIM_SIZE else None
        column[name] = Cell(f"{1e3 * cost_s:.1f} ms", ratio, is_met)
    return column


def read_and_parse(path: Path) -> object:
    """Do the minimum that every reader of the object must do."""
    return msgspec.json.decode(path.read_bytes())


async def measure_load(path: Path, store: LocalStore, repeat: int) -> Column:
    """Time loads alternately with only reading and parsing the bytes."""
    pairs = []
    for _ in range(repeat):
        gc.collect()
        begin = perf_counter()
        document = decode((await store.get(path.name)).body, "bench")
        load_s = perf_counter() - begin
        del document
        gc.collect()
        begin = perf_counter()
        content = read_and_parse(path)
        pairs.append((load_s, perf_counter() - begin))
        del content
    cost_s = median(load_s for load_s, _ in pairs)
    ratio = median(load_s / bare_s for load_s, bare_s in pairs)
    return {"load": Cell(f"{1e3 * cost_s:.1f} ms", ratio, ratio <= MOST_LOAD_RATIO)}


# What a job takes in memory.


def resident_bytes() -> int:
    """How much memory this process has."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    line = next(line for line in status.splitlines() if line.startswith("VmRSS:"))
    return int(line.split()[1]) * 1024


def report_memory(how: str, size: int, path: Path) -> None:
    """Print by how many bytes this process grows with a queue; to be run in a fresh one."""
    decode(prepare(fill(Client(), MANY)).body, "bench")
    gc.collect()
    before = resident_bytes()
    if how == "pushed":
        document = fill(Client(), size)
        kept: object = (document, prepare(document))
    else:
        document = decode(path.read_bytes(), "bench")
        kept = document
        if how == "loaded and committed":
            claim = Claim(worker="bench", secret=SECRET)
            apply(document.state, Client("memory").request(claim), NOW).result()
            kept = (document, prepare(document))
    del document
    gc.collect()
    print(resident_bytes() - before)
    del kept


def measure_memory(size: int, path: Path) -> Column:
    """Measure the memory of a job, with the bytes of the commit in flight if there is one."""
    column = {}
    for how in MEMORY:
        name = f"memory of a job, {how}"
        if size < MEMORY_FROM or not Path("/proc/self/status").exists():
            column[name] = Cell("-")
            continue
        command = [sys.executable, __file__, "--memory", how, "--sizes", str(size)]
        ran = subprocess.run([*command, "--path", str(path)], check=True, stdout=subprocess.PIPE)
        job_bytes = int(ran.stdout) / size
        column[name] = Cell(f"{job_bytes:.0f} B", None, job_bytes <= MOST_JOB_BYTES)
    return column


# The table.


async def measure(size: int, small: Bench, folder: Path, repeat: int) -> Column:
    """Measure everything at one depth."""
    store = LocalStore(folder)
    bench = Bench(size)
    repeat *= SMALL_TURNS if size <= SMALL else 1
    column = measure_apply(bench, small, repeat * APPLY_TURNS)
    column |= await measure_commits(bench, store, repeat)
    path = folder / "queue.json"
    await store.put(path.name, bench.body)
    del bench
    gc.collect()
    column |= await measure_load(path, store, repeat)
    column |= measure_memory(size, path)
    await store.close()
    return column


AIMS = {
    "apply": f"at most {MOST_APPLY_RATIO:g}x that of {SIZES[0]:,} jobs",
    "commit": f"at most {MOST_COMMIT_RATIO:g}x the bare PUT at {COMMIT_AIM_SIZE:,}",
    "load": f"at most {MOST_LOAD_RATIO:g}x read and parse",
    "memory": f"at most {MOST_JOB_BYTES:,} B",
}


def show(columns: dict[int, Column]) -> str:
    """Lay out the table."""
    rows = [["", *(f"{size:,} jobs" for size in columns), "aim", ""]]
    for name in next(iter(columns.values())):
        cells = [column[name] for column in columns.values()]
        verdicts = [cell.is_met for cell in cells if cell.is_met is not None]
        verdict = ("met" if all(verdicts) else "MISSED") if verdicts else "-"
        rows.append([name, *map(_text, cells), AIMS[name.split()[0].strip(",")], verdict])
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    figures = range(1, len(columns) + 1)
    return "\n".join(
        "  ".join(
            text.rjust(width) if place in figures else text.ljust(width)
            for place, (text, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    )


def _text(cell: Cell) -> str:
    return cell.figure if cell.ratio is None else f"{cell.figure} {cell.ratio:5.2f}x"


def filesystem_of(path: Path) -> str:
    """Name the filesystem that a path is on."""
    mounts = Path("/proc/mounts")
    if not mounts.exists():
        return "unknown"
    entries = (line.split()[:3] for line in mounts.read_text(encoding="utf-8").splitlines())
    return max((len(at), kind) for _, at, kind in entries if path.is_relative_to(at))[1]


def main() -> None:
    """Measure, and print the table."""
    parser = argparse.ArgumentParser(description="Measure the core of bucketq.")
    parser.add_argument("--sizes", default=",".join(map(str, SIZES)), help="numbers of jobs")
    parser.add_argument("--repeat", type=int, default=5, help="how often each thing is measured")
    parser.add_argument("--dir", type=Path, default=Path("/var/tmp"), help="a folder on a disk")
    parser.add_argument("--memory", choices=MEMORY, help=argparse.SUPPRESS)
    parser.add_argument("--path", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    sizes = [int(size) for size in options.sizes.split(",")]
    if options.memory:
        report_memory(options.memory, sizes[0], options.path)
        return
    with tempfile.TemporaryDirectory(dir=options.dir) as name:
        folder = Path(name).resolve()
        print(
            f"Python {platform.python_version()}, msgspec {msgspec.__version__}, "
            f"{platform.system()} {platform.machine()}; files on {filesystem_of(folder)}; "
            f"payloads of {PAYLOAD_BYTES} bytes; medians of {options.repeat}\n"
        )
        small = Bench(SIZES[0])
        columns = {
            size: asyncio.run(measure(size, small, folder, options.repeat)) for size in sizes
        }
    print(show(columns))


if __name__ == "__main__":
    main()
