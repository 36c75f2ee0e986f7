"""The promises to those who wait for jobs: take the reason away, and the simulator finds out."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from bucketq.broker.lease_expiry import LeaseExpiry
from bucketq.codec import Document
from bucketq.commit import archive_search
from bucketq.commit.working_state import WorkingState
from bucketq.errors import JobNotFoundError
from bucketq.model.records import JobRecord, Progress
from bucketq.model.results import JobEnd, Wait, end_of
from simulator.simulation import simulate
from tests.simulation.test_mutants import expect

Patch = pytest.MonkeyPatch


def test_waits_are_answered_truly_under_every_fault() -> None:
    assert simulate(3, scenario="waits").commits > 0


def test_a_result_that_is_shown_before_its_commit_is_noticed(monkeypatch: Patch) -> None:
    def wake_early(self: WorkingState, document: Document) -> None:
        for wait in self.waits.take_changed(document.state.changes):
            job_id = cast("Wait", wait.request.operation).job
            end = end_of(document.state.jobs.by_id[job_id])
            if end is None:
                self.waits.add(wait)
            else:
                wait.resolve(end, None)
        for wait in self.waits.take_expired(asyncio.get_running_loop().time()):
            wait.resolve(None, None)

    monkeypatch.setattr(WorkingState, "_wake_waits", wake_early)
    expect("a result is committed before it is shown", scenario="waits")


def test_a_job_that_is_lost_with_its_archiving_is_noticed(monkeypatch: Patch) -> None:
    async def find_nothing(_archive: Any, _clock: Any, job_id: str) -> JobEnd:
        raise JobNotFoundError(job_id)

    monkeypatch.setattr(archive_search, "find_end", find_nothing)
    expect("a job that was pushed is found", scenario="waits")


def test_progress_that_outlives_its_attempt_is_noticed(monkeypatch: Patch) -> None:
    def progress_of(self: LeaseExpiry, job: JobRecord) -> Progress | None:
        return self._progress.get(job.id, (0, job.progress))[1]

    monkeypatch.setattr(LeaseExpiry, "progress_of", progress_of)
    expect("progress ends with its attempt", scenario="waits")
