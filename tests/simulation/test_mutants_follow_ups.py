"""The promises of follow-up jobs: take the reason away, and the simulator finds out."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pytest
from msgspec.structs import replace

from bucketq.errors import LeaseLostError
from bucketq.model import transitions
from bucketq.model.effects import leases
from bucketq.model.effects.follow_ups import push_follow_ups
from bucketq.model.operations import Complete, Request
from bucketq.model.records import JobRecord
from bucketq.model.requests import repeats
from bucketq.model.state import State
from simulator.simulation import simulate
from tests.simulation.test_mutants import expect

Patch = pytest.MonkeyPatch
_COMPLETE, _SNOOZE, _REMEMBER = leases.complete, leases._snooze, repeats.remember


def replace_complete(monkeypatch: Patch, complete: Any) -> None:
    handlers: dict[Any, Any] = dict(transitions._HANDLERS)
    monkeypatch.setattr(transitions, "_HANDLERS", handlers | {Complete: complete})


@pytest.mark.parametrize(
    ("seed", "deep"),
    [(4, False), (5, True), *(pytest.param(n, n == 3, marks=pytest.mark.full) for n in (2, 3))],
)
def test_follow_ups_hold_under_every_fault(seed: int, deep: bool) -> None:
    assert simulate(seed, scenario="follow-ups", deep=deep).follow_ups > 10


def test_pushing_although_the_lease_was_lost_is_noticed(monkeypatch: Patch) -> None:
    def complete(state: State, operation: Complete, now: datetime) -> None:
        try:
            _COMPLETE(state, operation, now)
        except LeaseLostError:
            if state.jobs.get(operation.job) is None or not operation.follow_ups:
                raise
            push_follow_ups(state, operation, now)

    replace_complete(monkeypatch, complete)
    expect("a follow-up needs a completion", scenario="follow-ups")


def test_pushing_again_when_a_completion_is_repeated_is_noticed(monkeypatch: Patch) -> None:
    def complete(state: State, operation: Complete, now: datetime) -> None:
        job = state.jobs.get(operation.job)
        is_done = job is not None and job.status == "done" and job.lease == operation.lease
        _COMPLETE(state, operation, now)
        if is_done:
            again = [replace(each, id=f"{each.id}-again") for each in operation.follow_ups]
            push_follow_ups(state, replace(operation, follow_ups=tuple(again)), now)

    def remember(state: State, request: Request, *others: Any) -> None:
        if not isinstance(request.operation, Complete):
            _REMEMBER(state, request, *others)

    replace_complete(monkeypatch, complete)
    monkeypatch.setattr(repeats, "remember", remember)  # Sessions would hide it.
    expect(
        "a follow-up needs a completion",
        "a completion pushes its follow-ups",
        scenario="follow-ups",
    )


def test_a_completion_that_pushes_nothing_is_noticed(monkeypatch: Patch) -> None:
    monkeypatch.setattr(leases, "push_follow_ups", lambda *_: None)
    expect("a completion pushes its follow-ups", scenario="follow-ups")


def test_a_snooze_that_costs_an_attempt_is_noticed(monkeypatch: Patch) -> None:
    def snooze(state: State, job: JobRecord, delay_s: float, now: datetime) -> str:
        return _SNOOZE(state, replace(job, failures=job.failures + 1), delay_s, now)

    monkeypatch.setattr(leases, "_snooze", snooze)
    expect("an attempt ends once", scenario="follow-ups")
