"""Batches, and jobs that wait for others, as their rules define them, for the reference."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Any

from msgspec import NODEFAULT
from msgspec.structs import fields, replace

from bucketq.errors import (
    BatchNotFoundError,
    DependencyNotFoundError,
    KeyConflictError,
    QueueFullError,
    RejectedError,
)
from bucketq.model.base import NewJob
from bucketq.model.effects.links.batch_changes import callback_id
from bucketq.model.job_batches import (
    BatchRecord,
    Callback,
    CancelBatch,
    CloseBatch,
    OpenBatch,
)
from bucketq.model.records import JobRecord
from bucketq.model.settings import Settings

Row = dict[str, Any]
Seen = Callable[[str], JobRecord]

_OVER = ("done", "dead")
_DEFAULTS = {
    field.name: None if field.default is NODEFAULT else field.default for field in fields(JobRecord)
}
_NOTHING: Row = _DEFAULTS | {"result": b"", "status": "queued"}


class LinkReference:
    """What links jobs to others."""

    settings: Settings
    jobs: dict[str, Row]
    pushed: int

    def __init__(self) -> None:
        """Begin without batches."""
        super().__init__()
        self.batches: dict[str, BatchRecord] = {}
        self.opened = 0

    def over(self) -> set[str]:
        """The jobs that have ended."""
        return {name for name, row in self.jobs.items() if row["status"] in _OVER}

    def find_links(
        self, jobs: Sequence[NewJob], fresh: Sequence[NewJob], known: dict[str, str | None]
    ) -> dict[str, tuple[str, ...]]:
        """What each new job waits for, less what was completed; refuses what cannot be."""
        for job in fresh:
            if job.batch_id is not None and self.existing_batch(job.batch_id).status != "open":
                raise RejectedError
        waiting = {job.id: self._left(jobs, job, known) for job in fresh if job.after}
        held = [row for row in self.jobs.values() if row["status"] == "queued" and row["after"]]
        added = [name for name, left in waiting.items() if left]
        if added and len(held) + len(added) > self.settings.max_held:
            raise QueueFullError
        return waiting

    def _left(
        self, jobs: Sequence[NewJob], job: NewJob, known: dict[str, str | None]
    ) -> tuple[str, ...]:
        earlier = {each.id for each in jobs[: jobs.index(job)]}
        left = []
        for name in job.after:
            row = self.jobs.get(known.get(name) or name)
            if row is None and not (name in earlier and not known[name]):
                raise DependencyNotFoundError
            is_over = row is not None and row["status"] in _OVER
            if not is_over or (row["outcome"] != "completed" and job.on_failed is None):  # type: ignore[index]
                left.append(name)
        return tuple(left)

    def add_links(self, fresh: Sequence[NewJob]) -> None:
        """Count the jobs that were added to batches."""
        for job in fresh:
            if job.batch_id is not None:
                batch = self.batches[job.batch_id]
                self.batches[batch.id] = replace(batch, jobs=batch.jobs + 1)

    def follow(self, over: set[str], now: datetime, seen: Seen) -> None:
        """Do what follows from what has ended, or was queued again, since ``over`` had ended."""
        for name, row in self.jobs.items():
            if name in over and row["status"] not in _OVER:
                self._count(row, "dead", -1)
        while True:
            changed = [name for name in self.jobs if name in self.over() and name not in over]
            waiting = [row for row in self.jobs.values() if row["status"] == "queued"]
            moved = [row for row in waiting if self._go_on(row, now, seen)]
            for name in changed:
                row = self.jobs[name]
                self._count(row, row["outcome"] or "dead", 1)
            over = over | set(changed)
            if not moved and not changed:
                break
        for batch in list(self.batches.values()):
            self._end_if_done(batch, now)

    def _go_on(self, row: Row, now: datetime, seen: Seen) -> bool:
        """Take off what a held job waits for no longer; return whether that ended it."""
        ended = {
            name: self.jobs[name]
            for name in row["after"]
            if name in self.jobs and self.jobs[name]["status"] in _OVER
        }
        bad = {name: each for name, each in ended.items() if each["outcome"] != "completed"}
        if not bad or row["on_failed"] == "run":
            row["after"] = tuple(name for name in row["after"] if name not in ended)
            return False
        error = seen(row["id"]).errors[-1].error if self.settings.max_errors else ""
        if error:
            assert any(f"job {name}," in error for name in bad)
        line = (now, row["attempt"], "failed", error, None)
        kept = self.settings.max_errors
        row["errors"] = (*row["errors"], line)[-kept:] if kept else ()
        row.update(status="dead", finished_at=now)
        row["after"] = tuple(name for name in row["after"] if name not in ended or name in bad)
        return True

    def _count(self, row: Row, outcome: str, change: int) -> None:
        batch = self.batches.get(row["batch_id"] or "")
        if batch is not None and batch.ended_at is None and row["seq"] >= batch.first_seq:
            count = getattr(batch, outcome) + change
            self.batches[batch.id] = replace(batch, **{outcome: count})

    def _end_if_done(self, batch: BatchRecord, now: datetime) -> None:
        counts = batch.counts
        ended = counts.completed + counts.cancelled + counts.dead + counts.expired
        if batch.status != "closed" or ended < counts.jobs:
            return
        job_id = ""
        if (on_done := batch.on_done) is not None:
            job_id = callback_id(batch, 0)
            self.pushed += 1
            self.jobs[job_id] = _NOTHING | {
                "id": job_id,
                "kind": on_done.kind,
                "payload": bytes(on_done.payload),
                "priority": on_done.priority,
                "seq": self.pushed,
                "pushed_at": now,
                "done_batch": counts,
            }
        self.batches[batch.id] = replace(batch, ended_at=now, on_done=None, callback=job_id)

    def existing_batch(self, name: str) -> BatchRecord:
        """The batch, or an error."""
        if name not in self.batches:
            raise BatchNotFoundError
        return self.batches[name]

    def _openbatch(self, operation: OpenBatch, now: datetime, _seen: Seen) -> None:
        job = operation.on_done
        on_done = None
        if job is not None:
            on_done = Callback(kind=job.kind, payload=job.payload, priority=job.priority)
        known = self.batches.get(operation.batch)
        if known is not None:
            if known.status == "open" and known.on_done == on_done:
                return
            raise KeyConflictError
        if len(self.batches) >= self.settings.max_batches:
            ended = [batch for batch in self.batches.values() if batch.ended_at is not None]
            if not ended:
                raise RejectedError
            oldest = min(ended, key=lambda batch: (batch.ended_at, batch.seq))
            del self.batches[oldest.id]
        last = max((batch.seq for batch in self.batches.values()), default=0)
        self.batches[operation.batch] = BatchRecord(
            id=operation.batch,
            seq=last + 1,
            opened_at=now,
            on_done=on_done,
            first_seq=self.pushed + 1,
        )

    def _closebatch(self, operation: CloseBatch, now: datetime, _seen: Seen) -> BatchRecord:
        batch = self.existing_batch(operation.batch)
        if batch.status == "cancelled":
            raise RejectedError
        if batch.closed_at is None:
            self.batches[batch.id] = replace(batch, closed_at=now)
            self._end_if_done(self.batches[batch.id], now)
        return self.batches[batch.id]

    def _cancelbatch(self, operation: CancelBatch, now: datetime, _seen: Seen) -> BatchRecord:
        batch = self.existing_batch(operation.batch)
        if batch.status == "done":
            raise RejectedError
        if batch.ended_at is None:
            ended = replace(batch, closed_at=batch.closed_at or now, ended_at=now, on_done=None)
            self.batches[batch.id] = replace(ended, was_cancelled=True)
        return self.batches[batch.id]

    def forget_batches(self, now: datetime) -> int:
        """Forget the batches that ended long ago; return how many."""
        retention = timedelta(seconds=self.settings.batch_retention_s)
        old = [
            name
            for name, batch in self.batches.items()
            if batch.ended_at is not None and now - batch.ended_at > retention
        ]
        for name in old:
            del self.batches[name]
        return len(old)
