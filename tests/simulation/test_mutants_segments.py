"""Mistakes that a queue with segments could make, and that a simulated world must notice.

Each test takes one rule of segments away and expects a deep world in which the breach shows, under
the name of the rule.
"""

from __future__ import annotations

import asyncio
import re
from datetime import datetime
from typing import Any

import pytest
from msgspec import structs

from bucketq.codec.segment_file import is_segment_id
from bucketq.commit.objects import segment_sweep
from bucketq.commit.objects.segment_folder import SegmentFolder
from bucketq.commit.objects.segment_sweep import ReadNamed
from bucketq.commit.upkeep.segment_upkeep import SegmentUpkeep, _plan
from bucketq.model import transitions
from bucketq.model.base import Operation
from bucketq.model.effects import adoption, pushes, segment_changes
from bucketq.model.indexes.cold_segment import Segment
from bucketq.model.operations import Request
from bucketq.model.records import JobRecord
from bucketq.model.reservations import Adopt, ReservationRecord, reservation_of
from bucketq.model.segments import Gone, Merge, SegmentRecord, Spill
from bucketq.model.state import State
from simulator.fault_schedule import FAULTS_END_S
from simulator.invariants.queue_invariants import InvariantError
from simulator.invariants.segment_invariants import (
    IN_TIME,
    LEFT_OVER,
    NAMED_EXISTS,
    NEVER_SPILLED,
    ONE_PLACE,
)
from simulator.simulation import simulate
from tests.simulation.test_mutants import Patch, expect

PUSHES: dict[Any, Any] = transitions._WITH_REQUEST


def _handle(monkeypatch: Patch, operation: type[Operation], handler: Any) -> None:
    handlers: dict[Any, Any] = transitions._HANDLERS
    monkeypatch.setitem(handlers, operation, handler)


def test_a_lookup_that_misses_rows_which_moved_is_noticed_and_ends_the_world(
    monkeypatch: Patch,
) -> None:
    """They are looked up again, although the same rows were found in versions before."""

    def find_job(self: State, job_id: str) -> JobRecord | None:
        job = find_really(self, job_id)
        if job is None or job_id in self.jobs.by_id or job.seq > self.next_seq - 10:
            return job
        return None

    find_really = State.find_job
    monkeypatch.setattr(State, "find_job", find_job)
    with pytest.raises(InvariantError) as caught:
        simulate(1, scenario="direct", deep=True)
    assert caught.value.invariant == NEVER_SPILLED
    ended = re.search(r"at ([0-9.]+) virtual seconds", caught.value.__notes__[0])
    assert ended is not None
    assert float(ended[1]) < FAULTS_END_S


def test_a_lookup_that_finds_a_row_as_it_was_is_noticed(monkeypatch: Patch) -> None:
    """The same row was found before, at its first attempt."""

    def find_job(self: State, job_id: str) -> JobRecord | None:
        job = find_really(self, job_id)
        if job is None or job.attempt < 2:
            return job
        return structs.replace(job, attempt=job.attempt - 1)

    find_really = State.find_job
    monkeypatch.setattr(State, "find_job", find_job)
    expect(NEVER_SPILLED, deep=True)


def test_naming_a_segment_before_its_put_is_noticed(monkeypatch: Patch) -> None:
    async def put(self: SegmentFolder, segment_id: str, body: bytes) -> None:
        putting = asyncio.get_running_loop().create_task(put_really(self, segment_id, body))
        putting.add_done_callback(lambda done: done.cancelled() or done.exception())
        await asyncio.sleep(0)

    put_really = SegmentFolder.put
    monkeypatch.setattr(SegmentFolder, "put", put)
    expect(NAMED_EXISTS, deep=True)


def test_sweeping_all_that_the_head_does_not_name_is_noticed(monkeypatch: Patch) -> None:
    monkeypatch.setattr(segment_sweep, "_is_settled", lambda _name, _queue: True)
    expect(LEFT_OVER, deep=True)


def test_sweeping_another_incarnation_is_noticed(monkeypatch: Patch) -> None:
    async def sweep(self: SegmentFolder, read_named: ReadNamed) -> int:
        queue, swept = await read_named(), 0
        root = self._root.removesuffix(f"{self._incarnation}/")
        async for info in self._store.list(root):
            name = info.key.rpartition("/")[2].removesuffix(".jsonl")
            is_settled = is_segment_id(name) and segment_sweep._is_settled(name, queue)
            if is_settled and name not in queue.ids:
                await self._store.delete(info.key)
                swept += 1
        return swept

    monkeypatch.setattr(SegmentFolder, "sweep", sweep)
    expect(LEFT_OVER, deep=True)


def test_introducing_a_segment_after_its_time_is_noticed(monkeypatch: Patch) -> None:
    def may_name(state: State, record: SegmentRecord) -> bool:
        return record.id not in state.cold.rows.segments

    monkeypatch.setattr(segment_changes, "_may_name", may_name)
    expect(IN_TIME, NAMED_EXISTS, deep=True)


def test_a_merge_that_forgets_what_is_gone_is_noticed(monkeypatch: Patch) -> None:
    find_really = segment_changes._gone

    def find_none(*given: Any) -> Gone:
        find_really(*given)  # It counts what is taken of each source, too.
        return Gone()

    monkeypatch.setattr(segment_changes, "_gone", find_none)
    expect(ONE_PLACE, "attempts rise", "done is final", deep=True)


