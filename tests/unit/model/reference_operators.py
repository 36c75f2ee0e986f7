"""Operators and clocks as their rules define them, for the reference."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import msgspec

from bucketq.errors import (
    InvalidRequestError,
    JobNotFoundError,
)
from bucketq.model.job_batches import CancelJobs, CancelledJobs
from bucketq.model.job_ids import made_at
from bucketq.model.operations import (
    Cancel,
    Configure,
    NoteTime,
    Pause,
    Purge,
    Redrive,
    Resume,
    SetPriority,
    Tidy,
)
from bucketq.model.outbox import Archived, ArchivedPart
from bucketq.model.records import JobRecord
from bucketq.model.settings import Settings
from tests.unit.model.driver import START
from tests.unit.model.reference_expiry import has_expired
from tests.unit.model.reference_workers import WorkerReference

Row = dict[str, Any]
Seen = Callable[[str], JobRecord]


class OperatorReference(WorkerReference):
    """What operators and tidying do to a queue."""

    def __init__(self) -> None:
        """Begin empty, with the default settings."""
        super().__init__()
        self.settings = Settings()
        self.jobs: dict[str, Row] = {}
        self.results: list[tuple[datetime, set[str]]] = []
        """When jobs left together that are known to have results, and which."""
        self.keys: dict[str, Row] = {}
        self.sessions: dict[str, Row] = {}
        self.paused = False
        self.paused_kinds: list[str] = []
        self.version = 0
        self.horizon = 0
        self.time: datetime | None = None
        self.ahead: list[datetime] = []
        """What a clock that is further ahead has shown."""

    def with_status(self, status: str) -> list[Row]:
        """The jobs with a status, in the order of their pushes."""
        return [row for row in self.jobs.values() if row["status"] == status]

    def dead(self) -> list[Row]:
        """The dead jobs, first dead first."""
        return sorted(self.with_status("dead"), key=lambda row: (row["finished_at"], row["seq"]))

    def forget_batches(self, now: datetime) -> int:
        """Forget the batches that ended long ago; return how many."""
        raise NotImplementedError

    def _existing(self, job: str) -> Row:
        if job not in self.jobs:
            raise JobNotFoundError
        return self.jobs[job]

    def _cancel(self, operation: Cancel, now: datetime, _seen: Seen) -> str:
        row = self._existing(operation.job)
        if row["status"] == "queued":
            row.update(status="done", outcome="cancelled", finished_at=now)
        if row["status"] == "running":
            row["cancel_requested"] = True
            return "requested"
        return "cancelled" if row["outcome"] == "cancelled" else "finished"

    def _setpriority(self, operation: SetPriority, _now: datetime, _seen: Seen) -> None:
        row = self._existing(operation.job)
        if row["status"] != "queued":
            raise InvalidRequestError
        row["priority"] = operation.priority

    def _canceljobs(self, operation: CancelJobs, now: datetime, _seen: Seen) -> CancelledJobs:
        rows = [
            row
            for row in sorted(self.jobs.values(), key=lambda row: row["seq"])
            if row["batch_id"] == operation.batch
            and row["status"] in ("queued", "running")
            and row["seq"] > operation.after
        ]
        chosen, more = rows[: operation.limit], rows[operation.limit :]
        answers = [
            self._cancel(Cancel(job=row["id"]), now, _seen)
            for row in chosen
            if not row["cancel_requested"]
        ]
        counts = answers.count("cancelled"), answers.count("requested")
        return CancelledJobs(*counts, chosen[-1]["seq"] if more else None)

    def _archived(self, operation: Archived, now: datetime, _seen: Seen) -> int:
        return sum(self._archived_part(part, now) for part in operation.parts)

    def _archived_part(self, part: ArchivedPart, now: datetime) -> int:
        done = {(row["id"], row["seq"]) for row in self.with_status("done")} & set(part.jobs)
        rows = [self.jobs.pop(job) for job, _ in done]
        known = {
            row["id"]
            for row in rows
            if row["result"] not in (b"", b"null") or (self.results and made_at(row["id"]) is None)
        }
        if known and part.files:
            self.results.append((now, known))
        return len(done)

    def forget_results(self, now: datetime) -> int:
        """Forget where results are that left long ago; return how many rows."""
        count, limit = len(self.results), timedelta(seconds=self.settings.result_retention_s)
        while self.results and now - self.results[0][0] > limit:
            del self.results[0]
        return count - len(self.results)

    def _chosen(self, operation: Redrive | Purge) -> list[Row]:
        rows = [self._existing(job) for job in operation.jobs]
        if any(row["status"] != "dead" for row in rows):
            raise InvalidRequestError
        chosen = rows or self.dead()
        return [row for row in chosen if not operation.kinds or row["kind"] in operation.kinds]

    def _redrive(self, operation: Redrive, _now: datetime, _seen: Seen) -> int:
        chosen = self._chosen(operation)
        if operation.limit:
            chosen = chosen[: operation.limit]
        for row in chosen:
            row.update(
                status="queued", failures=0, lost_leases=0, snoozes=0, run_at=None, finished_at=None
            )
        for row in chosen:  # What it waited for counts again if it is not over.
            waiting = [name for name in row["after"] if name in self.jobs]
            still = [n for n in waiting if self.jobs[n]["status"] in ("queued", "running")]
            row["after"] = tuple(still)
        return len(chosen)

    def _purge(self, operation: Purge, now: datetime, _seen: Seen) -> int:
        chosen = self._chosen(operation)
        if operation.older_than_s:
            age = timedelta(seconds=operation.older_than_s)
            chosen = [row for row in chosen if now - row["finished_at"] >= age]
        for row in chosen:
            row.update(status="done", outcome="dead", finished_at=now)
        return len(chosen)

    def _pause(self, operation: Pause, _now: datetime, _seen: Seen) -> None:
        if operation.kind is None:
            self.paused = True
        elif operation.kind not in self.paused_kinds:
            self.paused_kinds.append(operation.kind)

    def _resume(self, operation: Resume, _now: datetime, _seen: Seen) -> None:
        if operation.kind is None:
            self.paused, self.paused_kinds = False, []
        elif operation.kind in self.paused_kinds:
            self.paused_kinds.remove(operation.kind)

    def _configure(self, operation: Configure, _now: datetime, _seen: Seen) -> Settings:
        if not set(operation.changes) <= set(Settings.__struct_fields__):
            raise InvalidRequestError
        settings = msgspec.structs.replace(self.settings, **operation.changes)
        if settings.heartbeat_s >= settings.lease_s:
            raise InvalidRequestError
        self.settings = settings
        return settings

    def _tidy(self, _operation: Tidy, now: datetime, _seen: Seen) -> int:
        settings, count, finished_at = self.settings, 0, now
        for row in self.jobs.values():
            if has_expired(row, now):
                row.update(status="done", outcome="expired", finished_at=now)
                count += 1
        now = min(now, self.believed(now))
        while len(self.sessions) > settings.max_sessions:
            oldest = min(self.sessions, key=lambda name: self.sessions[name]["version"])
            self.horizon = max(self.horizon, self.sessions.pop(oldest)["version"])
            count += 1
        for name, session in list(self.sessions.items()):
            if now - session["at"] > timedelta(seconds=settings.session_retention_s):
                self.horizon = max(self.horizon, self.sessions.pop(name)["version"])
                count += 1
        for key, row in list(self.keys.items()):
            if now - row["at"] > timedelta(seconds=settings.key_retention_s):
                del self.keys[key]
                count += 1
        count += self.drop_expired_tokens(now)
        count += self.forget_bulk(now) + self.forget_batches(now)
        count += self.mend_buckets(now)
        count += self.forget_workers(now) + self.forget_results(now)
        while dead := self.dead():
            age = now - dead[0]["finished_at"]
            too_many = len(dead) > settings.max_dead
            if not (too_many or age > timedelta(seconds=settings.dead_retention_s)):
                break
            dead[0].update(status="done", outcome="dead", finished_at=finished_at)
            count += 1
        return count

    def believed(self, now: datetime) -> datetime:
        """How late it is at most, going by the clocks that were noted."""
        if self.time is None or now <= self.time + self._margin():
            return now
        return self.time

    def _notetime(self, _operation: NoteTime, now: datetime, _seen: Seen) -> None:
        margin = self._margin()
        self.time = self.time or START
        if now < self.time - margin:
            self.time, self.ahead = now, []
        elif now <= self.time + margin:
            self.time, self.ahead = max(self.time, now), []
        elif not self.ahead or now < max(self.ahead) - margin:
            self.ahead = [now]
        elif now - self.ahead[0] < timedelta(hours=1):
            self.ahead.append(now)
        elif now <= max(self.ahead) + margin:
            self.time, self.ahead = max(now, *self.ahead), []
        else:
            self.time, self.ahead = max(self.ahead), [now]

    def _margin(self) -> timedelta:
        return timedelta(seconds=self.settings.clock_margin_s)
