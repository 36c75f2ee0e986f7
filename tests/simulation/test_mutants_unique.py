"""The promises of unique jobs: take the reason away, and the simulator finds out."""

from __future__ import annotations

from typing import Any

import pytest

from bucketq.model.effects import unique_jobs
from bucketq.model.indexes.cold_rows import ColdRows
from bucketq.model.indexes.unique_index import UniqueIndex
from bucketq.model.records import JobRecord
from bucketq.model.state import State
from simulator.simulation import simulate
from tests.simulation.test_mutants import expect

Patch = pytest.MonkeyPatch


@pytest.mark.parametrize("deep", [pytest.param(False, marks=pytest.mark.full), True])
def test_unique_names_hold_under_every_fault(deep: bool) -> None:
    assert simulate(5, scenario="unique", deep=deep).commits > 0


def test_a_name_that_is_forgotten_while_its_job_runs_is_noticed(monkeypatch: Patch) -> None:
    find = UniqueIndex.find

    def find_waiting(self: UniqueIndex, name: str) -> list[JobRecord]:
        return [job for job in find(self, name) if job.status == "queued"]

    monkeypatch.setattr(UniqueIndex, "find", find_waiting)
    expect("a unique name is taken once", scenario="unique")


def test_a_name_that_is_not_looked_for_in_segments_is_noticed(monkeypatch: Patch) -> None:
    def find_nothing(_self: ColdRows, _names: Any) -> dict[str, JobRecord]:
        return {}

    monkeypatch.setattr(ColdRows, "find_unique", find_nothing)
    expect("a unique name is taken once", scenario="unique", deep=True)


def test_a_running_job_that_is_replaced_is_noticed(monkeypatch: Patch) -> None:
    find_taken = unique_jobs.find_taken

    def replace_always(state: State, jobs: Any, *others: Any) -> Any:
        taken = find_taken(state, jobs, *others)
        for job in jobs:
            there = state.jobs.get(taken.ids.get(job.id, ""))
            if there is not None and there.status == "running" and job.replace == "payload":
                taken.changed.append((there, unique_jobs._replaced(there, job, (None, None))))
        return taken

    monkeypatch.setattr(unique_jobs, "find_taken", replace_always)
    expect("a job stays what it is", scenario="unique")
