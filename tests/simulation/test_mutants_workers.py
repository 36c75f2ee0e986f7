"""The same for what workers promise: without its reason, each breaks."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from bucketq.client.client_connection import ClientConnection
from bucketq.model.operations import ReleaseMany
from bucketq.model.transitions import _HANDLERS
from bucketq.queue.job import Job
from bucketq.queue.sender import Sender
from bucketq.worker.attempt import Attempt
from bucketq.worker.engine import Engine
from bucketq.worker.lease_renewal import LeaseKeeper
from bucketq.worker.prefetch import Prefetch
from bucketq.worker.runners.runner import Runner
from bucketq.worker.settling import Settling
from simulator.fault_schedule import FaultSchedule
from tests.simulation import test_mutants

Patch = pytest.MonkeyPatch


def expect(
    *invariants: str, faults: FaultSchedule = "everything", first: int = 0, seeds: int = 40
) -> None:
    """Play worlds with engines until one breaks one of these promises."""
    test_mutants.expect(*invariants, faults=faults, scenario="engines", first=first, seeds=seeds)


def test_a_job_that_is_not_kept_while_it_is_settled_is_noticed(monkeypatch: Patch) -> None:
    def settle(self: Engine, attempt: Attempt) -> None:
        self._keeper.drop(attempt.lease)
        settle_really(self, attempt)

    settle_really = Engine._settle
    monkeypatch.setattr(Engine, "_settle", settle)
    expect("a job is kept until its end is acknowledged")


def test_a_silence_that_nobody_minds_is_noticed(monkeypatch: Patch) -> None:
    monkeypatch.setattr(LeaseKeeper, "_fence", lambda _: None)
    expect("a handler that may have no lease is stopped", "one attempt at a time", first=14)


def test_completing_before_the_handler_is_over_is_noticed(monkeypatch: Patch) -> None:
    def start(self: Attempt, runner: Runner, *callbacks: Any) -> None:
        def end() -> None:
            if not self._is_ended:
                self._handling = asyncio.get_running_loop().create_task(asyncio.sleep(0))
                self._handling.add_done_callback(lambda _: self._end())

        start_really(self, runner, *callbacks)
        asyncio.get_running_loop().call_later(5.0, end)

    start_really = Attempt.start
    monkeypatch.setattr(Attempt, "start", start)
    expect("an engine reports what happened", faults="nothing")


def test_a_drain_that_forgets_what_waits_is_noticed(monkeypatch: Patch) -> None:
    async def drain(self: Engine) -> None:
        for attempt in self._backlog:
            self._attempts.pop(id(attempt), None)
            self._keeper.drop(attempt.lease)
        self._backlog.clear()
        await drain_really(self)

    drain_really = Engine._drain
    monkeypatch.setattr(Engine, "_drain", drain)
    expect(
        "a drained engine holds nothing",
        "no lease is taken from a healthy worker",
        faults="nothing",
    )


def test_a_claim_that_is_given_up_without_a_word_is_noticed(monkeypatch: Patch) -> None:
    async def withdraw(*_: object) -> None:
        return

    monkeypatch.setattr(Sender, "_withdraw", withdraw)
    monkeypatch.setattr(ClientConnection, "_send_unanswered", lambda *_: None)
    expect(
        "a drained engine holds nothing",
        "no lease is taken from a healthy worker",
        faults="restarts",
        first=50,
    )


def test_a_cancelled_claim_that_is_withdrawn_late_is_noticed(monkeypatch: Patch) -> None:
    async def withdraw(self: Sender, *undone: Any) -> None:
        await asyncio.sleep(20.0)
        await withdraw_really(self, *undone)

    withdraw_really = Sender._withdraw
    monkeypatch.setattr(Sender, "_withdraw", withdraw)
    expect(
        "a drained engine holds nothing",
        "no lease is taken from a healthy worker",
        faults="restarts",
    )


def test_a_release_that_says_so_and_keeps_the_job_is_noticed(monkeypatch: Patch) -> None:
    def release_many(_state: Any, operation: ReleaseMany, _now: object) -> tuple[bool, ...]:
        return (True,) * len(operation.leases)

    handlers: dict[Any, Any] = {**_HANDLERS, ReleaseMany: release_many}
    monkeypatch.setattr("bucketq.model.transitions._HANDLERS", handlers)
    expect("released means released", faults="nothing")


def test_a_handler_that_is_counted_out_too_early_is_noticed(monkeypatch: Patch) -> None:
    def room(self: Engine) -> int:
        self._busy = min(self._busy, max(0, self.concurrency - 1))
        return room_really(self)

    room_really = Engine._room
    monkeypatch.setattr(Engine, "_room", room)
    expect("slots are never exceeded", faults="nothing")


def test_running_a_job_without_attempts_left_is_noticed(monkeypatch: Patch) -> None:
    monkeypatch.setattr(Attempt, "has_used_up_attempts", False)
    expect("attempts are limited", seeds=80)


def test_trying_again_what_gave_up_is_noticed(monkeypatch: Patch) -> None:
    async def fail(self: Settling, job: Job[Any], error: str, **options: Any) -> Any:
        return await fail_really(self, job, error, **{**options, "retry": True})

    fail_really = Settling.fail
    monkeypatch.setattr(Settling, "fail", fail)
    expect("what will never work is tried once", "attempts are limited", faults="nothing")


def test_fetching_ahead_without_measure_is_noticed(monkeypatch: Patch) -> None:
    monkeypatch.setattr(Prefetch, "ahead", property(lambda _: 50))
    monkeypatch.setattr(Engine, "_release_overdue", lambda _: None)
    expect(
        "no engine hoards",
        "a drained engine holds nothing",
        "no lease is taken from a healthy worker",
        faults="nothing",
    )


def test_giving_back_what_takes_long_is_noticed(monkeypatch: Patch) -> None:
    def start(self: Attempt, runner: Runner, *callbacks: Any) -> None:
        asyncio.get_running_loop().call_later(8.0, self.stop, "silent")
        start_really(self, runner, *callbacks)

    start_really = Attempt.start
    monkeypatch.setattr(Attempt, "start", start)
    expect("no job is given back without a reason", faults="nothing")


def test_an_engine_that_rests_while_jobs_wait_is_noticed(monkeypatch: Patch) -> None:
    async def claim(self: Engine, room: int) -> Any:
        await asyncio.sleep(6.0)
        return await claim_really(self, room)

    claim_really = Engine._claim
    monkeypatch.setattr(Engine, "_claim", claim)
    expect("no engine is idle while jobs wait", faults="nothing")
