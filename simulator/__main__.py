"""``python -m simulator``: run seed after seed and report the first one that breaks a promise."""

from __future__ import annotations

import argparse
import logging
import sys
import traceback

from simulator.fault_schedule import FAULT_SCHEDULES, FaultSchedule
from simulator.scenarios import SCENARIOS, Scenario
from simulator.simulation import SimulationReport, simulate

# The default schedule finds most mistakes. The others are narrower, and seven times the work.
_ALL_SCHEDULES_EVERY = 10


def main() -> int:
    """Run the seeds that the command line asks for."""
    parser = argparse.ArgumentParser(
        prog="python -m simulator",
        description="Simulate a queue under faults. A seed gives the same run every time.",
    )
    parser.add_argument("--seed", type=int, help="the first seed (default 0)")
    parser.add_argument("--seeds", type=int, help="how many seeds (default 1 with --seed, or 100)")
    parser.add_argument(
        "--scenario", choices=SCENARIOS, help="which programs run (default: drawn from the seed)"
    )
    parser.add_argument(
        "--faults",
        choices=FAULT_SCHEDULES,
        help="the fault schedule (default: everything, and every tenth seed all schedules)",
    )
    parser.add_argument(
        "--deep",
        action=argparse.BooleanOptionalAction,
        help="whether the queue spills all the time (default: drawn from the seed)",
    )
    parser.add_argument("--log", action="store_true", help="show log messages")
    arguments = parser.parse_args()
    logging.disable(logging.NOTSET if arguments.log else logging.CRITICAL)
    count = arguments.seeds or (100 if arguments.seed is None else 1)
    first = arguments.seed or 0
    reports: list[SimulationReport] = []
    for seed in range(first, first + count):
        for faults in _schedules(seed, arguments.faults):
            report = _simulate(seed, faults, arguments.scenario, deep=arguments.deep)
            if report is None:
                return 1
            reports.append(report)
        if count == 1 or (seed + 1) % 25 == 0:
            print(f"seed {seed} held: {_line(reports[-1])}", flush=True)
    _print_total(reports)
    return 0


def _schedules(seed: int, wanted: FaultSchedule | None) -> tuple[FaultSchedule, ...]:
    if wanted is not None:
        return (wanted,)
    return FAULT_SCHEDULES if seed % _ALL_SCHEDULES_EVERY == 0 else FAULT_SCHEDULES[:1]


def _simulate(
    seed: int, faults: FaultSchedule, scenario: Scenario | None, *, deep: bool | None
) -> SimulationReport | None:
    try:
        return simulate(seed, faults=faults, scenario=scenario, deep=deep)
    except Exception as error:  # noqa: BLE001 - name the seed of any error
        options = f"--seed {seed} --faults {faults}" + (
            f" --scenario {scenario}" if scenario else ""
        )
        if deep is not None:
            options += " --deep" if deep else " --no-deep"
        print(f"seed {seed} ({faults}) BROKE", file=sys.stderr)
        traceback.print_exception(error)
        print(f"replay it: python -m simulator {options}", file=sys.stderr)
        return None


def _line(report: SimulationReport) -> str:
    return (
        f"{report.scenario} with {report.faults}: {report.commits} commits, {report.jobs} jobs, "
        f"{report.calls} calls ({report.unknown} unknown), {report.takeovers} takeovers, "
        f"{report.depositions} depositions, {report.lost_leases} lost leases, "
        f"{report.archived} archived ({report.repeated} again), "
        f"{sum(report.injected.values())} faults, {report.virtual_s:.0f} virtual seconds, "
        f"fingerprint {report.fingerprint & 0xFFFFFFFF:08x}"
    )


def _print_total(reports: list[SimulationReport]) -> None:
    counts = {
        "scenarios": _sum([{report.scenario: 1} for report in reports]),
        "schedules": _sum([{report.faults: 1} for report in reports]),
        "verdicts": _sum([report.verdicts for report in reports]),
        "faults": _sum([report.injected for report in reports]),
        "handlers": _sum([report.runs for report in reports]),
        "ends": _sum([report.ends for report in reports]),
        "segments": _sum([report.segments for report in reports]),
    }
    print(f"{len(reports)} simulations kept every promise")
    print(f"  commits    {sum(r.commits for r in reports)}, calls {sum(r.calls for r in reports)}")
    takeovers, depositions = ([r.takeovers for r in reports], [r.depositions for r in reports])
    from_living = sum(report.false_takeovers for report in reports)
    print(
        f"  takeovers  {sum(takeovers)}, from a living broker {from_living}, "
        f"depositions {sum(depositions)}"
    )
    print(f"  deep       {sum(report.is_deep for report in reports)}")
    print(f"  engines    {sum(report.engine_runs for report in reports)}")
    for name, count in counts.items():
        print(f"  {name:<10} " + ", ".join(f"{each} {count[each]}" for each in sorted(count)))


def _sum(counts: list[dict[str, int]]) -> dict[str, int]:
    total: dict[str, int] = {}
    for each in counts:
        for name, count in each.items():
            total[name] = total.get(name, 0) + count
    return total


if __name__ == "__main__":
    sys.exit(main())
