"""``python -m simulator``: simulate worlds, seed after seed, and report what broke."""

from __future__ import annotations

import argparse
import logging
import sys
import traceback

from simulator.fault_schedule import WEATHERS, Weather
from simulator.scenarios import CASTS, Cast
from simulator.simulation import Report, simulate

_FAIR_EVERY = 10


def main() -> int:
    """Run the seeds that the command line asks for."""
    parser = argparse.ArgumentParser(
        prog="python -m simulator",
        description="Simulate a queue under faults. One seed is one world, the same every time.",
    )
    parser.add_argument("--seed", type=int, help="the seed to play, or to begin with (default 0)")
    parser.add_argument("--seeds", type=int, help="how many seeds (default 1 with --seed, or 100)")
    parser.add_argument(
        "--cast", choices=CASTS, help="who lives there (default: as the seed has it)"
    )
    parser.add_argument(
        "--weather",
        choices=WEATHERS,
        help="what befalls them (default: a storm, and all others for every tenth seed)",
    )
    parser.add_argument("--log", action="store_true", help="show what brokers log")
    arguments = parser.parse_args()
    logging.disable(logging.NOTSET if arguments.log else logging.CRITICAL)
    count = arguments.seeds or (100 if arguments.seed is None else 1)
    first = arguments.seed or 0
    reports: list[Report] = []
    for seed in range(first, first + count):
        for weather in _weathers(seed, arguments.weather):
            report = _play(seed, weather, arguments.cast)
            if report is None:
                return 1
            reports.append(report)
        if count == 1 or (seed + 1) % 25 == 0:
            print(f"seed {seed} held: {_line(reports[-1])}", flush=True)
    _print_total(reports)
    return 0


def _weathers(seed: int, wanted: Weather | None) -> tuple[Weather, ...]:
    if wanted is not None:
        return (wanted,)
    return WEATHERS if seed % _FAIR_EVERY == 0 else WEATHERS[:1]


def _play(seed: int, weather: Weather, cast: Cast | None) -> Report | None:
    try:
        return simulate(seed, weather=weather, cast=cast)
    except Exception as error:  # noqa: BLE001 - whatever broke, name the seed
        options = f"--seed {seed} --weather {weather}" + (f" --cast {cast}" if cast else "")
        print(f"seed {seed} ({weather}) BROKE", file=sys.stderr)
        traceback.print_exception(error)
        print(f"replay it: python -m simulator {options}", file=sys.stderr)
        return None


def _line(report: Report) -> str:
    return (
        f"{report.cast} in {report.weather}: {report.commits} commits, {report.jobs} jobs, "
        f"{report.calls} calls ({report.unknown} unknown), {report.takeovers} takeovers, "
        f"{report.depositions} depositions, {report.lost_leases} lost leases, "
        f"{report.archived} archived ({report.repeated} again), "
        f"{sum(report.faults.values())} faults, {report.virtual_s:.0f} virtual seconds, "
        f"fingerprint {report.fingerprint & 0xFFFFFFFF:08x}"
    )


def _print_total(reports: list[Report]) -> None:
    counts = {
        "casts": _sum([{report.cast: 1} for report in reports]),
        "weathers": _sum([{report.weather: 1} for report in reports]),
        "verdicts": _sum([report.verdicts for report in reports]),
        "faults": _sum([report.faults for report in reports]),
        "handlers": _sum([report.runs for report in reports]),
        "ends": _sum([report.ends for report in reports]),
    }
    print(f"{len(reports)} worlds held every promise")
    print(f"  commits   {sum(r.commits for r in reports)}, calls {sum(r.calls for r in reports)}")
    takeovers, depositions = ([r.takeovers for r in reports], [r.depositions for r in reports])
    print(f"  takeovers {sum(takeovers)}, depositions {sum(depositions)}")
    print(f"  engines   {sum(report.shifts for report in reports)}")
    for name, count in counts.items():
        print(f"  {name:<9} " + ", ".join(f"{each} {count[each]}" for each in sorted(count)))


def _sum(counts: list[dict[str, int]]) -> dict[str, int]:
    total: dict[str, int] = {}
    for each in counts:
        for name, count in each.items():
            total[name] = total.get(name, 0) + count
    return total


if __name__ == "__main__":
    sys.exit(main())
