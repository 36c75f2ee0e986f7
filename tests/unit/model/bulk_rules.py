"""What the machine does with consumers and writers, and what must hold of their rows."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from msgspec import Raw

from bucketq.codec.document import Document
from bucketq.model.base import NewJob
from bucketq.model.numbered_batches import (
    AckBatch,
    BatchPage,
    ClaimBatch,
    OpenConsumer,
    PrepareBatch,
    Publish,
    ReadBatch,
    ReadConsumers,
    ReleaseBatch,
    RemoveConsumer,
)
from bucketq.model.operations import AnyOperation, Request
from bucketq.model.state import State
from bucketq.model.transitions import apply
from tests.unit.model.reference import Reference, row_of

NAMES = ("spark", "flink")
ONE = Raw(b"1")
pick = st.integers(0, 99)
name = st.sampled_from([*NAMES, "spark", "never"])
lag = st.sampled_from([0, 0, 0, 0, 0, 1, -1])
sender = st.tuples(st.sampled_from(["", "x", "x", "y", "z"]), st.integers(0, 6))
lease_s = st.sampled_from([None, None, 60.0, 0.5])


class BulkRules(RuleBasedStateMachine):
    """The part of the machine that is about numbered batches."""

    model: Document
    twin: Document
    reference: Reference
    now: datetime
    secrets: int
    ids: list[str]

    @property
    def state(self) -> State:
        return self.model.state

    def send(self, operation: AnyOperation, by: tuple[str, int] = ("", 0)) -> None:
        raise NotImplementedError

    def note_leases(self) -> None:
        raise NotImplementedError

    def held(self, consumer: str) -> dict[str, int]:
        """The epoch and the batch that a driver of this consumer would show."""
        record = self.state.consumers.get(consumer)
        return (
            {"epoch": record.epoch, "batch": record.batch} if record else {"epoch": 1, "batch": 1}
        )

    @rule(consumer=name, by=sender)
    def open_consumer(self, consumer: str, by: tuple[str, int]) -> None:
        self.send(OpenConsumer(consumer=consumer if consumer != "never" else NAMES[0]), by)

    @precondition(lambda self: self.state.consumers)
    @rule(
        consumer=name,
        behind=lag,
        ahead=st.sampled_from([0, 0, 0, 1, 2, -1]),
        limit=st.integers(1, 4),
        kinds=st.sampled_from([(), (), (), ("a",), ("a", "c")]),
        lease_s=lease_s,
        acks=st.booleans(),
    )
    def claim_batch(
        self,
        consumer: str,
        behind: int,
        ahead: int,
        limit: int,
        kinds: tuple[str, ...],
        lease_s: float | None,
        *,
        acks: bool,
    ) -> None:
        self.secrets += 1
        shown, record = self.held(consumer), self.state.consumers.get(consumer)
        step = 0 if record is not None and record.is_open and not acks else 1
        batch = max(1, shown["batch"] + (step if ahead == 0 else ahead))
        claim = ClaimBatch(
            consumer=consumer,
            epoch=max(1, shown["epoch"] - behind),
            batch=batch,
            acked=batch - 1 if acks else 0,
            secret=f"{self.secrets:032x}",
            worker="driver",
            kinds=kinds,
            limit=limit,
            lease_s=lease_s,
        )
        self.send(claim)
        self.note_leases()

    @precondition(lambda self: self.state.consumers)
    @rule(
        consumer=name,
        behind=lag,
        ahead=st.sampled_from([1, 1, 1, 0, 2]),
        limit=st.integers(1, 4),
        kinds=st.sampled_from([(), (), ("a",)]),
    )
    def prepare_batch(
        self, consumer: str, behind: int, ahead: int, limit: int, kinds: tuple[str, ...]
    ) -> None:
        self.secrets += 1
        shown = self.held(consumer)
        prepare = PrepareBatch(
            consumer=consumer,
            epoch=max(1, shown["epoch"] - behind),
            batch=max(1, shown["batch"] + ahead),
            secret=f"{self.secrets:032x}",
            worker="driver",
            kinds=kinds,
            limit=limit,
        )
        self.send(prepare)
        self.note_leases()

    @precondition(lambda self: self.state.consumers)
    @rule(consumer=name, by=sender)
    def release_prepared(self, consumer: str, by: tuple[str, int]) -> None:
        shown = self.held(consumer)
        batch = shown["batch"] + 1
        self.send(ReleaseBatch(consumer=consumer, epoch=shown["epoch"], batch=batch), by)

    @precondition(lambda self: self.state.consumers)
    @rule(consumer=name, behind=lag, older=lag, releases=st.booleans(), by=sender)
    def close_batch(
        self, consumer: str, behind: int, older: int, releases: bool, by: tuple[str, int]
    ) -> None:
        shown = self.held(consumer)
        kind: type[AckBatch | ReleaseBatch] = ReleaseBatch if releases else AckBatch
        epoch, batch = max(1, shown["epoch"] - behind), max(1, shown["batch"] - older)
        self.send(kind(consumer=consumer, epoch=epoch, batch=batch), by)

    @precondition(lambda self: self.state.consumers)
    @rule(consumer=name, number=pick, by=sender)
    def remove_consumer(self, consumer: str, number: int, by: tuple[str, int]) -> None:
        if number < 20:
            self.send(RemoveConsumer(consumer=consumer), by)

    @precondition(lambda self: self.state.consumers)
    @rule(consumer=name, start=st.integers(0, 3), limit=st.integers(1, 3))
    def read_batch(self, consumer: str, start: int, limit: int) -> None:
        read = ReadBatch(
            consumer=consumer, batch=max(1, self.held(consumer)["batch"]), start=start, limit=limit
        )
        applied = apply(self.state, Request(read), self.now)
        row = self.reference.consumers.get(consumer)
        if limit > self.reference.settings.max_batch_jobs or row is None or not row["jobs"]:
            assert applied.error is not None
            return
        page: BatchPage = applied.answer
        ids = list(row["jobs"])[start : start + limit]
        held = {job["id"]: job for job in self.reference.held(consumer)}
        assert [row_of(job) for job in page.jobs] == [held[job] for job in ids if job in held]
        assert page.lost == tuple(job for job in ids if job not in held)
        end = start + limit
        assert page.next_start == (end if end < len(row["jobs"]) else None)

    @rule(writer=name, batch=st.integers(0, 4), part=st.integers(0, 2), number=pick, by=sender)
    def publish(self, writer: str, batch: int, part: int, number: int, by: tuple[str, int]) -> None:
        fresh = [f"j{len(self.ids) + place}" for place in range(number % 3)]
        self.ids.extend(fresh)
        jobs = tuple(NewJob(id=job, kind="abc"[number % 3], payload=ONE) for job in fresh)
        last = number % 5 == 0
        self.send(Publish(writer=writer, batch=batch, part=part, jobs=jobs, last=last), by)

    @invariant()
    def bulk_rows_are_those_of_the_reference(self) -> None:
        shown = apply(self.state, Request(ReadConsumers()), self.now).answer
        assert shown == self.reference.consumer_infos()
        for record in self.state.consumers:
            assert list(record.jobs) == list(self.reference.consumers[record.id]["jobs"])
            assert bool(record.secret) == record.is_open
            ahead = record.ahead.jobs if record.ahead else ()
            assert list(ahead) == list(self.reference.consumers[record.id]["ahead"])
        writers: dict[str, Any] = {
            row.id: {"batch": row.batch, "part": row.part, "at": row.at}
            for row in self.state.writers
        }
        assert list(writers.items()) == list(self.reference.writers.items())
        assert list(self.twin.state.consumers) == list(self.state.consumers)
        assert list(self.twin.state.writers) == list(self.state.writers)
