"""A queue on a table: a state, a clock that a test moves by hand, and short words for requests."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
from msgspec import Raw

from bucketq.codec.decode import decode
from bucketq.codec.document import Document
from bucketq.model.base import NewJob
from bucketq.model.operations import (
    AnyOperation,
    Claim,
    Complete,
    Configure,
    Expire,
    Fail,
    LeaseRef,
    Push,
    Request,
)
from bucketq.model.outbox import Archived, ArchivedPart
from bucketq.model.records import JobRecord
from bucketq.model.state import State
from bucketq.model.transitions import Applied, apply

START = datetime(2025, 3, 1, 12, 0, tzinfo=UTC)
SECRET = "5ec2e7" * 6


def new_job(job_id: str, kind: str = "index", payload: object = None, **fields: Any) -> NewJob:
    """Make a job that can be pushed."""
    return NewJob(id=job_id, kind=kind, payload=Raw(msgspec.json.encode(payload)), **fields)


def rows_of(state: State) -> tuple[list[object], ...]:
    """All that a state holds, as values that later changes do not reach."""
    paused = (state.paused, list(state.paused_kinds))
    head = (state.settings, state.broker, paused, state.sessions.horizon, state.time)
    sessions = [msgspec.json.encode(session) for session in state.sessions.table]
    bulk = [*state.consumers, *state.writers, *state.schedules, *state.batches]
    bulk += [*state.workers, *state.audit]
    return [head], list(state.jobs), list(state.keys), list(state.tokens), bulk, list(sessions)


class Driver:
    """A state and the time, with one method for each thing that tests do often."""

    def __init__(self, **settings: Any) -> None:
        """Begin with an empty queue."""
        self.state = State(incarnation="test", created_at=START)
        self.now = START
        if settings:
            self.ok(Configure(changes=settings))

    def wait(self, seconds: float) -> None:
        """Let time pass, or set the clock back."""
        self.now += timedelta(seconds=seconds)

    def send(self, operation: AnyOperation, session: str = "", **fields: Any) -> Applied:
        """Apply an operation, whatever comes of it."""
        return apply(self.state, Request(operation, session, **fields), self.now)

    def ok(self, operation: AnyOperation, session: str = "", **fields: Any) -> Any:
        """Apply an operation that must be granted, and return the answer."""
        applied = self.send(operation, session, **fields)
        assert applied.error is None, applied.error
        return applied.answer

    def refused(
        self, operation: AnyOperation, error: type[Exception], session: str = "", **fields: Any
    ) -> str:
        """Apply an operation that must be refused without a trace, and return the reason."""
        before = rows_of(self.state)
        applied = self.send(operation, session, **fields)
        assert type(applied.error) is error, applied
        assert applied.answer is None
        assert applied.changes == []
        assert rows_of(self.state) == before
        return str(applied.error)

    def push(self, job_id: str, kind: str = "index", payload: object = None, **fields: Any) -> str:
        """Push one job."""
        (answer,) = self.ok(Push(jobs=(new_job(job_id, kind, payload, **fields),)))
        assert isinstance(answer, str)
        return answer

    def push_many(self, *job_ids: str, **fields: Any) -> None:
        """Push jobs that are alike but for their ids."""
        self.ok(Push(jobs=tuple(new_job(job_id, **fields) for job_id in job_ids)))

    def claim(
        self, *kinds: str, limit: int = 1, worker: str = "w", lease_s: float | None = None
    ) -> tuple[JobRecord, ...]:
        """Claim jobs."""
        claim = Claim(worker=worker, secret=SECRET, kinds=kinds, limit=limit, lease_s=lease_s)
        answer = self.ok(claim)
        assert isinstance(answer, tuple)
        return answer

    def claim_ids(self, *kinds: str, limit: int = 100) -> list[str]:
        """Claim jobs, and return their ids."""
        return [job.id for job in self.claim(*kinds, limit=limit)]

    def claim_one(self, *kinds: str) -> JobRecord:
        """Claim a job that must be there."""
        (job,) = self.claim(*kinds)
        return job

    def complete(self, job: JobRecord) -> None:
        """Finish a job that was claimed."""
        self.ok(Complete(job=job.id, lease=lease_of(job)))

    def fail(self, job: JobRecord, error: str = "boom", *, retry: bool = True) -> str:
        """Report a failure of a job that was claimed, and return its new status."""
        answer = self.ok(Fail(job=job.id, lease=lease_of(job), error=error, retry=retry))
        assert isinstance(answer, str)
        return answer

    def expire(self, job: JobRecord) -> None:
        """End the lease of a job that was claimed."""
        assert self.ok(Expire(job=job.id, attempt=job.attempt)) is True

    def let_go(self, *job_ids: str) -> int:
        """Let finished jobs leave, as after their archive file has landed."""
        jobs = tuple((job_id, self.job(job_id).seq) for job_id in job_ids)
        left = self.ok(Archived(parts=(ArchivedPart(jobs),)))
        assert isinstance(left, int)
        return left

    def kill(self, *job_ids: str) -> None:
        """Push jobs and let them die, one after the other."""
        for job_id in job_ids:
            self.push(job_id, "doomed")
            assert self.fail(self.claim_one("doomed"), retry=False) == "dead"

    def job(self, job_id: str) -> JobRecord:
        """The record of a job that must be there."""
        return self.state.jobs.by_id[job_id]

    def commit(self) -> None:
        """Move to the next version."""
        Document(self.state).prepare("commit")

    def reload(self) -> None:
        """Go on with what another process would read."""
        self.state = decode(Document(self.state).prepare("commit").body, "test").state


def lease_of(job: JobRecord) -> str:
    """The lease of a job that is running."""
    assert job.lease is not None
    return job.lease


def ref(job: JobRecord) -> LeaseRef:
    """What a heartbeat shows of a job."""
    return LeaseRef(job.id, lease_of(job))
