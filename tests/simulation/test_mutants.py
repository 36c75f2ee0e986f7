"""Each promise is kept for a reason: take the reason away, and the simulator finds out.

Every test breaks the real code in one naive way and expects a world in which the breach shows,
under the name of the promise that it breaks. Those that many worlds survive take long, and are for
full runs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import datetime
from typing import Any

import pytest

from bucketq.codec.document import Document, Prepared
from bucketq.commit.direct_lease_expiry import DirectLeaseExpiry
from bucketq.commit.group_committer import GroupCommitter
from bucketq.commit.objects import register as register_module
from bucketq.commit.objects.register import Register, Settled
from bucketq.commit.upkeep.archiver import Archiver
from bucketq.errors import BucketQError, InvalidRequestError, UnavailableError
from bucketq.model import transitions
from bucketq.model.effects import leases as lease_rules
from bucketq.model.indexes.lane import Lane
from bucketq.model.operations import Complete, Expire, Heartbeat, Pulse, ReadStats, Request
from bucketq.model.outbox import Archived, ArchivedPart, Outbox, ReadOutbox
from bucketq.model.records import JobRecord
from bucketq.model.requests.sessions import MISSING, Session, Sessions
from bucketq.model.settings import Settings
from bucketq.model.state import State
from bucketq.model.transitions import apply
from bucketq.store.base import ObjectMissingError, PreconditionFailedError
from bucketq.store.resolve_write import Verdict
from simulator.fault_schedule import FaultSchedule
from simulator.invariants.queue_invariants import InvariantError
from simulator.scenarios import Scenario
from simulator.simulation import simulate

Patch = pytest.MonkeyPatch


def expect(
    *invariants: str,
    faults: FaultSchedule = "everything",
    scenario: Scenario | None = "direct",
    first: int = 0,
    seeds: int = 40,
    deep: bool = False,
    remembers: bool = False,
) -> None:
    """Play worlds until one breaks, and see that it breaks one of these promises.

    ``first`` is where to begin; it spares worlds that are known not to notice. ``deep`` worlds
    spill, merge and sweep segments all the time, and some of them have a history (``remembers``).
    """
    for seed in range(first, first + seeds):
        try:
            simulate(seed, faults=faults, scenario=scenario, deep=deep, remembers=remembers)
        except InvariantError as error:
            assert error.invariant in invariants, str(error)  # noqa: PT017
            return
        except (BucketQError, ExceptionGroup):
            continue  # A broken queue may also break down; that is no proof.
    pytest.fail(f"{seeds} worlds did not notice")


@pytest.mark.full
def test_without_deduplication_a_retry_is_refused_although_it_took_effect(
    monkeypatch: Patch,
) -> None:
    monkeypatch.setattr(Session, "find", lambda _self, _number: MISSING)
    expect("nothing refused takes effect", "a job that has left stays away")


def test_without_the_horizon_a_forgotten_request_is_judged_wrongly(monkeypatch: Patch) -> None:
    def forget(self: Sessions, settings: Settings, now: datetime) -> list[str]:
        horizon = self.horizon
        forgotten = forget_expired(self, settings, now)
        self.horizon = horizon
        return forgotten

    forget_expired = Sessions.forget_expired
    monkeypatch.setattr(Sessions, "forget_expired", forget)
    expect(
        "nothing refused takes effect",
        "nothing takes effect twice",
        "a job that has left stays away",
        first=16,
        seeds=150,
    )


def test_an_answer_before_its_commit_is_noticed(monkeypatch: Patch) -> None:
    async def submit(self: GroupCommitter, request: Request, timeout_s: float) -> Any:
        submitting = submit_and_wait(self, request, timeout_s)
        task = asyncio.get_running_loop().create_task(submitting)
        task.add_done_callback(lambda done: done.cancelled() or done.exception())
        if self.working.document is None or request.operation.__class__.__name__ != "Push":
            return await task
        await asyncio.sleep(0)
        batch = self.working.backlog.batch
        waiting = next(reversed(batch), None)
        if waiting is None or waiting.applied is None:
            return await task
        return waiting.applied.result()

    submit_and_wait = GroupCommitter.submit
    monkeypatch.setattr(GroupCommitter, "submit", submit)
    expect("acknowledged means durable", "no answer before its commit")


def test_calling_an_unknown_outcome_failed_is_noticed(monkeypatch: Patch) -> None:
    async def send(self: Register, *args: Any) -> None:
        try:
            await send_really(self, *args)
        except UnavailableError as error:
            message = "the write failed"
            raise InvalidRequestError(message) from error

    send_really = Register._send
    monkeypatch.setattr(Register, "_send", send)
    expect("nothing refused takes effect")


def test_calling_a_commit_that_is_not_there_yet_failed_is_noticed(monkeypatch: Patch) -> None:
    async def read_back(self: Register, *args: Any) -> Document:
        found = await read_really(self, *args)
        if found is None:
            message = "the write did not land"
            raise InvalidRequestError(message)
        return found

    read_really = Register._read_back
    monkeypatch.setattr(Register, "_read_back", read_back)
    expect("nothing refused takes effect", first=10)


def test_calling_a_commit_with_others_on_top_failed_is_noticed(monkeypatch: Patch) -> None:
    def judge(state: State, version: int, commit: str) -> Verdict:
        verdict = judge_really(state, version, commit)
        if verdict is not Verdict.OPEN and state.commits[-1] != commit:
            message = "another commit is there: ours failed"
            raise InvalidRequestError(message)
        return verdict

    judge_really = register_module.judge_commit
    monkeypatch.setattr(register_module, "judge_commit", judge)
    expect("nothing refused takes effect", first=3)


def test_a_loser_that_writes_its_memory_over_the_winner_is_noticed(monkeypatch: Patch) -> None:
    async def commit(self: Register, document: Document, prepared: Prepared) -> Settled:
        while True:
            try:
                etag = (await self._store.get(self._key)).etag
                etag = await self._store.replace(self._key, prepared.body, etag)
            except (UnavailableError, PreconditionFailedError, ObjectMissingError):
                continue
            self._know(etag, document.state, prepared)
            return Settled(Verdict.LANDED, document)

    monkeypatch.setattr(Register, "commit", commit)
    expect("versions rise by one", "built on its predecessor", "a job is always somewhere")


def test_an_unconditional_creation_is_noticed(monkeypatch: Patch) -> None:
    from bucketq.testing.store_link import StoreLink  # noqa: PLC0415

    async def believe(*_: object) -> None:
        pass

    monkeypatch.setattr(StoreLink, "create", StoreLink.put)
    monkeypatch.setattr(Register, "_demand_conditions", believe)
    expect("conditional writes")


def test_a_completion_without_fencing_is_noticed(monkeypatch: Patch) -> None:
    def complete(state: State, operation: Complete, now: datetime) -> None:
        job = state.jobs.by_id.get(operation.job)
        if job is None or job.status != "running":
            return complete_really(state, operation, now)
        return state.finish_jobs((lease_rules.finished_with(job, operation, now),))

    complete_really = lease_rules.complete
    handlers: dict[Any, Any] = {**transitions._HANDLERS, Complete: complete}
    monkeypatch.setattr(transitions, "_HANDLERS", handlers)
    expect("completed means completed", scenario="brokers", first=44)


def test_leases_judged_by_the_wall_clocks_of_others_are_noticed(monkeypatch: Patch) -> None:
    def stale(_: DirectLeaseExpiry, state: State, now: datetime, *_times: float) -> list[Expire]:
        jobs = [state.jobs.by_id[job_id] for job_id in state.running]
        return [
            Expire(job=job.id, attempt=job.attempt)
            for job in jobs
            if job.heartbeat_at
            and (now - job.heartbeat_at).total_seconds() > state.settings.lease_s
        ]

    monkeypatch.setattr(DirectLeaseExpiry, "stale", stale)
    expect("no lease is taken from a healthy worker", faults="nothing")


def test_leases_that_never_end_are_noticed(monkeypatch: Patch) -> None:
    monkeypatch.setattr(DirectLeaseExpiry, "stale", lambda *_: [])
    expect("every job comes to its end")


def _from_memory(monkeypatch: Patch, kind: type, answer: Callable[[State, Any], Any]) -> None:
    """Let group commit answer one kind of operation from its memory."""

    async def submit(self: GroupCommitter, request: Request, timeout_s: float) -> Any:
        if isinstance(request.operation, kind) and self.working.document is not None:
            await asyncio.sleep(0)
            if self.working.document is not None:
                return answer(self.working.document.state, request.operation)
        return await submit_really(self, request, timeout_s)

    submit_really = GroupCommitter.submit
    monkeypatch.setattr(GroupCommitter, "submit", submit)


def test_a_read_from_memory_is_noticed(monkeypatch: Patch) -> None:
    now = datetime.fromisoformat("2026-01-01T00:00:00Z")
    _from_memory(
        monkeypatch, ReadStats, lambda state, read: apply(state, Request(read), now).answer
    )
    expect("no read is older than its question")


def test_a_heartbeat_answered_from_memory_alone_is_noticed(monkeypatch: Patch) -> None:
    def answer(_: State, beat: Heartbeat) -> list[Pulse]:
        return [Pulse(lease.job, held=True) for lease in beat.leases]

    _from_memory(monkeypatch, Heartbeat, answer)
    expect("held means held", "every job comes to its end", first=2)


def test_handing_out_the_newest_first_is_noticed(monkeypatch: Patch) -> None:
    def head(self: Lane, jobs: dict[str, JobRecord]) -> JobRecord | None:
        while len(self._run) > self._head:
            newest = self._run[-1]
            job = jobs.get(newest.id)
            if job is not None and (job.status, job.seq) == ("queued", newest.seq):
                return job
            self._run.pop()
        return self._first_of_heap(jobs)

    def pop(self: Lane, job: JobRecord) -> None:
        if len(self._run) > self._head and self._run[-1].id == job.id:
            self._run.pop()
        else:
            self._heap.pop(0)

    monkeypatch.setattr(Lane, "head", head)
    monkeypatch.setattr(Lane, "pop", pop)
    expect("first in, first out", seeds=3)


def test_a_verdict_that_is_always_landed_is_noticed(monkeypatch: Patch) -> None:
    async def commit(self: Register, document: Document, prepared: Prepared) -> Settled:
        settled = await commit_really(self, document, prepared)
        return Settled(Verdict.LANDED, settled.document)

    commit_really = Register.commit
    monkeypatch.setattr(Register, "commit", commit)
    expect(
        "acknowledged means durable",
        "no answer before its commit",
        "completed means completed",
        "failed means failed",
        "held means held",
    )


def test_letting_jobs_go_before_they_are_archived_is_noticed(monkeypatch: Patch) -> None:
    async def move(self: Archiver, outbox: Outbox, *, waits: bool = False) -> int:
        jobs = tuple((job.id, job.seq) for job, _ in outbox.jobs)
        left = await self._submit(Request(Archived(parts=(ArchivedPart(jobs, ("soon",)),))))
        await self._write(outbox.jobs, outbox.lines, outbox.version)
        return int(left)

    monkeypatch.setattr(Archiver, "_move", move)
    expect("a job is always somewhere")


def test_archiving_what_is_not_committed_yet_is_noticed(monkeypatch: Patch) -> None:
    now = datetime.fromisoformat("2026-01-01T00:00:00Z")
    _from_memory(
        monkeypatch, ReadOutbox, lambda state, read: apply(state, Request(read), now).answer
    )
    expect("the archive holds what was committed", "a job is always somewhere", seeds=100)
