"""The promises about workers and operators: take the reason away, and the simulator finds out."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pytest
from msgspec.structs import replace

from bucketq.broker import leader
from bucketq.model.oversight import announcements, audit_notes
from bucketq.model.state import State
from bucketq.model.transitions import Applied
from bucketq.model.worker_records import WorkerRecord
from simulator.simulation import simulate
from tests.simulation.test_mutants import expect

Patch = pytest.MonkeyPatch
_PUT = announcements._put


def test_engines_are_drained_under_every_fault() -> None:
    assert simulate(5, scenario="engines").commits > 0


def test_a_broker_that_forgets_requests_to_finish_is_noticed(monkeypatch: Patch) -> None:
    def answer(self: Any, worker: Any, state: State, _looked_s: float) -> Applied:
        self._workers.hear(worker, state, 0.0)
        return Applied(answer=False, error=None, changes=[])

    monkeypatch.setattr(leader._LeaderHooks, "_note_worker", answer)
    expect("a worker learns that it is to finish", scenario="engines", first=2)


def test_a_renewal_that_drops_the_request_is_noticed(monkeypatch: Patch) -> None:
    def put(state: State, row: WorkerRecord) -> None:
        known = state.workers.get(row.id)
        is_renewed = known is not None and known.at != row.at
        _PUT(state, replace(row, draining=False) if is_renewed else row)

    monkeypatch.setattr(announcements, "_put", put)
    monkeypatch.setattr(announcements, "RENEWALS", 500)
    expect("a request to finish is kept", scenario="engines", first=2)


def test_actions_that_are_not_noted_are_noticed(monkeypatch: Patch) -> None:
    def forget(_state: State, _request: Any, _answer: Any, _now: datetime, _by: str) -> None:
        """Note nothing."""

    monkeypatch.setattr(audit_notes, "note", forget)
    expect("what operators do is audited", scenario="brokers")
