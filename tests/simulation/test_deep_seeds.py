"""Deep worlds: rows spill to segments, which are merged and swept all the time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import pytest

from simulator.fault_schedule import FAULT_SCHEDULES, FaultSchedule
from simulator.simulation import simulate
from tests.simulation.test_seeds import first_of

SEEDS = 40
GROUPS = 10
SOME_SEEDS = (3101, 3110, 3120)
"""The quickest of each of three scenarios (clients, engines, batches) that together do to segments
all that a group of four does."""
FULL = pytest.mark.full


def grouped() -> list[pytest.ParameterSet]:
    """Return the seeds of an ordinary run, and the groups of all seeds, which are for full runs."""
    groups = [
        pytest.param(range(3100 + group, 3100 + SEEDS, GROUPS), marks=FULL, id=str(group))
        for group in range(GROUPS)
    ]
    return [pytest.param(SOME_SEEDS, id="some"), *groups]


@pytest.mark.parametrize("seeds", grouped())
def test_deep_worlds_under_faults_hold_every_promise(seeds: Sequence[int]) -> None:
    reports = [simulate(seed, deep=True) for seed in seeds]

    counts = Counter[str]()
    for report in reports:
        counts.update(report.segments)
    happened = {"put", "introduced", "merged", "too late", "deleted"}
    assert happened <= {name for name, count in counts.items() if count}
    assert counts["sweepers"] > len(reports)
    assert sum(report.takeovers for report in reports) > 0


@pytest.mark.parametrize(
    "seed", [4002, *(pytest.param(4000 + n, marks=FULL) for n in (0, 1, 3, 4))]
)
@pytest.mark.parametrize("faults", FAULT_SCHEDULES[1:])
def test_healthy_processes_of_deep_queues_are_left_alone(faults: FaultSchedule, seed: int) -> None:
    report = simulate(seed, faults=faults, deep=True)
    assert report.is_deep


@pytest.mark.parametrize("group", first_of(GROUPS, 1))
def test_histories_under_faults_are_complete_and_true(group: int) -> None:
    seeds = range(5000 + group, 5000 + SEEDS, 2 * GROUPS)
    reports = [simulate(seed, deep=True, remembers=True) for seed in seeds]

    counts = Counter[str]()
    for report in reports:
        counts.update(report.past)
    assert {"put", "copied", "kept", "deleted"} <= {name for name, count in counts.items() if count}