def test_a_merge_that_does_not_look_at_its_sources_is_noticed(monkeypatch: Patch) -> None:
    """Two processes merge the same segments, and every row would stand twice."""

    def merge(state: State, operation: Merge, now: datetime) -> int:
        named = state.cold.rows.segments
        if any(source in named for source in operation.sources):
            return segment_changes.merge(state, operation, now)
        for target in operation.targets:
            if segment_changes._may_name(state, target.record):
                state.cold.add(target.record, target.index)
                state.changes.append(("segments", target.record.id))
        return 0

    _handle(monkeypatch, Merge, merge)
    expect(ONE_PLACE, "attempts rise", "done is final", deep=True)


def test_naming_a_spill_with_rows_that_are_cold_already_is_noticed(monkeypatch: Patch) -> None:
    """Another writer has spilled the same rows, under a key of its own."""

    def spill(state: State, operation: Spill, _now: datetime) -> int:
        record, gone = operation.segment.record, Gone()
        if not segment_changes._may_name(state, record):
            return 0
        for position, job in enumerate(operation.jobs):
            if state.find_job(job.id) != job:
                gone.add(position)
        if gone.count == record.rows:
            return 0
        hot = [
            job
            for position, job in enumerate(operation.jobs)
            if position not in gone
            and job.id in state.jobs.by_id
            and not state.cold.is_lent(job.id)
        ]
        segment_changes._take_jobs_out(state, hot)
        state.cold.add(segment_changes._with_gone(record, gone), operation.segment.index)
        segment_changes._note(state, record)
        return len(hot)

    _handle(monkeypatch, Spill, spill)
    expect(ONE_PLACE, deep=True, first=2)


def test_deleting_what_was_dropped_before_its_time_is_noticed(monkeypatch: Patch) -> None:
    """Another writer may have put the same rows under the same key, and be about to name them."""

    async def merge(self: SegmentUpkeep, state: State) -> bool:
        plan = _plan(state, self._clock.now(), self._policy.neighbours)
        merged = await merge_really(self, state)
        folder = self._register.segments.folder
        for source in plan.sources if plan is not None else ():
            await folder._store.delete(folder._key(source.record.id))
        return merged

    merge_really = SegmentUpkeep.merge
    monkeypatch.setattr(SegmentUpkeep, "merge", merge)
    expect(LEFT_OVER, deep=True)


def test_a_merge_of_a_push_that_was_committed_with_other_numbers_is_noticed(
    monkeypatch: Patch,
) -> None:
    """The merger read its sources in a state whose commit has lost a race since."""

    def unchanged(state: State, operation: Merge) -> dict[str, Segment]:
        named = state.cold.rows.segments
        return {name: named[name] for name in operation.sources if name in named}

    monkeypatch.setattr(segment_changes, "_unchanged", unchanged)
    expect(ONE_PLACE, "a job stays what it is", deep=True, first=79)


def test_an_adoption_without_its_reservation_is_noticed(monkeypatch: Patch) -> None:
    """It expired, or another process of the same writer has reserved since."""

    def adopt(state: State, operation: Adopt, now: datetime, request: Request) -> bool:
        if operation.reservation not in state.reservations:
            number = state.reservations.next_seq
            row = ReservationRecord(id=operation.reservation, seq=number, writer="w", at=now)
            state.reservations.put(row)
        return adoption.adopt(state, operation, now, request)

    monkeypatch.setitem(PUSHES, Adopt, adopt)
    expect(IN_TIME, NAMED_EXISTS, deep=True, scenario="batches", first=10)


def test_an_adoption_that_ignores_the_position_is_noticed(monkeypatch: Patch) -> None:
    """Another process has published it since the reservation."""

    def is_published(state: State, operation: Any) -> bool:
        return not isinstance(operation, Adopt) and pushes.is_published(state, operation)

    monkeypatch.setattr(adoption, "is_published", is_published)
    expect(
        "nothing takes effect twice",
        "a position is published once",
        deep=True,
        scenario="batches",
        first=45,
    )


def test_a_sweeper_that_read_before_the_reservation_is_noticed(monkeypatch: Patch) -> None:
    async def sweep(self: SegmentFolder, read_named: ReadNamed) -> int:
        queue = await read_named()
        await asyncio.sleep(5)
        found = [name async for name in self.names()]
        for name in found:
            reserved = reservation_of(name)
            is_free = reserved is not None and reserved[0] not in queue.reservations
            if name not in queue.ids and (is_free or segment_sweep._is_settled(name, queue)):
                await self._store.delete(self._key(name))
        return len(found)

    monkeypatch.setattr(SegmentFolder, "sweep", sweep)
    expect(LEFT_OVER, deep=True, scenario="batches", first=13)


def test_an_adoption_of_what_was_put_under_an_earlier_reservation_is_noticed(
    monkeypatch: Patch,
) -> None:
    """It expired or was given up, and a slow task has reserved again under the same name."""
    monkeypatch.setattr(adoption, "_check_entry", lambda _operation, _record: None)
    expect(IN_TIME, NAMED_EXISTS, deep=True, scenario="batches", first=63)
