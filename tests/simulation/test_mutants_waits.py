"""The promises to those who wait for jobs: take the reason away, and the simulator finds out."""

from __future__ import annotations

import asyncio
from datetime import datetime
from typing import Any, cast

import pytest
from msgspec.structs import replace

from bucketq.broker.lease_expiry import LeaseExpiry
from bucketq.codec.document import Document
from bucketq.codec.result_index import is_result_index_id
from bucketq.commit import archive_search
from bucketq.commit.objects.segment_folder import SegmentFolder
from bucketq.commit.working_state import WorkingState
from bucketq.errors import JobNotFoundError
from bucketq.model import transitions
from bucketq.model.effects import archiving
from bucketq.model.indexes.result_table import ResultTable
from bucketq.model.records import JobRecord, Progress
from bucketq.model.results import JobEnd, SpillResults, Wait, end_of
from bucketq.model.state import State
from simulator.simulation import simulate
from tests.simulation.test_mutants import expect

Patch = pytest.MonkeyPatch


@pytest.mark.parametrize("seed", [2, pytest.param(3, marks=pytest.mark.full)])
def test_waits_are_answered_truly_under_every_fault(seed: int) -> None:
    assert simulate(seed, scenario="waits").commits > 0


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
    expect("progress ends with its attempt", scenario="waits", first=18)


def test_results_that_leave_without_a_trace_are_noticed(monkeypatch: Patch) -> None:
    def note_nothing(*_: Any) -> None:
        """Forget them."""

    monkeypatch.setattr(archiving, "_note_results", note_nothing)
    expect("a result that left is known", scenario="waits")


def test_an_index_of_results_that_is_named_before_it_is_there_is_noticed(
    monkeypatch: Patch,
) -> None:
    put = SegmentFolder.put

    async def put_segments(self: SegmentFolder, segment_id: str, body: bytes) -> None:
        if not is_result_index_id(segment_id):
            await put(self, segment_id, body)

    monkeypatch.setattr(SegmentFolder, "put", put_segments)
    expect("where results are exists", scenario="waits", deep=True)


def test_a_sweep_that_overlooks_the_index_of_results_is_noticed(monkeypatch: Patch) -> None:
    monkeypatch.setattr(ResultTable, "names", lambda _self: set())
    expect("where results are exists", scenario="waits", deep=True)


def test_rows_on_results_that_move_although_they_have_changed_are_noticed(
    monkeypatch: Patch,
) -> None:
    spill = archiving.spill_results

    def spill_any(state: State, operation: SpillResults, now: datetime) -> int:
        rows = tuple(row for row in state.results if not row.has_moved)
        return spill(state, replace(operation, rows=rows), now) if rows else 0

    handlers: dict[Any, Any] = transitions._HANDLERS
    monkeypatch.setitem(handlers, SpillResults, spill_any)
    expect("where results are exists", "a result that left is known", scenario="waits", deep=True)
