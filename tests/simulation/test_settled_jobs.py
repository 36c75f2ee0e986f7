"""Worlds in which drivers settle jobs of their batches one by one keep every promise."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pytest
from msgspec.structs import replace

from bucketq.model import transitions
from bucketq.model.effects.numbered import failed_batches
from bucketq.model.numbered_batches import BatchState, SettleBatch
from bucketq.model.state import State
from simulator.actors import batch_actors
from simulator.simulation import simulate
from tests.simulation.test_mutants import expect

Patch = pytest.MonkeyPatch
HANDLERS: dict[Any, Any] = transitions._HANDLERS


@pytest.fixture(autouse=True)
def _settled(monkeypatch: Patch) -> None:
    monkeypatch.setattr(batch_actors, "SETTLED", 0.7)


@pytest.mark.parametrize(
    "seed", [3, *(pytest.param(n, marks=pytest.mark.full) for n in range(4, 24))]
)
def test_settled_jobs_leave_their_batch_under_every_fault(monkeypatch: Patch, seed: int) -> None:
    answers = list[BatchState]()

    def settle(state: State, operation: SettleBatch, now: datetime) -> BatchState:
        answers.append(failed_batches.settle(state, operation, now))
        return answers[-1]

    monkeypatch.setitem(HANDLERS, SettleBatch, settle)
    assert simulate(seed, scenario="batches").commits > 0
    assert seed != 3 or any(answer.jobs for answer in answers)


def test_a_settling_that_completes_nothing_is_noticed(monkeypatch: Patch) -> None:
    def settle(state: State, operation: SettleBatch, now: datetime) -> BatchState:
        found = failed_batches.settle(state, replace(operation, jobs=()), now)
        return replace(found, jobs=len(operation.jobs))

    monkeypatch.setitem(HANDLERS, SettleBatch, settle)
    expect("settled means completed", scenario="batches")
