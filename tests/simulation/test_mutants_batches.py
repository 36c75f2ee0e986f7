"""Numbered batches keep their promises for a reason: take it away, and the simulator finds out."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any

import pytest
from msgspec.structs import replace

from bucketq.model import transitions
from bucketq.model.effects import pushes
from bucketq.model.effects.numbered import consumers
from bucketq.model.effects.numbered.batch_members import sort_jobs
from bucketq.model.numbered_batches import (
    AckBatch,
    BatchState,
    ClaimBatch,
    ConsumerRecord,
    Publish,
    ReleaseBatch,
)
from bucketq.model.operations import Request
from bucketq.model.records import JobRecord
from bucketq.model.state import State
from tests.simulation.test_mutants import Patch, expect

Settle = Callable[[list[JobRecord]], None]
HANDLERS: dict[Any, Any] = transitions._HANDLERS
PUSHES: dict[Any, Any] = transitions._WITH_REQUEST
_ONE_SET = "a batch number stands for one set of jobs"


def test_a_batch_that_is_claimed_anew_after_a_crash_is_noticed(monkeypatch: Patch) -> None:
    def claim_again(
        state: State, record: ConsumerRecord, operation: ClaimBatch, now: datetime
    ) -> BatchState:
        state.put_row(replace(record, batch=record.batch - 1, secret="", jobs=()))
        return consumers.claim(state, operation, now)

    monkeypatch.setattr(consumers, "_claim_again", claim_again)
    expect(_ONE_SET, scenario="batches")


def test_a_batch_that_forgets_what_it_has_lost_is_noticed(monkeypatch: Patch) -> None:
    def claim_again(
        state: State, record: ConsumerRecord, operation: ClaimBatch, now: datetime
    ) -> BatchState:
        found = claim_really(state, record, operation, now)
        held = tuple(job for job in record.jobs if job not in found.lost)
        if found.lost and held:
            state.put_row(replace(record, jobs=held))
        return found

    claim_really = consumers._claim_again
    monkeypatch.setattr(consumers, "_claim_again", claim_again)
    expect(_ONE_SET, scenario="batches", first=73)


def test_without_the_epoch_an_older_driver_goes_on(monkeypatch: Patch) -> None:
    def opened(state: State, operation: Any) -> ConsumerRecord:
        record = state.consumers.get(operation.consumer)
        if record is not None:
            operation = replace(operation, epoch=record.epoch)
        return opened_really(state, operation)

    opened_really = consumers._opened
    monkeypatch.setattr(consumers, "_opened", opened)
    expect("an older driver is fenced", scenario="batches")


@pytest.mark.full
def test_an_acknowledgement_of_jobs_that_others_hold_is_noticed(monkeypatch: Patch) -> None:
    def sort(
        state: State, record: ConsumerRecord, ids: tuple[str, ...]
    ) -> tuple[list[JobRecord], tuple[str, ...]]:
        jobs = [state.jobs.get(job_id) for job_id in ids]
        held = [job for job in jobs if job is not None and job.status == "running"]
        return held, tuple(set(ids) - {job.id for job in held})

    monkeypatch.setattr(consumers, "sort_jobs", sort)
    expect("acknowledged means completed", scenario="batches", seeds=120)


def test_an_acknowledgement_that_completes_nothing_is_noticed(monkeypatch: Patch) -> None:
    def acknowledge(state: State, operation: AckBatch, now: datetime) -> BatchState:
        return consumers._close(state, operation, now, lambda _held: None)

    monkeypatch.setitem(HANDLERS, AckBatch, acknowledge)
    expect("acknowledged means completed", scenario="batches")


def test_an_acknowledgement_that_leaves_the_batch_open_is_noticed(monkeypatch: Patch) -> None:
    def close(
        state: State, operation: AckBatch | ReleaseBatch, _now: datetime, settle: Settle
    ) -> BatchState:
        record = state.consumers.by_id[operation.consumer]
        held, lost = sort_jobs(state, record, record.jobs)
        settle(held)
        return BatchState(record.batch, len(held), lost)

    monkeypatch.setattr(consumers, "_close", close)
    expect("closed means closed", scenario="batches")


def test_a_writer_whose_position_is_not_kept_publishes_twice(monkeypatch: Patch) -> None:
    def publish(state: State, operation: Publish, now: datetime, request: Request) -> bool:
        pushes.push(state, operation, now, request)
        return True

    monkeypatch.setitem(PUSHES, Publish, publish)
    expect("a position is published once", "a job that has left stays away", scenario="batches")


def test_a_position_that_is_kept_before_its_jobs_is_noticed(monkeypatch: Patch) -> None:
    def publish(state: State, operation: Publish, now: datetime, request: Request) -> bool:
        return publish_really(state, replace(operation, jobs=operation.jobs[:-1]), now, request)

    publish_really = pushes.publish
    monkeypatch.setitem(PUSHES, Publish, publish)
    expect("acknowledged means durable", "all or none", scenario="batches")
