"""Worlds in which drivers acknowledge batches by the claim of the next one keep every promise."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pytest
from msgspec.structs import replace

from bucketq.model import transitions
from bucketq.model.effects.numbered import consumers
from bucketq.model.numbered_batches import BatchState, ClaimBatch
from bucketq.model.records import JobRecord
from bucketq.model.state import State
from simulator.actors import batch_actors
from simulator.simulation import simulate
from tests.simulation.test_mutants import expect

Patch = pytest.MonkeyPatch
HANDLERS: dict[Any, Any] = transitions._HANDLERS


@pytest.fixture(autouse=True)
def _joined(monkeypatch: Patch) -> None:
    monkeypatch.setattr(batch_actors, "JOINED", 0.8)


@pytest.mark.parametrize(
    "seed", [9, *(pytest.param(n, marks=pytest.mark.full) for n in range(5, 36) if n != 9)]
)
def test_nothing_is_lost_or_doubled_under_every_fault(monkeypatch: Patch, seed: int) -> None:
    answers = list[BatchState]()

    def claim(state: State, operation: ClaimBatch, now: datetime) -> BatchState:
        answers.append(consumers.claim(state, operation, now))
        return answers[-1]

    monkeypatch.setitem(HANDLERS, ClaimBatch, claim)
    assert simulate(seed, scenario="batches").commits > 0
    assert seed != 9 or any(answer.acked and answer.jobs for answer in answers)


def test_a_claim_that_completes_nothing_of_the_batch_before_is_noticed(monkeypatch: Patch) -> None:
    def complete(_state: State, _held: list[JobRecord], _now: datetime) -> None:
        """Complete nothing."""

    monkeypatch.setattr(consumers, "_complete", complete)
    expect("acknowledged means completed", scenario="batches")


def test_a_claim_that_does_not_close_the_batch_before_is_noticed(monkeypatch: Patch) -> None:
    def claim(state: State, operation: ClaimBatch, now: datetime) -> BatchState:
        record = state.consumers.get(operation.consumer)
        if record is not None and record.is_open and record.batch == operation.acked:
            return BatchState(operation.batch, 0)
        return consumers.claim(state, replace(operation, acked=0), now)

    monkeypatch.setitem(HANDLERS, ClaimBatch, claim)
    expect("closed means closed", scenario="batches")


def test_a_claim_that_acknowledges_again_when_it_is_repeated_is_noticed(monkeypatch: Patch) -> None:
    def claim(state: State, operation: ClaimBatch, now: datetime) -> BatchState:
        record = state.consumers.get(operation.consumer)
        if (
            record is not None
            and operation.acked
            and record.epoch == operation.epoch
            and record.is_open
            and record.batch == operation.batch
        ):
            # As if the batch that is open now were the one that is done.
            operation = replace(operation, batch=operation.batch + 1, acked=operation.batch)
        return consumers.claim(state, operation, now)

    monkeypatch.setitem(HANDLERS, ClaimBatch, claim)
    expect("a batch is closed only if a driver asks for it", scenario="batches", first=97)
