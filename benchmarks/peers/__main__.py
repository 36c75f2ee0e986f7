"""bucketq beside other queues: one alternating run on one machine, everything durable.

Run it with ``make bench-peers``, which installs the peers into environments of their own, or with
``build/peers/all/bin/python -m benchmarks.peers``; ``--quick`` tries everything out. ``--only
NAME...`` and ``--cells NAME...`` choose rows and columns.

Each round measures cell after cell, and within a cell row after row, so that the rows of a cell are
measured within a minute or two of each other. Each measurement has a new server in a scratch
folder, new client processes, and payloads of 100 bytes. A step, with all that it starts and fills,
takes five to ten seconds; sustained runs take two minutes, once. What is measured goes to one JSON
file after each step, and ``python -m benchmarks.peers.render`` makes the page from it, with medians
and spread. After 43 minutes no step is started, so that a run ends within 45.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from time import perf_counter, sleep

from benchmarks.peers.aims import verdicts
from benchmarks.peers.cells import (
    Bench,
    Figures,
    burst,
    cost,
    depth,
    failover,
    interpreter,
    start,
    sustained,
)
from benchmarks.peers.render import RESULTS, render, write
from benchmarks.peers.results import Measurement, Results
from benchmarks.peers.servers import (
    ROOT,
    MissingServerError,
    postgres_program,
    redis_server,
    scratch_folder,
)
from benchmarks.peers.table import (
    BURSTS,
    CELLS,
    DEPTHS,
    PEERS,
    SUSTAINED,
    Peer,
    measured,
)

ROUNDS = 3
BURST_S = 2.5
"""How long a figure is measured in a round: as long as three rounds of everything, six sustained
runs, and all that has to be started and filled end within 45 minutes."""
MINUTES_MAX = 43
"""When no further step is started: the last may take two minutes."""
SUSTAINED_S = 120.0
QUICK_S = 1.0
QUICK_DEPTH_MAX = 100_000
"""A quick run leaves out what takes a minute to fill."""
TRIED = RESULTS.with_name("tried.json")
"""Where a run of some rows or cells goes, so that it does not replace a whole one."""
IDLE_S = 2.0
"""How long other programs are watched before a round."""

Cell = Callable[[Peer, str, Bench], Iterator[tuple[str, Figures]]]


def function_of(cell: str) -> Cell:
    """The function that measures a cell."""
    if cell in BURSTS:
        return burst
    if cell in DEPTHS:
        return depth
    if cell in SUSTAINED:
        return sustained
    return {"failover": failover, "start": start, "cost": cost}[cell]


def steps(peers: list[Peer], cells: list[str], rounds: int) -> Iterator[tuple[int, str, Peer]]:
    """Everything that is to be done, in order; long runs and counts are done once."""
    for number in range(rounds):
        for cell, peer in measured(peers, cells):
            if number == 0 or not (cell in SUSTAINED or cell == "cost"):
                yield number, cell, peer


def run(
    results: Results,
    peers: list[Peer],
    cells: list[str],
    bench: Bench,
    path: Path,
    minutes_max: float = MINUTES_MAX,
) -> None:
    """Measure step by step until the time is over, and write what was measured after each."""
    last_round, over = -1, perf_counter() + 60 * minutes_max
    for number, cell, peer in steps(peers, cells, results.rounds):
        if perf_counter() > over:
            results.failures[f"round {number + 1} from {cell} on"] = "the time was over"
            break
        if number != last_round:
            results.others.append(others())
            last_round = number
        name = f"{peer.name}/{cell}"
        if name in results.failures:
            continue
        begin = perf_counter()
        try:
            for work, figures in function_of(cell)(peer, cell, bench):
                results.measurements.append(Measurement(peer.name, cell, work, number, figures))
                shown = ", ".join(f"{key} {value:,.4g}" for key, value in figures.items())
                print(f"round {number + 1}  {name:<30} {work:<15} {shown}", flush=True)
        except Exception as error:  # noqa: BLE001 - one peer's failure leaves the others' figures
            results.failures[name] = f"{error}"
            print(f"round {number + 1}  {name:<30} failed: {error}", flush=True)
        print(f"{'':>45} took {perf_counter() - begin:.1f} s", flush=True)
        results.write(path)


def others() -> float:
    """The share of the machine that other programs use, while nothing of this run is running."""

    def ticks() -> list[int]:
        line = Path("/proc/stat").read_text(encoding="ascii").splitlines()[0]
        return [int(field) for field in line.split()[1:9]]

    before = ticks()
    sleep(IDLE_S)
    spent = [now - then for now, then in zip(ticks(), before, strict=True)]
    return 1 - (spent[3] + spent[4]) / max(1, sum(spent))


def available(peers: list[Peer], results: Results) -> list[Peer]:
    """The rows that can be measured here; the others are kept with the reason."""
    found = []
    for peer in peers:
        try:
            results.versions[peer.name] = versions_of(peer)
            found.append(peer)
        except (MissingServerError, FileNotFoundError, subprocess.CalledProcessError) as error:
            printed = getattr(error, "stderr", "") or str(error)
            results.failures[peer.name] = peer.needs or printed.strip().splitlines()[-1]
            print(f"{peer.name} is left out: {results.failures[peer.name]}", flush=True)
    return found


def versions_of(peer: Peer) -> dict[str, str]:
    """The versions of a row's packages and of its server."""
    program = (
        "import json, platform, sqlite3, sys; from importlib.metadata import version;"
        "found = {name: version(name) for name in sys.argv[1:]};"
        "print(json.dumps(found | {'Python': platform.python_version()}"
        " | ({'SQLite': sqlite3.sqlite_version} if 'litequeue' in found else {})))"
    )
    command = [str(interpreter(peer)), "-c", program, *peer.distributions]
    printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    found: dict[str, str] = json.loads(printed)
    if peer.server == "redis":
        words = output(redis_server(), "--version").split()
        found["Redis"] = next(word[2:] for word in words if word.startswith("v="))
    if peer.server == "postgres":
        found["PostgreSQL"] = output(postgres_program("postgres"), "--version").split()[2]
    if peer.is_ours:
        found["bucketq"] += commit()
    return found


