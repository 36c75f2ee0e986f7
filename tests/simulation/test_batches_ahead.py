"""Worlds in which drivers prepare the next batch while they work on one keep every promise."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pytest
from msgspec.structs import replace

from bucketq.model import transitions
from bucketq.model.effects import leases
from bucketq.model.effects.numbered import consumers, prepared_batches
from bucketq.model.effects.numbered.prepared_batches import Reserved
from bucketq.model.numbered_batches import BatchState, ClaimBatch, ConsumerRecord
from bucketq.model.operations import Expire
from bucketq.model.state import State
from simulator.actors import batch_actors
from simulator.simulation import simulate
from tests.simulation.test_mutants import expect

Patch = pytest.MonkeyPatch
HANDLERS: dict[Any, Any] = transitions._HANDLERS


@pytest.fixture(autouse=True)
def _prepared(monkeypatch: Patch) -> None:
    monkeypatch.setattr(batch_actors, "JOINED", 0.6)
    monkeypatch.setattr(batch_actors, "PREPARED", 0.8)


@pytest.mark.parametrize(
    "seed", [5, *(pytest.param(n, marks=pytest.mark.full) for n in range(6, 36))]
)
def test_nothing_is_lost_or_doubled_under_every_fault(monkeypatch: Patch, seed: int) -> None:
    answers = list[BatchState]()

    def claim(state: State, operation: ClaimBatch, now: datetime) -> BatchState:
        answers.append(consumers.claim(state, operation, now))
        return answers[-1]

    monkeypatch.setitem(HANDLERS, ClaimBatch, claim)
    assert simulate(seed, scenario="batches").commits > 0
    assert seed != 5 or any(answer.prepared for answer in answers)


def test_a_reservation_whose_leases_expire_like_others_is_noticed(monkeypatch: Patch) -> None:
    def expire(state: State, operation: Expire, now: datetime) -> bool:
        job = state.jobs.get(operation.job)
        if job is None or job.status != "running" or job.attempt != operation.attempt:
            return False
        lost = replace(job, lost_leases=job.lost_leases + 1)
        leases._end_attempt(state, lost, now, run_at=None)
        return True

    monkeypatch.setitem(HANDLERS, Expire, expire)
    expect("a reservation costs a job nothing", scenario="batches", first=9)


def test_a_claim_that_leaves_what_was_prepared_behind_is_noticed(monkeypatch: Patch) -> None:
    def look(_state: State, _record: ConsumerRecord, _operation: ClaimBatch) -> Reserved:
        return Reserved()

    monkeypatch.setattr(prepared_batches, "look", look)
    expect("a reservation is given up as a whole", scenario="batches")
