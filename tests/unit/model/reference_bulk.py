"""Consumers and writers as their rules define them, for the reference.

A consumer remembers the lease that each of its jobs was handed out with, while the model derives
it: a job belongs to the batch while it runs under that lease.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

from bucketq.errors import ConsumerFencedError, InvalidRequestError, RejectedError
from bucketq.model.numbered_batches import (
    AckBatch,
    BatchState,
    ClaimBatch,
    ConsumerInfo,
    ConsumerState,
    OpenConsumer,
    PrepareBatch,
    Publish,
    ReleaseBatch,
    RemoveConsumer,
)
from bucketq.model.operations import Claim, Push
from bucketq.model.records import JobRecord
from tests.unit.model.reference_tokens import TokenReference

Row = dict[str, Any]
Seen = Callable[[str], JobRecord]


class BulkReference(TokenReference):
    """What numbered batches do to a queue."""

    jobs: dict[str, Row]
    paused: bool
    paused_kinds: list[str]

    def __init__(self) -> None:
        """Begin without consumers and writers."""
        super().__init__()
        self.consumers: dict[str, Row] = {}
        self.writers: dict[str, Row] = {}

    @abstractmethod
    def hand_out(self, chosen: list[Row], claim: Any, now: datetime, seen: Seen) -> None:
        """Start jobs under the leases that the model shows."""

    @abstractmethod
    def _claim(self, operation: Claim, now: datetime, seen: Seen) -> tuple[Row, ...]: ...

    @abstractmethod
    def _push(self, operation: Push, now: datetime, _seen: Seen) -> tuple[str, ...]: ...

    @abstractmethod
    def _end(self, row: Row, now: datetime, *, costs: bool = True) -> None: ...

    def bulk_content(self) -> tuple[object, ...]:
        """All rows, as values."""
        consumers = {
            name: row | {"jobs": dict(row["jobs"]), "ahead": dict(row["ahead"])}
            for name, row in self.consumers.items()
        }
        return consumers, {name: dict(row) for name, row in self.writers.items()}

    def held(self, name: str, batch: str = "jobs") -> list[Row]:
        """The jobs that belong to a batch of a consumer, in the order of its claim."""
        rows = [(self.jobs.get(job), lease) for job, lease in self.consumers[name][batch].items()]
        return [
            row
            for row, lease in rows
            if row is not None and (row["status"], row["lease"]) == ("running", lease)
        ]

    def consumer_infos(self) -> tuple[ConsumerInfo, ...]:
        """What a listing shows."""
        return tuple(
            ConsumerInfo(
                name=name,
                epoch=row["epoch"],
                batch=row["batch"],
                pending=len(row["jobs"]),
                failures=row["failures"] if row["jobs"] else 0,
                at=row["at"],
                prepared=len(row["ahead"]),
            )
            for name, row in self.consumers.items()
        )

    def forget_bulk(self, now: datetime) -> int:
        """Drop what was not used for long; return how many."""
        kept_s, written_s = self.settings.consumer_retention_s, self.settings.writer_retention_s
        old = [
            name
            for name, row in self.consumers.items()
            if not row["jobs"] and now - row["at"] > timedelta(seconds=kept_s)
        ]
        for name in old:
            del self.consumers[name]
        older = [
            name
            for name, row in self.writers.items()
            if now - row["at"] > timedelta(seconds=written_s)
        ]
        for name in older:
            del self.writers[name]
        return len(old) + len(older)

    def _openconsumer(self, operation: OpenConsumer, now: datetime, _seen: Seen) -> ConsumerState:
        name = operation.consumer
        if name not in self.consumers:
            if len(self.consumers) >= self.settings.max_consumers:
                raise RejectedError
            self.consumers[name] = {"epoch": 0, "batch": 0, "jobs": {}, "ahead": {}}
        row = self.consumers[name]
        row.update(epoch=row["epoch"] + 1, at=now)
        ahead = len(row["ahead"])
        return ConsumerState(name, row["epoch"], row["batch"], len(row["jobs"]), prepared=ahead)

    def _mine(self, operation: ClaimBatch | PrepareBatch | AckBatch | ReleaseBatch) -> Row:
        row = self.consumers.get(operation.consumer)
        if row is None or row["epoch"] != operation.epoch:
            raise ConsumerFencedError
        return row

    def _claimbatch(self, operation: ClaimBatch, now: datetime, seen: Seen) -> BatchState:
        if operation.limit > self.settings.max_batch_jobs:
            raise InvalidRequestError
        row = self._mine(operation)
        if row["jobs"] and operation.batch == row["batch"]:
            return self._claim_again(row, operation, now, seen)
        closes = bool(row["jobs"]) and operation.acked == row["batch"]
        if (row["jobs"] and not closes) or operation.batch != row["batch"] + 1:
            raise InvalidRequestError
        had_ahead = bool(row["ahead"])
        taken, prepared = self._reserved(row, operation, now), True
        if not taken:
            taken, prepared = self._claim(_plain(operation), now, seen), False
        closed = BatchState(operation.acked, 0)
        if closes:
            ack = AckBatch(
                consumer=operation.consumer, epoch=operation.epoch, batch=operation.acked
            )
            closed = self._ackbatch(ack, now, seen)
        if taken:
            row.update(batch=operation.batch, at=now)
            row["jobs"] = {job["id"]: job["lease"] for job in taken}
            row.update(claimed_by=operation.epoch, failures=0)
            row["seqs"] = {job["id"]: job["seq"] for job in taken}
        elif (
            had_ahead or (now - row["at"]).total_seconds() > self.settings.consumer_retention_s / 10
        ):
            row["at"] = now
        count = len(taken) if prepared else 0
        return BatchState(operation.batch, len(taken), (), closed.jobs, closed.lost, count)

    def _reserved(self, row: Row, operation: ClaimBatch, now: datetime) -> tuple[Row, ...]:
        """The jobs of the prepared batch that a claim gets; the others are released."""
        held = self.held(operation.consumer, "ahead")
        wanted = [
            job
            for job in held
            if not self.paused
            and job["kind"] not in self.paused_kinds
            and (not operation.kinds or job["kind"] in operation.kinds)
            and not job["cancel_requested"]
        ][: operation.limit]
        for job in held:
            if job not in wanted:
                self._end(job, now, costs=False)
            elif row["ahead_by"] != operation.epoch:
                job.update(heartbeat_at=now, silent_s=0.0, lease_s=operation.lease_s)
        row["ahead"] = {}
        return tuple(wanted)

    def _preparebatch(self, operation: PrepareBatch, now: datetime, seen: Seen) -> BatchState:
        if operation.limit > self.settings.max_batch_jobs:
            raise InvalidRequestError
        row = self._mine(operation)
        if not row["jobs"] or operation.batch != row["batch"] + 1:
            raise InvalidRequestError
        if row["ahead"]:
            held = [job["id"] for job in self.held(operation.consumer, "ahead")]
            lost = tuple(job for job in row["ahead"] if job not in held)
            return BatchState(operation.batch, len(held), lost)
        taken = self._claim(_plain(operation), now, seen)
        if taken:
            row.update(ahead={job["id"]: job["lease"] for job in taken}, at=now)
            row["ahead_by"] = operation.epoch
        return BatchState(operation.batch, len(taken))

    def is_reserved(self, job: Row) -> bool:
        """Whether a job is only reserved for a batch."""
        return any(each is job for name in self.consumers for each in self.held(name, "ahead"))

    def _claim_again(
        self, row: Row, operation: ClaimBatch, now: datetime, seen: Seen
    ) -> BatchState:
        if row["claimed_by"] != operation.epoch:
            row.update(claimed_by=operation.epoch, failures=row["failures"] + 1)
        for job in self.held(operation.consumer):
            job.update(heartbeat_at=now, silent_s=0.0, lease_s=operation.lease_s)
        for job in self.held(operation.consumer, "ahead"):
            job.update(heartbeat_at=now, silent_s=0.0, lease_s=operation.lease_s)
        known = [self.jobs[job] for job in row["jobs"] if job in self.jobs]
        free = list[Row]()
        for job in known:
            if (
                job["status"] == "queued"
                and job["seq"] == row["seqs"][job["id"]]
                and (job["run_at"] is None or job["run_at"] <= now)
                and self.has_room(job, free, now)
            ):
                free.append(job)
        self.spend(free, now)
        self.hand_out(free, operation, now, seen)
        row["jobs"].update({job["id"]: job["lease"] for job in free})
        row["at"] = now
        held = [job["id"] for job in self.held(operation.consumer)]
        lost = tuple(job for job in row["jobs"] if job not in held)
        return BatchState(operation.batch, len(held), lost)

    def _to_close(self, operation: AckBatch | ReleaseBatch) -> list[Row] | None:
        row = self._mine(operation)
        if operation.batch > row["batch"]:
            raise InvalidRequestError
        if operation.batch < row["batch"] or not row["jobs"]:
            return None
        return self.held(operation.consumer)

    def _close(
        self, operation: AckBatch | ReleaseBatch, done: list[str], now: datetime
    ) -> BatchState:
        row = self.consumers[operation.consumer]
        lost = tuple(job for job in row["jobs"] if job not in done)
        row.update(jobs={}, at=now)
        return BatchState(operation.batch, len(done), lost)

    def _ackbatch(self, operation: AckBatch, now: datetime, _seen: Seen) -> BatchState:
        held = self._to_close(operation)
        if held is None:
            return BatchState(operation.batch, 0)
        for job in held:
            job.update(status="done", outcome="completed", finished_at=now, cancel_requested=False)
            job.update(result=b"", silent_s=0.0, lease_s=None, progress=None)
        return self._close(operation, [job["id"] for job in held], now)

    def _releasebatch(self, operation: ReleaseBatch, now: datetime, _seen: Seen) -> BatchState:
        row = self._mine(operation)
        if row["ahead"] and operation.batch == row["batch"] + 1:
            given = self.held(operation.consumer, "ahead")
            for job in given:
                self._end(job, now, costs=False)
            names = [job["id"] for job in given]
            lost = tuple(job for job in row["ahead"] if job not in names)
            row.update(ahead={}, at=now)
            return BatchState(operation.batch, len(given), lost)
        held = self._to_close(operation)
        if held is None:
            return BatchState(operation.batch, 0)
        for job in held:
            self._end(job, now, costs=False)
        return self._close(operation, [job["id"] for job in held], now)

    def _removeconsumer(self, operation: RemoveConsumer, now: datetime, _seen: Seen) -> bool:
        if operation.consumer not in self.consumers:
            return False
        held = self.held(operation.consumer), self.held(operation.consumer, "ahead")
        for job in (*held[0], *held[1]):
            self._end(job, now, costs=False)
        del self.consumers[operation.consumer]
        return True

    def _publish(self, operation: Publish, now: datetime, seen: Seen) -> bool:
        row = self.writers.get(operation.writer)
        position = (operation.batch, operation.part)
        if row is not None and position <= (row["batch"], row["part"]):
            if operation.last and position == (row["batch"], row["part"]):
                del self.writers[operation.writer]
            return False
        if operation.last:
            self._push(Push(jobs=operation.jobs), now, seen)
            self.writers.pop(operation.writer, None)
            return True
        if row is None and len(self.writers) >= self.settings.max_writers:
            raise RejectedError
        self._push(Push(jobs=operation.jobs), now, seen)
        self.writers[operation.writer] = {"batch": position[0], "part": position[1], "at": now}
        return True


def _plain(operation: ClaimBatch | PrepareBatch) -> Claim:
    """The claim that finds the jobs of a batch."""
    return Claim(
        worker=operation.worker,
        secret=operation.secret,
        kinds=operation.kinds,
        limit=operation.limit,
        lease_s=operation.lease_s,
    )
