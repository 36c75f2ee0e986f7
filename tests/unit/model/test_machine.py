"""The model against the reference, one request after the other, in every order that is found.

Beside the model runs a twin that is now and then read back from the bytes of a commit. Both
must stay equal to the last byte: what a state answers depends on its rows, not on its past.
"""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from itertools import product
from typing import Any

import msgspec
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, precondition, rule
from msgspec import Raw, structs

from bucketq.codec.decode import decode
from bucketq.codec.document import Document
from bucketq.errors import BucketQError
from bucketq.model.base import NewJob
from bucketq.model.effects.dead_jobs import dead_jobs
from bucketq.model.indexes.lane import lane_of
from bucketq.model.limits import ReadLimits
from bucketq.model.operations import (
    AnyOperation,
    Claim,
    Complete,
    CompleteMany,
    Completion,
    Configure,
    Expire,
    Fail,
    Get,
    Heartbeat,
    Lead,
    LeaseRef,
    List,
    Persist,
    Push,
    ReadStats,
    ReadTokens,
    Release,
    ReleaseMany,
    Request,
    Retire,
    Silence,
    Withdraw,
)
from bucketq.model.records import STATUSES, Backoff, JobRecord, Progress
from bucketq.model.results import Wait
from bucketq.model.state import Change, State
from bucketq.model.transitions import Applied, apply
from tests.unit.model.driver import START
from tests.unit.model.job_strategies import KINDS, UNIQUE, new_jobs
from tests.unit.model.link_rules import LinkRules
from tests.unit.model.operator_rules import OperatorRules, chosen, pick, sender, some_kinds
from tests.unit.model.payload_rules import PayloadRules, large
from tests.unit.model.reference import Reference, row_of
from tests.unit.model.state_tables import tables


def plain(answer: object) -> object:
    """An answer with its jobs as plain rows."""
    if isinstance(answer, tuple):
        return tuple(row_of(item) if isinstance(item, JobRecord) else item for item in answer)
    return answer


PROGRESS = Progress(2, 3, "rows")


