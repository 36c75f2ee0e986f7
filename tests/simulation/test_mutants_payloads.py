"""The promises of large payloads: take the reason away, and the simulator finds out."""

from __future__ import annotations

from typing import Any

import pytest

from bucketq.archive.side_folder import SideFolder
from bucketq.commit.upkeep.side_sweep import SideSweep
from bucketq.model.effects import side_refs
from bucketq.model.side_objects import PutPart
from bucketq.queue.sender import Sender
from simulator.simulation import simulate
from tests.simulation.test_mutants import expect

Patch = pytest.MonkeyPatch


@pytest.fixture(autouse=True)
def _short_lived(monkeypatch: Patch) -> None:
    """Let what was written be introduced by few versions only, so that there are sweeps."""
    monkeypatch.setattr(side_refs, "_VERSIONS", 12)


@pytest.mark.parametrize(
    ("seed", "deep"), [pytest.param(3, False, marks=pytest.mark.full), (0, True)]
)
def test_large_payloads_are_there_under_every_fault(seed: int, deep: bool) -> None:
    assert simulate(seed, scenario="payloads", deep=deep).commits > 0


def test_a_payload_that_is_deleted_too_early_is_noticed(monkeypatch: Patch) -> None:
    async def nothing(*_: Any) -> set[str]:
        return set()

    monkeypatch.setattr(SideSweep, "_named_by_jobs", nothing)
    monkeypatch.setattr(SideSweep, "_named_by_archive", nothing)
    monkeypatch.setattr(SideFolder, "unmark", nothing)
    expect("what a job names exists", scenario="payloads", deep=True)


def test_a_payload_that_is_named_before_it_is_written_is_noticed(monkeypatch: Patch) -> None:
    send = Sender.send

    async def later(self: Sender, operation: Any, token: str | None = None) -> Any:
        if isinstance(operation, PutPart):
            self._background.start(send(self, operation))
            return None
        return await send(self, operation, token)

    monkeypatch.setattr(Sender, "send", later)
    expect("what a job names exists", scenario="payloads")


def test_payloads_that_are_never_swept_are_noticed(monkeypatch: Patch) -> None:
    async def nothing(*_: Any) -> int:
        return 0

    monkeypatch.setattr(SideSweep, "sweep", nothing)
    expect("what no job names is swept", scenario="payloads", deep=True)
