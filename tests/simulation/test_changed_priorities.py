"""Worlds in which operators change the priorities of jobs keep every promise."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pytest

from bucketq.model import transitions
from bucketq.model.effects.operators import set_priority
from bucketq.model.indexes import lane
from bucketq.model.operations import SetPriority
from bucketq.model.records import JobRecord
from bucketq.model.state import State
from simulator.actors import queue_actors
from simulator.simulation import simulate
from tests.simulation.test_mutants import expect

Patch = pytest.MonkeyPatch


@pytest.fixture(autouse=True)
def _reordered(monkeypatch: Patch) -> None:
    monkeypatch.setattr(queue_actors, "REORDERED", 0.5)


@pytest.mark.parametrize("deep", [pytest.param(False, marks=pytest.mark.full), True])
def test_jobs_are_claimed_by_their_new_priorities_under_every_fault(
    monkeypatch: Patch, deep: bool
) -> None:
    changed = list[str]()

    def count(state: State, operation: SetPriority, now: datetime) -> None:
        mark = len(state.changes)
        set_priority(state, operation, now)
        changed.extend([operation.job] if len(state.changes) > mark else [])

    handlers: dict[Any, Any] = transitions._HANDLERS
    monkeypatch.setitem(handlers, SetPriority, count)
    assert simulate(3, scenario="brokers", deep=deep).commits > 0
    assert changed


@pytest.mark.full
def test_a_lane_that_keeps_the_old_place_of_a_job_is_noticed(monkeypatch: Patch) -> None:
    def waiting(
        jobs: dict[str, JobRecord], job_id: str, _priority: int, seq: int
    ) -> JobRecord | None:
        job = jobs.get(job_id)
        return job if job is not None and job.status == "queued" and job.seq == seq else None

    monkeypatch.setattr(lane, "_waiting", waiting)
    expect("first in, first out", scenario="direct")
