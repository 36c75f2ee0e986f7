"""What the machine does as an operator: cancel, redrive, purge, pause, configure, archive, tidy."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from bucketq.model.effects import timekeeping
from bucketq.model.effects.operators import is_untidy
from bucketq.model.limits import RemoveLimit, SetLimit
from bucketq.model.operations import (
    Cancel,
    Configure,
    GrantToken,
    NoteTime,
    Pause,
    Purge,
    Redrive,
    Request,
    Resume,
    RevokeToken,
    SetPriority,
    Tidy,
)
from bucketq.model.outbox import Archived, ArchivedPart, ReadOutbox
from bucketq.model.records import Backoff
from bucketq.model.transitions import apply
from tests.unit.model.driver import START
from tests.unit.model.worker_rules import WorkerRules

pick = st.integers(0, 99)
some_kinds = st.sampled_from([(), (), (), ("a",), ("b",), ("a", "c"), ("c", "c", "never")])
sender = st.tuples(st.sampled_from(["", "x", "x", "y", "z"]), st.integers(0, 6))
"""Which client asks, and how many of its latest answers it has not acknowledged yet."""
changes = st.one_of(
    st.fixed_dictionaries(
        {},
        optional={
            "max_attempts": st.integers(1, 4),
            "backoff": st.sampled_from([Backoff(), Backoff(0.0), Backoff(8.0, 2.0, 20.0)]),
            "max_errors": st.integers(0, 3),
            "max_dead": st.integers(0, 3),
            "max_jobs": st.sampled_from([4, 100]),
            "max_keys": st.integers(1, 4),
            "max_batch_jobs": st.sampled_from([2, 100]),
            "max_sessions": st.integers(1, 3),
            "max_tokens": st.integers(1, 4),
            "require_token": st.booleans(),
            "max_consumers": st.integers(1, 2),
            "max_batches": st.integers(1, 3),
            "batch_retention_s": st.sampled_from([10.0, 1000.0]),
            "max_held": st.sampled_from([1, 3, 100]),
            "max_writers": st.integers(1, 3),
            "max_workers": st.integers(1, 3),
            "max_audit": st.integers(1, 3),
            "worker_retention_s": st.sampled_from([10.0, 1000.0]),
            "consumer_retention_s": st.sampled_from([10.0, 1000.0]),
            "writer_retention_s": st.sampled_from([10.0, 1000.0]),
            "key_retention_s": st.sampled_from([10.0, 100.0]),
            "dead_retention_s": st.sampled_from([10.0, 1000.0]),
            "session_retention_s": st.sampled_from([10.0, 1000.0]),
        },
    ),
    st.sampled_from([{}, {"lease_s": 1.0}, {"colour": 1}, {"max_jobs": 100}, {"max_errors": 1}]),
)


def chosen(values: list[Any], number: int) -> Any:
    """One of some values, most likely one of the last few."""
    return values[-1 - number % len(values)]


class OperatorRules(WorkerRules):
    """The part of the machine that is about operators."""

    @rule(number=pick, by=sender)
    def cancel(self, number: int, by: tuple[str, int]) -> None:
        running = list(self.state.running)
        self.send(Cancel(job=chosen(running if running and number % 2 else self.ids, number)), by)

    @rule(number=pick, priority=st.integers(-1, 2), by=sender)
    def set_priority(self, number: int, priority: int, by: tuple[str, int]) -> None:
        self.send(SetPriority(job=chosen(self.ids, number), priority=priority), by)

    def some_dead(self, number: int) -> tuple[str, ...]:
        if number < 60:
            return ()
        if number < 70:
            return (chosen(self.ids, number),)
        return tuple(sorted(self.state.dead)[: 1 + number % 2])

    @precondition(lambda self: self.state.dead)
    @rule(kinds=some_kinds, limit=st.integers(0, 2), number=pick, by=sender)
    def redrive(self, kinds: tuple[str, ...], limit: int, number: int, by: tuple[str, int]) -> None:
        self.send(Redrive(jobs=self.some_dead(number), kinds=kinds, limit=limit), by)

    @precondition(lambda self: self.state.dead)
    @rule(kinds=some_kinds, age_s=st.sampled_from([0.0, 5.0]), number=pick, by=sender)
    def purge(self, kinds: tuple[str, ...], age_s: float, number: int, by: tuple[str, int]) -> None:
        jobs = self.some_dead(number)
        self.send(Purge(jobs=jobs, kinds=kinds, older_than_s=age_s), by)

    @rule(
        kind=st.sampled_from([None, "a", "b"]),
        pauses=st.sampled_from([True, False, False]),
        by=sender,
    )
    def pause_or_resume(self, kind: str | None, pauses: bool, by: tuple[str, int]) -> None:
        self.send(Pause(kind=kind) if pauses else Resume(kind=kind), by)

    @rule(changes=changes, by=sender)
    def configure(self, changes: dict[str, Any], by: tuple[str, int]) -> None:
        self.send(Configure(changes=changes), by)

    @rule(number=pick, other=st.sampled_from([0, 0, 0, 1]), by=sender)
    def grant_token(self, number: int, other: int, by: tuple[str, int]) -> None:
        grant = GrantToken(
            id=f"{number % 8:08x}",
            name="ci",
            digest=f"{number % 8 + 16 * other:064x}",
            rights=(("push",), ("admin", "read", "read"))[number % 2],
            ttl_s=(0.0, 5.0, 60.0)[number % 3],
        )
        self.send(grant, by)

    @rule(number=pick, by=sender)
    def revoke_token(self, number: int, by: tuple[str, int]) -> None:
        self.send(RevokeToken(id=f"{number % 8:08x}"), by)

    @precondition(lambda self: self.state.done)
    @rule(number=pick)
    def archive(self, number: int) -> None:
        read = ReadOutbox(limit=1 + number % 4, min_age_s=float(number % 3))
        rows = sorted(self.reference.with_status("done"), key=lambda row: row["finished_at"])
        due = [
            row["id"]
            for row in rows
            if abs(self.now - row["finished_at"]) >= timedelta(seconds=read.min_age_s)
        ]
        for state in (self.state, self.twin.state):
            ready = apply(state, Request(read), self.now).answer
            assert [job.id for job, _ in ready.jobs] == due[: read.limit]
        other = (chosen(self.ids, number), 1 + number % 8)
        jobs = (other, *((job.id, job.seq) for job, _ in ready.jobs), other)
        files = ("2026-01-01T00/1-2.jsonl",) if number % 2 else ()
        cut = number % len(jobs)
        self.send(
            Archived(parts=(ArchivedPart(jobs[cut:], files), ArchivedPart(jobs[:cut], files)))
        )
        for state in (self.state, self.twin.state):
            results = state.results
            assert results.count == sum(row.count for row in results)
            assert results.row_bytes == sum(row.size_bytes for row in results)
            for row, (at, known) in zip(results, self.reference.results, strict=True):
                assert (row.at, row.count) == (at, len(known))
                assert all(map(row.may_have, known))

    @precondition(lambda self: self.now != START)
    @rule()
    def tidy(self) -> None:
        untidy = is_untidy(self.state, self.now)
        before = len(self.state.changes)
        self.send(Tidy())
        assert untidy == (len(self.state.changes) > before)
        assert not is_untidy(self.state, self.now)

    @rule(
        limited=st.sampled_from(["kind=a", "kind=b", "group=g1", "group=*"]),
        running=st.sampled_from([None, 1, 2]),
        rate=st.sampled_from([None, 1, 2, 5]),
        period_s=st.sampled_from([10.0, 100.0]),
        by=sender,
    )
    def limit(
        self,
        limited: str,
        running: int | None,
        rate: int | None,
        period_s: float,
        by: tuple[str, int],
    ) -> None:
        if running is None and rate is None:
            self.send(RemoveLimit(target=limited), by)
        else:
            period = None if rate is None else period_s
            self.send(SetLimit(target=limited, running=running, rate=rate, period_s=period), by)

    @rule()
    def note_time(self) -> None:
        self.send(NoteTime())
        assert not timekeeping.is_due(self.state, self.now)
