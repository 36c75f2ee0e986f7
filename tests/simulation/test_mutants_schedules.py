"""The promises of schedules: take the reason away, and the simulator finds out."""

from __future__ import annotations

from datetime import datetime

import pytest
from msgspec.structs import replace

from bucketq.commit.upkeep import schedule_firer
from bucketq.model.effects import schedule_changes
from bucketq.model.schedules import Fire, ScheduleRecord
from bucketq.model.state import State
from simulator.simulation import simulate
from tests.simulation.test_mutants import expect

Patch = pytest.MonkeyPatch
_PLAN, _PUT, _RUN_OF = schedule_firer.plan, schedule_changes._put, schedule_changes.run_of


@pytest.mark.parametrize(
    ("seed", "deep"), [(2, False), pytest.param(13, False, marks=pytest.mark.full), (4, True)]
)
def test_schedules_fire_once_under_every_fault(seed: int, deep: bool) -> None:
    assert simulate(seed, scenario="schedules", deep=deep).fired > 10


def test_firing_what_others_have_decided_is_noticed(monkeypatch: Patch) -> None:
    monkeypatch.setattr(schedule_changes, "_is_current", lambda _row, _operation: True)
    expect(
        "what was decided stays decided",
        "a due time fires once",
        "what is due is pushed",
        scenario="schedules",
        first=15,
    )


def test_a_fire_that_does_not_say_what_it_decided_is_noticed(monkeypatch: Patch) -> None:
    def put(state: State, row: ScheduleRecord) -> None:
        old = state.schedules.get(row.id)
        _PUT(state, row if old is None else replace(row, decided_at=old.decided_at))

    monkeypatch.setattr(schedule_changes, "_put", put)
    expect("a due time fires once", "what is due is pushed", scenario="schedules")


def test_a_run_that_is_left_out_is_noticed(monkeypatch: Patch) -> None:
    def plan(schedule: ScheduleRecord, now: datetime) -> Fire | None:
        fire = _PLAN(schedule, now)
        if fire is None or len(fire.runs) < 2:
            return fire
        return replace(fire, runs=fire.runs[1:])

    monkeypatch.setattr(schedule_firer, "plan", plan)
    expect("what is due is pushed", scenario="schedules", first=3)


def test_missed_runs_that_are_pushed_are_noticed(monkeypatch: Patch) -> None:
    def plan(schedule: ScheduleRecord, now: datetime) -> Fire | None:
        return _PLAN(replace(schedule, missed="all"), now)

    monkeypatch.setattr(schedule_firer, "plan", plan)
    expect("what is due is pushed", scenario="schedules", first=11)


def test_ids_that_do_not_follow_from_the_due_time_are_noticed(monkeypatch: Patch) -> None:
    def run_of(row: ScheduleRecord, due: datetime) -> object:
        return _RUN_OF(row, due.replace(microsecond=0))

    monkeypatch.setattr(schedule_changes, "run_of", run_of)
    expect("what is due is pushed", scenario="schedules")