class QueueMachine(OperatorRules, LinkRules, PayloadRules):
    """Requests of a few clients, a clock that jumps, and commits."""

    def __init__(self) -> None:
        """Begin with three empty queues."""
        super().__init__()
        self.model = Document(State(incarnation="test", created_at=START))
        self.twin = Document(State(incarnation="test", created_at=START))
        self.reference = Reference()
        self.now = START
        self.numbers: Counter[str] = Counter()
        self.sent: list[Request] = []
        self.leases = [LeaseRef("unknown", "lease")]
        self.ids = ["unknown"]
        self.secrets = 0
        self.commits = 0
        self.last = Applied(None, None, [])
        """What became of the last request."""

    def send(self, operation: AnyOperation, by: tuple[str, int] = ("", 0)) -> None:
        """Send a new request, and see what the reference makes of it."""
        session, outstanding = by
        if not session:
            self.check(Request(operation))
            return
        self.numbers[session] += 1
        number = self.numbers[session]
        request = Request(operation, session, number, max(0, number - outstanding))
        self.check(request)
        since = self.state.version
        self.sent.append(msgspec.structs.replace(request, since=since))

    def check(self, request: Request) -> None:
        before = tables(self.state)
        applied = apply(self.state, request, self.now)
        self.check_changes(before, applied, request.operation)
        mirrored = apply(self.twin.state, request, self.now)
        self.last = applied
        assert plain(mirrored.answer) == plain(applied.answer)
        assert type(mirrored.error) is type(applied.error)
        assert mirrored.changes == applied.changes
        answer, refusal = None, None
        try:
            answer = self.reference.apply(request, self.now, self.state.jobs.by_id.__getitem__)
        except BucketQError as error:
            refusal = error
        assert type(applied.error) is type(refusal), (request, applied.error)
        assert plain(applied.answer) == answer

    def check_changes(
        self, before: dict[Change, object], applied: Applied, operation: AnyOperation
    ) -> None:
        after = tables(self.state)
        differing = {row for row in before | after if before.get(row) != after.get(row)}
        if applied.error is not None:
            assert not applied.changes
            assert not differing
        reported = set(applied.changes)
        if isinstance(operation, Heartbeat):  # Two in one moment leave the same row.
            reported -= {("jobs", lease.job) for lease in operation.leases} - differing
        elif isinstance(operation, Persist):
            reported -= {("jobs", silence.job) for silence in operation.silences} - differing
        assert reported == differing

    @initialize(jobs=new_jobs, backoff=st.sampled_from([Backoff(0.0), Backoff(2.0)]))
    def begin(self, jobs: list[dict[str, Any]], backoff: Backoff) -> None:
        small = {"max_attempts": 3, "max_errors": 2, "backoff": backoff, "max_jobs": 60}
        small["max_format"] = 2
        self.send(Configure(changes=small))
        self.push(jobs, 99, ("x", 3))
        self.claim((), 2, ("y", 3), "w")

    @rule(jobs=new_jobs, number=pick, by=sender)
    def push(self, jobs: list[dict[str, Any]], number: int, by: tuple[str, int]) -> None:
        fresh = [f"j{len(self.ids) + place}" for place in range(len(jobs))]
        self.ids.extend(fresh)
        if number < 20:
            fresh[-1] = chosen(self.ids, number)
        elif number < 30:
            jobs[0]["run_at"] = self.now + timedelta(seconds=number - 25)
        for place, job in enumerate(jobs):
            if "unique" in job:
                jobs[place] = job | UNIQUE[(number + place) % len(UNIQUE)]
        self.give_links(jobs, fresh)
        self.place_payloads(jobs, self.state.version)
        pairs = zip(fresh, jobs, strict=True)
        self.send(Push(jobs=tuple(NewJob(id=job_id, **job) for job_id, job in pairs)), by)

    @rule(number=pick, by=sender)
    def push_what_is_there(self, number: int, by: tuple[str, int]) -> None:
        job = self.state.jobs.get(chosen(self.ids, number))
        if job is not None:
            same = NewJob(id=job.id, kind=job.kind, payload=job.payload, priority=job.priority)
            same = msgspec.structs.replace(same, key=job.key, group=job.group)
            same = msgspec.structs.replace(same, payload_encoding=job.payload_encoding)
            self.send(Push(jobs=(same,)), by)

    @precondition(lambda self: self.state.waiting.lanes or self.state.delayed)
    @rule(kinds=some_kinds, limit=st.integers(1, 4), by=sender, worker=st.sampled_from("vw"))
    def claim(self, kinds: tuple[str, ...], limit: int, by: tuple[str, int], worker: str) -> None:
        self.secrets += 1
        secret, lease_s = f"{self.secrets:032x}", 90.0 if worker == "v" else None
        claim = Claim(worker=worker, secret=secret, kinds=kinds, limit=limit, lease_s=lease_s)
        self.send(claim, by)
        self.note_leases()

    def note_leases(self) -> None:
        """Remember the leases that are held now."""
        for job_id in self.state.running:
            job = self.state.jobs.by_id[job_id]
            lease = LeaseRef(job_id, job.lease or "")
            if lease not in self.leases:
                self.leases.append(lease)

    def some_lease(self, number: int) -> LeaseRef:
        """Mostly one that is held; sometimes one from the past, or of no job at all."""
        if number % 5 and self.state.running:
            job = self.state.jobs.by_id[chosen(list(self.state.running), number)]
            return LeaseRef(job.id, job.lease or "")
        lease = chosen(self.leases, number)
        assert isinstance(lease, LeaseRef)
        return lease

    @precondition(lambda self: len(self.leases) > 1)
    @rule(numbers=st.lists(pick, max_size=4), come=st.sampled_from([None, PROGRESS]))
    def heartbeat(self, numbers: list[int], come: Progress | None) -> None:
        leases = tuple(map(self.some_lease, numbers))
        progress = {} if come is None else {lease.job: come for lease in leases[:2]}
        self.send(Heartbeat(leases=leases, progress=progress))

    @precondition(lambda self: len(self.leases) > 1)
    @rule(
        number=pick,
        by=sender,
        result=st.sampled_from([Raw(b""), Raw(b"[1]")]) | large,
        jobs=st.none() | new_jobs,
    )
    def complete(
        self, number: int, by: tuple[str, int], result: Raw | int, jobs: list[dict[str, Any]] | None
    ) -> None:
        lease = self.some_lease(number)
        done = Complete(
            job=lease.job,
            lease=lease.lease,
            **self.result_of(result, self.state.version),
            follow_ups=self.follow_ups(jobs or [], number),
        )
        self.send(done, by)

    def follow_ups(self, jobs: list[dict[str, Any]], number: int) -> tuple[NewJob, ...]:
        """Jobs to push with a completion; sometimes one has the id of another job."""
        fresh = [f"j{len(self.ids) + place}" for place in range(len(jobs))]
        self.ids.extend(fresh)
        if fresh and number < 20:
            fresh[-1] = chosen(self.ids, number)
        for job, name in product(jobs, ("batch_id", "after", "on_failed")):
            job.pop(name, None)
        self.place_payloads(jobs, self.state.version)
        return tuple(
            NewJob(id=job_id, **job, **(UNIQUE[number % len(UNIQUE)] if "unique" in job else {}))
            for job_id, job in zip(fresh, jobs, strict=True)
        )

    @precondition(lambda self: len(self.leases) > 1)
    @rule(
        numbers=st.lists(pick, max_size=4),
        by=sender,
        jobs=st.none() | new_jobs,
    )
    def complete_many(
        self, numbers: list[int], by: tuple[str, int], jobs: list[dict[str, Any]] | None
    ) -> None:
        done = [
            Completion(
                job=each.job, lease=each.lease, follow_ups=self.follow_ups(jobs or [], number)
            )
            for number in numbers
            for each in [self.some_lease(number)]
        ]
        self.send(CompleteMany(jobs=tuple(done)), by)

    @precondition(lambda self: len(self.leases) > 1)
    @rule(number=pick, by=sender, retry=st.sampled_from([True, True, False]))
    def fail(self, number: int, by: tuple[str, int], retry: bool) -> None:
        lease = self.some_lease(number)
        error = f"error {number}"
        self.send(Fail(job=lease.job, lease=lease.lease, error=error, retry=retry), by)

    @precondition(lambda self: len(self.leases) > 1)
    @rule(number=pick, by=sender, delay_s=st.sampled_from([None, 0.0, 3.0]))
    def snooze(self, number: int, by: tuple[str, int], delay_s: float | None) -> None:
        lease = self.some_lease(number)
        fail = Fail(job=lease.job, lease=lease.lease, error="", delay_s=delay_s, snooze=True)
        self.send(fail, by)

    @precondition(lambda self: len(self.leases) > 1)
    @rule(number=pick, by=sender, delay_s=st.sampled_from([0.0, 0.0, 3.0, 50.0]))
    def release(self, number: int, by: tuple[str, int], delay_s: float) -> None:
        lease = self.some_lease(number)
        self.send(Release(job=lease.job, lease=lease.lease, delay_s=delay_s), by)

    @precondition(lambda self: self.sent)
    @rule(number=pick, is_own=st.sampled_from([True, True, True, False]))
    def withdraw(self, number: int, is_own: bool) -> None:
        claims = [request for request in self.sent if isinstance(request.operation, Claim)]
        request = chosen(claims or self.sent, number)
        secret = request.operation.secret if isinstance(request.operation, Claim) else "0" * 32
        withdraw = Withdraw(
            session=request.session,
            number=request.number,
            secret=secret if is_own else "f" * 32,
        )
        self.send(withdraw)

    @precondition(lambda self: len(self.leases) > 1)
    @rule(numbers=st.lists(pick, max_size=4), by=sender, delay_s=st.sampled_from([0.0, 3.0]))
    def release_many(self, numbers: list[int], by: tuple[str, int], delay_s: float) -> None:
        leases = tuple(map(self.some_lease, numbers))
        self.send(ReleaseMany(leases=leases, delay_s=delay_s), by)

    @precondition(lambda self: self.state.running)
    @rule(number=pick, older=st.sampled_from([0, 0, 0, 1]))
    def expire(self, number: int, older: int) -> None:
        job = self.state.jobs.by_id[chosen(list(self.state.running), number)]
        self.send(Expire(job=job.id, attempt=job.attempt - older))

    @precondition(lambda self: self.state.jobs)
    @rule(numbers=st.lists(pick, max_size=4), silent_s=st.sampled_from([0.0, 0.5, 20.0]))
    def persist(self, numbers: list[int], silent_s: float) -> None:
        jobs = [self.state.jobs.get(chosen(self.ids, number)) for number in numbers]
        jobs += [self.state.jobs.get(job_id) for job_id in list(self.state.running)[:2]]
        come = PROGRESS if silent_s else None
        silences = (Silence(job.id, job.attempt, silent_s, come) for job in jobs if job is not None)
        self.send(Persist(silences=(*silences, Silence("unknown", 1, silent_s))))

    @rule(name=st.sampled_from("pq"), lag=st.sampled_from([0, 0, 1, -1]))
    def lead(self, name: str, lag: int) -> None:
        epoch = self.state.epoch
        self.send(Lead(id=name, address=f"{name}:1", host="h", after=epoch - lag))
        assert epoch <= self.state.epoch <= epoch + 1

    @rule(name=st.sampled_from("pq"), lag=st.sampled_from([0, 0, 1]))
    def retire(self, name: str, lag: int) -> None:
        epoch = self.state.epoch
        self.send(Retire(id=name, epoch=epoch - lag))
        assert self.state.epoch == epoch

    @precondition(lambda self: self.sent)
    @rule(number=pick)
    def send_again(self, number: int) -> None:
        self.check(chosen(self.sent, number))

    @rule(seconds=st.sampled_from([0.25, 1, 1, 5, 5, 30, 200, 2000, -1, -40, -1000]))
    def pass_time_or_set_the_clock_back(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)

    @rule(reload=st.booleans())
    def commit(self, reload: bool) -> None:
        self.commits += 1
        written = self.model.prepare(f"c{self.commits}")
        assert self.twin.prepare(f"c{self.commits}") == written
        self.reference.version += 1
        assert self.state.version == self.reference.version
        self.check_order(written.body)
        if reload:
            self.twin = decode(written.body, "twin")

    def check_order(self, body: bytes) -> None:
        """Claim all that is due from a copy, and see that it comes in order."""
        copy = decode(body, "copy").state
        everything = Claim(worker="w", secret="f" * 32, limit=copy.settings.max_batch_jobs)
        applied = apply(copy, Request(everything), self.now)
        expected = [row["id"] for row in self.reference.claimable(self.now)]
        assert [job.id for job in applied.answer] == expected[: everything.limit]

    @invariant()
    def rows_are_those_of_the_reference(self) -> None:
        assert [row_of(job) for job in self.state.jobs] == list(self.reference.jobs.values())
        assert list(self.twin.state.jobs) == list(self.state.jobs)
        keys = [(key.id, key.job, key.at) for key in self.state.keys]
        assert keys == [(k, row["job"], row["at"]) for k, row in self.reference.keys.items()]
        assert list(self.twin.state.keys) == list(self.state.keys)
        tokens = [structs.asdict(token) | {"seq": 0} for token in self.state.tokens]
        assert tokens == [row | {"seq": 0} for row in self.reference.tokens.values()]
        assert list(self.twin.state.tokens) == list(self.state.tokens)
        limits = apply(self.state, Request(ReadLimits()), self.now).answer
        assert limits == self.reference._readlimits(
            ReadLimits(), self.now, self.state.jobs.by_id.__getitem__
        )
        full_at = {bucket.id: bucket.full_at for bucket in self.state.buckets}
        assert full_at == self.reference.full_at
        shown = apply(self.state, Request(ReadTokens()), self.now).answer
        assert shown == self.reference.good_tokens(self.now)
        assert [row.id for row in self.state.sessions.table] == list(self.reference.sessions)
        assert self.state.sessions.horizon == self.reference.horizon
        assert self.state.settings == self.reference.settings
        assert self.state.broker == self.twin.state.broker == self.reference.broker
        assert self.state.paused == self.reference.paused
        assert list(self.state.paused_kinds) == self.reference.paused_kinds

    @invariant()
    def indexes_agree_with_a_recount(self) -> None:
        for state in (self.state, self.twin.state):
            assert state.counts == self.reference.counts()
            for status, index in (
                ("running", state.running),
                ("dead", state.dead),
                ("done", [job.id for job in state.done]),
            ):
                assert set(index) == {row["id"] for row in self.reference.with_status(status)}
            lines = [len(msgspec.json.encode(job)) + 2 for job in state.done]
            assert state.done.size_bytes == sum(lines)
            assert [job.id for job in dead_jobs(state)] == [
                row["id"] for row in self.reference.dead()
            ]
            self.check_waiting(state)
            self.check_links(state)

    def check_waiting(self, state: State) -> None:
        """Every waiting job has one entry: in its lane, among the delayed, or among the skipped.

        If a push has given it another time, it may have more; no claim takes it twice.
        """
        by_seq = {job.seq: job for job in state.jobs}
        entries = [seq for _, seq, _ in [*state.delayed._entries, *state.expiring.skipped]]
        for name, lane in state.waiting.lanes.items():
            in_lane = [job.seq for job in lane._run[lane._head :]]
            in_lane += [seq for _, seq, _ in lane._heap]
            there = [by_seq[seq] for seq in in_lane if seq in by_seq]
            assert all(lane_of(job.kind, job.group) == name for job in there)
            entries += in_lane
        waiting = [seq for seq in entries if seq in by_seq and by_seq[seq].status == "queued"]
        if state.has_moved:
            waiting = list(set(waiting))
        queued = self.reference.with_status("queued")
        assert sorted(waiting) == [row["seq"] for row in queued if not row["after"]]

    @rule(number=pick, kinds=some_kinds, status=st.sampled_from(STATUSES))
    def read(self, number: int, kinds: tuple[str, ...], status: Any) -> None:
        job_id = chosen(self.ids, number)
        found = apply(self.state, Request(Get(job=job_id)), self.now)
        end = apply(self.state, Request(Wait(job=job_id)), self.now)
        if job_id in self.reference.jobs:
            row = self.reference.jobs[job_id]
            assert row_of(found.answer) == row
            is_over = row["status"] in ("done", "dead")
            assert (end.answer is not None) == is_over
            if is_over:
                answer = (end.answer.outcome, bytes(end.answer.result), end.answer.result_encoding)
                assert answer == (row["outcome"], row["result"], row["result_encoding"])
        else:
            assert found.error is not None
            assert end.error is not None
        page = apply(self.state, Request(List(statuses=(status,), kinds=kinds, limit=2)), self.now)
        rows = [
            row for row in self.reference.with_status(status) if row["kind"] in (kinds or KINDS)
        ]
        assert [row_of(job) for job in page.answer.jobs] == rows[:2]
        stats = apply(self.state, Request(ReadStats()), self.now)
        assert stats.answer.total(status) == len(self.reference.with_status(status))


QueueMachine.TestCase.settings = settings(
    max_examples=100,
    stateful_step_count=50,
    deadline=None,
    phases=set(Phase) - {Phase.explain},
)
TestQueueMachine = QueueMachine.TestCase
