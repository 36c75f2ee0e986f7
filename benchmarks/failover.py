"""How long failovers take, by what happens to the leader and by who follows it.

``python benchmarks/failover.py`` plays them on virtual time, so that a busy machine does not
matter: one seed is one failover, the same every time. It also counts how often a leader is replaced
that only stood still for a moment, and so should not be. ``make chaos`` measures real processes.
"""

from __future__ import annotations

import argparse
import logging
import statistics
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.simulation.failovers import FAULTS, SUCCESSORS, failover_s, takeovers_in_stalls

STALLS_S = (0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 3.5)


def main() -> int:
    """Play failovers and stalls, and print how they went."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=300, help="failovers of each kind")
    parser.add_argument("--stalls", type=int, default=10, help="seeds for each length of a stall")
    given = parser.parse_args()
    logging.disable(logging.CRITICAL)
    say(f"{'fault':<10} {'successor':<10} {'failovers':>9} {'p50':>8} {'p99':>8} {'max':>8}")
    for successor in SUCCESSORS:
        for fault in FAULTS:
            times_s = [failover_s(seed, fault, successor) for seed in range(given.seeds)]
            cuts = statistics.quantiles(times_s, n=100, method="inclusive")
            shown = (statistics.median(times_s), cuts[98], max(times_s))
            columns = " ".join(f"{value:6.2f} s" for value in shown)
            say(f"{fault:<10} {successor:<10} {len(times_s):>9} {columns}")
    say(f"\n{'stall':<10} {'stalls':>9} {'takeovers':>10}")
    for stall_s in STALLS_S:
        counts = [takeovers_in_stalls(seed, stall_s) for seed in range(given.stalls)]
        say(f"{stall_s:<6.1f} s   {20 * len(counts):>9} {sum(counts):>10}")
    return 0


def say(text: str) -> None:
    """Print a line at once."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
