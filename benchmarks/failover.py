"""How long failovers take at default settings, by what happens to the leader.

Run it with ``make bench`` or ``python benchmarks/failover.py``.

**Real processes.** Two ``bucketq serve``, on a file and on SeaweedFS, and three clients that push.
The leader is killed (SIGKILL), frozen (SIGSTOP) or cut off (a proxy before it swallows everything,
while it still reaches the storage), and replaced by a fresh one after each round. What is measured
is the time until the first push is acknowledged that began after the fault. A busy machine makes
it longer.

**Virtual time.** The same code with a simulated network and store: a busy machine does not matter,
and one seed is one failover, the same every time. Here a client that starts a broker in its own
process may follow too, and it is counted how often a leader is replaced that only stood still for a
moment, and so should not be.
"""

from __future__ import annotations

import argparse
import logging
import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.chaos.failover import LEADER_FAULTS, with_a_standby
from tests.chaos.verdict import quantiles
from tests.servers import seaweedfs
from tests.servers.process import NotInstalledError
from tests.servers.server import ENVIRON, Server
from tests.simulation.failovers import FAULTS, SUCCESSORS, failover_s, takeovers_in_stalls

STALLS_S = (0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 3.5)


def main() -> int:
    """Play failovers and stalls, and print how they went."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=20, help="real failovers of each kind")
    parser.add_argument("--seed", type=int, default=0, help="when leaders fail")
    parser.add_argument("--seeds", type=int, default=100, help="virtual failovers of each kind")
    parser.add_argument("--stalls", type=int, default=5, help="seeds for each length of a stall")
    parser.add_argument("--place", choices=["file", "seaweedfs"], help="only there (default: both)")
    given = parser.parse_args()
    logging.disable(logging.CRITICAL)
    os.environ.update(ENVIRON)
    if given.rounds:
        print_real(given.rounds, given.seed, given.place)
    if given.seeds:
        print_virtual(given.seeds)
    if given.stalls:
        print_stalls(given.stalls)
    return 0


def print_real(rounds: int, seed: int, only: str | None) -> None:
    """Let real leaders fail."""
    say(heading("real", "place"))
    for place in ("file", "seaweedfs"):
        if only not in (None, place):
            continue
        try:
            with place_for(place) as server:
                for fault in LEADER_FAULTS:
                    url = server.url() if server else ""
                    with tempfile.TemporaryDirectory(prefix="bucketq-bench-") as name:
                        times_s = with_a_standby(Path(name), rounds, seed, fault=fault, url=url)
                    say(row(fault, place, times_s))
        except NotInstalledError as error:
            say(str(error))


@contextmanager
def place_for(name: str) -> Iterator[Server | None]:
    """A server of objects, or None for a file."""
    if name == "file":
        yield None
        return
    with tempfile.TemporaryDirectory(prefix="bucketq-bench-") as folder:
        server = seaweedfs.start(Path(folder))
        try:
            yield server
        finally:
            server.stop()


def print_virtual(seeds: int) -> None:
    """Let simulated leaders fail."""
    say("\n" + heading("virtual", "successor"))
    for successor in SUCCESSORS:
        for fault in FAULTS:
            times_s = [failover_s(seed, fault, successor) for seed in range(seeds)]
            say(row(fault, successor, times_s))


def print_stalls(seeds: int) -> None:
    """Let simulated leaders stand still for a moment."""
    say(f"\n{'stall':<10} {'stalls':>9} {'takeovers':>10}")
    for stall_s in STALLS_S:
        counts = [takeovers_in_stalls(seed, stall_s) for seed in range(seeds)]
        say(f"{stall_s:<6.1f} s   {20 * len(counts):>9} {sum(counts):>10}")


def heading(kind: str, by: str) -> str:
    """The first line of a table."""
    return f"{kind:<10} {by:<10} {'failovers':>9} {'p50':>8} {'p99':>8} {'max':>8}"


def row(fault: str, by: str, times_s: list[float]) -> str:
    """A line of a table."""
    columns = " ".join(f"{text:>8}" for _, text in quantiles(times_s))
    return f"{fault:<10} {by:<10} {len(times_s):>9} {columns}"


def say(text: str) -> None:
    """Print a line at once."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
