"""Mistakes that a queue with a history could make, and that a simulated world must notice.

Each test takes one rule of the history away and expects a world in which the breach shows, under
the name of the rule.
"""

from __future__ import annotations

import asyncio
from datetime import datetime
from typing import Any

import pytest

from bucketq.codec.document import Document, Prepared
from bucketq.codec.history_file import ChangesName
from bucketq.commit.objects import segment_sweep
from bucketq.commit.objects.history_folder import HistoryFolder
from bucketq.commit.objects.queue_history import QueueHistory
from bucketq.commit.objects.register import Register
from bucketq.commit.objects.segment_sweep import NamedSegments
from bucketq.commit.upkeep.history_keeper import HistoryKeeper
from bucketq.errors import StoreRefusedError
from bucketq.model import transitions
from bucketq.model.effects import history_changes
from bucketq.model.history import ChangeRecorder, DropChanges, History, NameCopy
from bucketq.model.records import JobRecord
from bucketq.model.state import State
from simulator.invariants.history_invariants import COPY_WHOLE, LANDED_ROWS, NO_HOLE, REPLAYS
from tests.simulation.test_mutants import Patch, expect


def test_a_copy_that_is_named_after_its_segments_were_dropped_is_noticed(
    monkeypatch: Patch,
) -> None:
    def name_copy(state: State, operation: NameCopy, now: datetime) -> bool:
        careless = NameCopy(copy=operation.copy, names=())
        return history_changes.name_copy(state, careless, now)

    handlers: dict[Any, Any] = transitions._HANDLERS
    monkeypatch.setitem(handlers, NameCopy, name_copy)
    expect(COPY_WHOLE, first=11, deep=True, remembers=True)


@pytest.mark.full
def test_a_sweep_that_does_not_look_at_copies_is_noticed(monkeypatch: Patch) -> None:
    async def named_by(self: QueueHistory, state: State) -> NamedSegments:
        del self
        return segment_sweep.named_by(state)

    monkeypatch.setattr(QueueHistory, "named_by", named_by)
    expect(COPY_WHOLE, first=1, deep=True, remembers=True)


def test_rows_of_versions_that_may_be_lost_are_noticed(monkeypatch: Patch) -> None:
    """Rows are put when the commit is encoded, and not once it has landed."""

    def begin(self: HistoryKeeper, submit: Any, register: Register, clock: Any) -> None:
        begin_really(self, submit, register, clock)
        keepers[id(register)] = self

    def prepare(self: Register, document: Document) -> Prepared:
        prepared = prepare_really(self, document)
        if (keeper := keepers.get(id(self))) is not None:
            keeper.notice(document.state, prepared.body)
        return prepared

    keepers: dict[int, HistoryKeeper] = {}
    begin_really, prepare_really = HistoryKeeper.__init__, Register.prepare
    monkeypatch.setattr(HistoryKeeper, "__init__", begin)
    monkeypatch.setattr(Register, "prepare", prepare)
    expect(LANDED_ROWS, deep=True, remembers=True)


def test_dropping_rows_before_they_are_put_is_noticed(monkeypatch: Patch) -> None:
    async def put(self: HistoryFolder, name: ChangesName, body: bytes) -> None:
        putting = asyncio.get_running_loop().create_task(put_really(self, name, body))
        putting.add_done_callback(lambda done: done.cancelled() or done.exception())
        await asyncio.sleep(0)

    put_really = HistoryFolder.put_changes
    monkeypatch.setattr(HistoryFolder, "put_changes", put)
    expect(NO_HOLE, deep=True, remembers=True)


@pytest.mark.full
def test_giving_rows_up_without_saying_so_is_noticed(monkeypatch: Patch) -> None:
    def drop(state: State, operation: DropChanges, now: datetime) -> int:
        silent = DropChanges(last=operation.last)
        return history_changes.drop_changes(state, silent, now)

    async def refuse(self: HistoryFolder, name: ChangesName, body: bytes) -> None:
        del self, body
        message = f"{name} is refused"
        raise StoreRefusedError(message)

    handlers: dict[Any, Any] = transitions._HANDLERS
    monkeypatch.setitem(handlers, DropChanges, drop)
    monkeypatch.setattr(HistoryFolder, "put_changes", refuse)
    expect(NO_HOLE, deep=True, remembers=True)


def test_a_row_that_forgets_jobs_that_left_is_noticed(monkeypatch: Patch) -> None:
    def remove(self: ChangeRecorder, job: JobRecord) -> None:
        del self, job

    monkeypatch.setattr(ChangeRecorder, "remove", remove)
    expect(REPLAYS, deep=True, remembers=True)


@pytest.mark.full
def test_deleting_what_is_still_in_the_history_is_noticed(monkeypatch: Patch) -> None:
    """The sweeper goes by a state in memory, whose commit may be lost."""

    async def sweep(self: HistoryFolder, state: State) -> int:
        ahead = History(state.history.since and state.version + 1)
        state.history = ahead
        return await sweep_really(self, state)

    sweep_really = HistoryFolder.sweep
    monkeypatch.setattr(HistoryFolder, "sweep", sweep)
    expect(NO_HOLE, COPY_WHOLE, deep=True, remembers=True)
