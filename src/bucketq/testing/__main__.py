"""``python -m bucketq.testing``: simulate worlds, seed after seed, and report what broke."""

from __future__ import annotations

import argparse
import sys
import traceback

from bucketq.testing.simulation import Report, simulate


def main() -> int:
    """Run the seeds that the command line asks for."""
    parser = argparse.ArgumentParser(
        prog="python -m bucketq.testing",
        description="Simulate a queue under faults. One seed is one world, the same every time.",
    )
    parser.add_argument("--seed", type=int, help="the seed to play, or to begin with (default 0)")
    parser.add_argument("--seeds", type=int, help="how many seeds (default 1 with --seed, or 100)")
    arguments = parser.parse_args()
    count = arguments.seeds or (100 if arguments.seed is None else 1)
    first = arguments.seed or 0
    reports: list[Report] = []
    for seed in range(first, first + count):
        for storm in (True, False) if seed % 10 == 0 else (True,):
            try:
                reports.append(simulate(seed, storm=storm))
            except Exception as error:  # noqa: BLE001 - whatever broke, name the seed
                print(f"seed {seed} ({'storm' if storm else 'calm'}) BROKE", file=sys.stderr)
                traceback.print_exception(error)
                print(f"replay it: make sim SEED={seed}", file=sys.stderr)
                return 1
        if count == 1 or (seed + 1) % 25 == 0:
            print(f"seed {seed} held: {_line(reports[-1])}")
    _print_total(reports)
    return 0


def _line(report: Report) -> str:
    return (
        f"{report.commits} commits, {report.jobs} jobs, {report.calls} calls "
        f"({report.unknown} unknown), {report.lost_leases} lost leases, "
        f"{report.archived} archived ({report.repeated} again), "
        f"{sum(report.faults.values())} faults, {report.virtual_s:.0f} virtual seconds, "
        f"fingerprint {report.fingerprint & 0xFFFFFFFF:08x}"
    )


def _print_total(reports: list[Report]) -> None:
    faults = _sum([report.faults for report in reports])
    verdicts = _sum([report.verdicts for report in reports])
    print(f"{len(reports)} worlds held every promise")
    print(f"  commits  {sum(r.commits for r in reports)}, calls {sum(r.calls for r in reports)}")
    print("  verdicts " + ", ".join(f"{name} {verdicts[name]}" for name in sorted(verdicts)))
    print("  faults   " + ", ".join(f"{name} {faults[name]}" for name in sorted(faults)))


def _sum(counts: list[dict[str, int]]) -> dict[str, int]:
    total: dict[str, int] = {}
    for each in counts:
        for name, count in each.items():
            total[name] = total.get(name, 0) + count
    return total


if __name__ == "__main__":
    sys.exit(main())
