"""The promises of groups and limits: take the reason away, and the simulator finds out."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime
from typing import Any

import pytest

from bucketq.model.effects.limits import limit_changes, turns
from bucketq.model.effects.limits.limit_room import LimitRoom, Room
from bucketq.model.effects.limits.turns import Turns
from bucketq.model.indexes.lane import lane_of
from bucketq.model.indexes.running_jobs import RunningJobs
from bucketq.model.limits import BucketRecord, LimitRecord
from bucketq.model.records import JobRecord
from bucketq.model.state import State
from simulator.simulation import simulate
from tests.simulation.test_mutants import expect

Patch = pytest.MonkeyPatch


@pytest.mark.parametrize("deep", [pytest.param(False, marks=pytest.mark.full), True])
def test_groups_take_turns_within_their_limits_under_every_fault(deep: bool) -> None:
    assert simulate(2, scenario="groups", deep=deep).commits > 0


def test_a_slot_that_is_counted_only_once_it_is_full_is_noticed(monkeypatch: Patch) -> None:
    room = LimitRoom._room

    def one_more(self: LimitRoom, target: str, limit: LimitRecord | None, running: int) -> Room:
        return room(self, target, limit, running - 1)

    monkeypatch.setattr(LimitRoom, "_room", one_more)
    expect("no more jobs run than a limit allows", scenario="groups")


def test_a_group_whose_running_jobs_are_forgotten_by_a_reload_is_noticed(
    monkeypatch: Patch,
) -> None:
    add_all = RunningJobs.add_all

    def add_without_groups(self: RunningJobs, jobs: Collection[JobRecord]) -> None:
        add_all(self, jobs)
        self.in_group.clear()

    def remove_without_groups(self: RunningJobs, jobs: Collection[JobRecord]) -> None:
        for job in jobs:
            del self._sizes[job.id]

    monkeypatch.setattr(RunningJobs, "add_all", add_without_groups)
    monkeypatch.setattr(RunningJobs, "remove_all", remove_without_groups)
    expect("no more jobs run than a limit allows", scenario="groups", first=3)


def test_a_start_that_takes_no_token_is_noticed(monkeypatch: Patch) -> None:
    monkeypatch.setattr(LimitRoom, "spend", lambda _self: None)
    expect("a start takes a token", scenario="groups")


def test_a_bucket_that_is_never_empty_is_noticed(monkeypatch: Patch) -> None:
    def always(self: LimitRecord, _full_at: datetime | None, _now: datetime) -> int:
        return self.rate or 1

    monkeypatch.setattr(LimitRecord, "tokens", always)
    expect("no more start than there are tokens", scenario="groups")


def test_a_bucket_that_is_forgotten_too_early_is_noticed(monkeypatch: Patch) -> None:
    def first_ones(state: State, _now: datetime) -> Any:
        while (first := state.buckets.first_full()) is not None:
            yield first

    def forget(state: State, bucket: BucketRecord, _now: datetime) -> None:
        state.forget("buckets", bucket.id)

    for name, other in (("buckets_to_mend", first_ones), ("mend_bucket", forget)):
        monkeypatch.setattr(limit_changes, name, other)
        monkeypatch.setattr(f"bucketq.model.effects.operators.{name}", other)
    expect("a bucket that is forgotten was full", "a start takes a token", scenario="groups")


def test_turns_that_are_not_kept_are_noticed(monkeypatch: Patch) -> None:
    monkeypatch.setattr(Turns, "commit", lambda self: self._room.spend())
    expect("groups take turns", scenario="groups")


def test_one_turn_for_all_kinds_is_noticed(monkeypatch: Patch) -> None:
    monkeypatch.setattr(turns, "_digest", lambda _kinds: "")
    expect("groups take turns", scenario="groups")


def test_jobs_of_a_group_out_of_order_are_noticed(monkeypatch: Patch) -> None:
    find = Turns._find

    def backwards(self: Turns, group: str, kinds: Any) -> JobRecord | None:
        job = find(self, group, kinds)
        if job is None or not group:
            return job
        lane = self._state.waiting.lanes[lane_of(job.kind, group)]
        others = [each for each in lane._run[lane._head :] if each.order > job.order]
        by_id = self._state.jobs.by_id
        waiting = [each for each in others if by_id.get(each.id) is each]
        if not waiting or waiting[0].priority != job.priority:
            return job
        lane._run.remove(waiting[0])
        lane._run.insert(lane._head, waiting[0])
        return waiting[0]

    monkeypatch.setattr(Turns, "_find", backwards)
    expect("first in, first out", scenario="groups")