def commit() -> str:
    """The commit that is measured, if this is a checkout."""
    try:
        return f" ({output('git', '-C', str(ROOT), 'describe', '--always', '--dirty')})"
    except (FileNotFoundError, subprocess.CalledProcessError):
        return ""


def output(*command: str) -> str:
    """What a command prints."""
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def machine() -> str:
    """The machine, in a line."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        names = [line.split(":")[1].strip() for line in lines if line.startswith("model name")]
    except OSError:
        names = []
    cpu = names[0] if names else platform.processor() or "an unnamed processor"
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    system = platform.freedesktop_os_release().get("PRETTY_NAME", platform.system())
    return f"{os.cpu_count()} cores ({cpu}), {memory:.0f} GiB, {system}, {platform.machine()}"


def results_path(options: argparse.Namespace) -> Path:
    """Where results go."""
    is_whole = not options.quick and not options.cells and len(options.only) == len(PEERS)
    chosen: Path | None = options.results
    return chosen or (RESULTS if is_whole else TRIED)


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.peers", description="Measure bucketq beside other queues."
    )
    names = [peer.name for peer in PEERS]
    parser.add_argument("--only", nargs="+", choices=names, default=names, metavar="NAME",
                        help=f"rows: {', '.join(names)}")  # fmt: skip
    parser.add_argument("--cells", nargs="+", choices=CELLS, metavar="NAME",
                        help=f"columns: {', '.join(CELLS)}")  # fmt: skip
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="how often all is measured")
    parser.add_argument("--quick", action="store_true", help="one round of 1 s, for trying it out")
    parser.add_argument("--dir", type=Path, default=Path("/var/tmp"), help="a folder on a disk")
    parser.add_argument(
        "--results", type=Path, help="where to write results (default: build/peers)"
    )
    parser.add_argument("--docs", action="store_true", help="also write the page in docs/")
    return parser.parse_args(arguments)


def main() -> int:
    """Measure, and show the table."""
    options = parse()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    # Installed packages are compiled; without this, bucketq's own modules would be at every start.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    rounds = 1 if options.quick else options.rounds
    cells = options.cells or [
        cell for cell in CELLS if not options.quick or DEPTHS.get(cell, 0) <= QUICK_DEPTH_MAX
    ]
    results = Results(
        command=" ".join(["python -m benchmarks.peers", *sys.argv[1:]]),
        made_at=datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        machine=machine(),
        is_quick=options.quick,
        rounds=rounds,
        burst_s=QUICK_S if options.quick else BURST_S,
        sustained_s=4 * QUICK_S if options.quick else SUSTAINED_S,
    )
    peers = available([peer for peer in PEERS if peer.name in options.only], results)
    with scratch_folder(options.dir) as scratch:
        bench = Bench(scratch, results.burst_s, results.sustained_s)
        run(results, peers, cells, bench, results_path(options))
    print(render(results))
    print(verdicts(results))
    if options.docs:
        write(results)
    return 1 if any("/" in name for name in results.failures) else 0


if __name__ == "__main__":
    sys.exit(main())
