"""The promises of batches and held jobs: take the reason away, and the simulator finds out."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any

import pytest
from msgspec.structs import replace

from bucketq.model import transitions
from bucketq.model.effects import operators
from bucketq.model.effects.links import batch_changes, job_ends
from bucketq.model.indexes.followed_jobs import FollowedJobs
from bucketq.model.job_batches import CancelJobs, CancelledJobs
from bucketq.model.records import JobRecord
from bucketq.model.state import State
from simulator.simulation import simulate
from tests.simulation.test_mutants import expect

Patch = pytest.MonkeyPatch


@pytest.mark.parametrize(
    ("seed", "deep"),
    [(2, True), *(pytest.param(3, deep, marks=pytest.mark.full) for deep in (False, True))],
)
def test_batches_and_held_jobs_keep_their_promises_under_every_fault(seed: int, deep: bool) -> None:
    assert simulate(seed, scenario="links", deep=deep).commits > 0


def test_a_batch_that_forgets_what_failed_is_noticed(monkeypatch: Patch) -> None:
    def note_nothing(_self: FollowedJobs, _old: JobRecord, _job: JobRecord) -> None:
        """Ends that are no completions go by."""

    monkeypatch.setattr(FollowedJobs, "note", note_nothing)
    expect("a batch counts its jobs", "a job waits for nothing that has ended", scenario="links")


def test_a_batch_that_is_done_before_its_last_job_is_noticed(monkeypatch: Patch) -> None:
    end = batch_changes.end_if_done

    def end_too_early(state: State, name: str, now: datetime) -> None:
        batch = state.batches.by_id[name]
        if batch.closed_at is not None and batch.counts.open == 1:
            batch_changes.put_batch(state, replace(batch, jobs=batch.jobs - 1))
        end(state, name, now)

    monkeypatch.setattr(job_ends, "end_if_done", end_too_early)
    expect("a batch is done when all its jobs have ended", scenario="links")


def test_a_cancellation_that_no_batch_counts_is_noticed(monkeypatch: Patch) -> None:
    cancel = operators.cancel_jobs

    def cancel_quietly(state: State, operation: CancelJobs, now: datetime) -> CancelledJobs:
        answer = cancel(state, operation, now)
        state.followed.ends.clear()
        return answer

    handlers: dict[Any, Any] = transitions._HANDLERS
    monkeypatch.setitem(handlers, CancelJobs, cancel_quietly)
    expect("a batch counts its jobs", "a job waits for nothing that has ended", scenario="links")


def test_a_cancellation_that_loses_jobs_is_noticed(monkeypatch: Patch) -> None:
    cancel = operators._cancel

    def cancel_and_drop(state: State, job: JobRecord, now: datetime) -> Any:
        answer = cancel(state, job, now)
        if answer == "cancelled":
            state.remove_archived([state.jobs.by_id[job.id]])
        return answer

    monkeypatch.setattr(operators, "_cancel", cancel_and_drop)
    expect(
        "a job is always somewhere",
        "a batch is done when all its jobs have ended",
        "a batch counts its jobs",
        scenario="links",
    )


def test_a_callback_that_is_pushed_twice_is_noticed(monkeypatch: Patch) -> None:
    push = batch_changes._push_callback

    def push_twice(state: State, batch: Any, on_done: Any, now: datetime) -> str:
        push(state, batch, on_done, now)
        return push(state, batch, on_done, now)

    monkeypatch.setattr(batch_changes, "_push_callback", push_twice)
    expect("a batch has one callback, at its end", "nothing takes effect twice", scenario="links")


def test_a_held_job_that_is_handed_out_is_noticed(monkeypatch: Patch) -> None:
    def hold_and_line_up(self: State, job: JobRecord) -> None:
        enter(self, job)
        if job.is_held:
            self._wait(job)

    enter = State._enter
    monkeypatch.setattr(State, "_enter", hold_and_line_up)
    expect("a job starts after those that it waits for", scenario="links")


def test_completions_that_release_nobody_are_noticed(monkeypatch: Patch) -> None:
    def note_batches(self: FollowedJobs, jobs: Iterable[JobRecord]) -> None:
        self.ends += [(job, 1) for job in jobs if job.batch_id is not None]

    def go_on_later(_state: State, _job: JobRecord, _ended: JobRecord, _now: datetime) -> None:
        """Say nothing."""

    monkeypatch.setattr(FollowedJobs, "note_all", note_batches)
    monkeypatch.setattr(job_ends, "_go_on", go_on_later)
    expect("a job waits for nothing that has ended", scenario="links")
