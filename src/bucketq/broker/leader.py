"""``Leader``: the committer of a broker, for as long as its epoch lasts.

It holds a group committer and decides what that leaves open: it takes over by compare-and-set when
it opens; it continues only while the object names it; it answers heartbeats without writing them;
it ends the leases of silent workers by its own clock; and it proves, while nothing is written, that
it still leads.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from datetime import datetime
from typing import Any

from msgspec.structs import replace

from bucketq.archive.writer import ArchiveWriter
from bucketq.broker.broker_connection import RemoteRequest
from bucketq.broker.broker_observer import BrokerObserver
from bucketq.broker.commit_meter import CommitMeter
from bucketq.broker.heard_workers import HeardWorkers
from bucketq.broker.lease_expiry import LeaseExpiry
from bucketq.broker.sample_ring import SampleRing
from bucketq.broker.takeover import DeposedError, Identity, check_leads, elect
from bucketq.broker.token_guard import refusal
from bucketq.clock import Clock
from bucketq.codec.document import Document
from bucketq.commit.commit_hooks import CommitHooks
from bucketq.commit.group_committer import GroupCommitter
from bucketq.commit.objects.pacing import ALONE_S, FairnessPause
from bucketq.commit.objects.register import Register
from bucketq.commit.parked_claims import ParkedClaims
from bucketq.commit.pending_requests import PendingRequest
from bucketq.errors import BucketQError, InvalidRequestError, PayloadTooLargeError
from bucketq.model.base import Operation
from bucketq.model.effects.leases import check_heartbeat, pulses
from bucketq.model.operations import (
    CLAIMS,
    READS,
    Claim,
    Heartbeat,
    Page,
    ReadSnapshot,
    ReadStats,
    Request,
    Retire,
)
from bucketq.model.oversight.announcements import check_announcement, not_found
from bucketq.model.queue_stats import Stats
from bucketq.model.records import JobRecord, Progress
from bucketq.model.results import JobEnd, Wait, news_of
from bucketq.model.state import Change, State
from bucketq.model.transitions import Applied, apply
from bucketq.model.worker_records import Announce, DrainWorker, ReadWorkers, merged
from bucketq.store.base import LockHeldError
from bucketq.store.resolve_write import Verdict

PROOF_S = 2.0
"""How old a proof of leadership may be for an answer from memory."""
_PROVE_S = 5.0
"""How often an idle leader proves that it leads: well within the time after which it is cut off."""
_SWEEP_S = 1.0
"""How often silent workers are looked for: short beside the shortest lease that makes sense."""
_TICK_S = 0.5
"""How often it notes that the process runs: a quarter of the pause that counts as frozen."""
SNAPSHOT_BYTES = 128 << 20
"""The largest snapshot that a broker makes: 600,000 small jobs. It takes some four times as much
memory, and while it is encoded, for half a second or a whole one, no ping is answered; after two
seconds without an answer another takes over."""


_NOT_ASKED = Applied(answer=False, error=None, changes=[])
"""The answer to a worker that was not asked to finish."""


class Leader:
    """The broker of one queue, while it leads."""

    mode = "broker in this process"
    joins = True

    def __init__(
        self,
        register: Register,
        clock: Clock,
        *,
        identity: Identity,
        after: int,
        archive: ArchiveWriter | None,
        timeout_s: float,
        observer: BrokerObserver | None = None,
    ) -> None:
        """Make a leader that takes over from epoch ``after`` when it is opened."""
        self.where = register.where
        self._register = register
        self._identity = identity
        meter = CommitMeter(register)
        self._hooks = _LeaderHooks(clock, identity, after, observer, meter)
        self.committer = GroupCommitter(
            register, clock, timeout_s=timeout_s, archive=archive, hooks=self._hooks
        )
        self._timeout_s = timeout_s
        self._ends_at: float | None = None
        """When it has to end, once it retires."""
        self.epoch = after + 1
        """The epoch in which it leads."""

    @property
    def version(self) -> int:
        """The newest version of the object that it has seen or written."""
        return self._register.version

    @property
    def is_open(self) -> bool:
        """Whether it leads and takes requests."""
        return self.committer.is_open

    async def open(self) -> None:
        """Take over, and begin to commit."""
        await self.committer.open()

    async def close(self) -> None:
        """Commit what was submitted, then close; retiring and closing have one limit together."""
        self._hooks.stop()
        now_s = asyncio.get_running_loop().time()
        left_s = self._timeout_s if self._ends_at is None else self._ends_at - now_s
        await self.committer.close(max(0.0, left_s))

    async def submit(self, request: Request, timeout_s: float) -> Any:
        """Commit a request of this process."""
        return await self.committer.submit(request, timeout_s)

    async def flush_archive(self) -> int:
        """Archive everything that is finished now, and return how many jobs left by this call."""
        return await self.committer.flush_archive()

    @property
    def state(self) -> State | None:
        """The queue as it will be once what was submitted is written; None: it is read again."""
        return self.committer.state

    @property
    def waiting(self) -> tuple[int, int]:
        """How many requests have no answer yet, and how many bytes they carry."""
        backlog = self.committer.working.backlog
        return len(backlog), backlog.size_bytes

    @property
    def parked(self) -> int:
        """How many claims wait for a job."""
        return len(self.committer.working.parked)

    @property
    def unproven_s(self) -> float:
        """How old the last proof is that it leads."""
        return asyncio.get_running_loop().time() - self.committer.working.looked_at

    @property
    def is_cut_off(self) -> bool:
        """Whether it cannot prove that it leads, in a time in which the storage must answer.

        Twice that: a proof is as old as its question, and may be that old when the next is asked.
        A lock that another process holds is an answer, and no other broker could take over either.
        """
        is_locked = isinstance(self._register.trouble, LockHeldError)
        return self.unproven_s > 2 * self._register.patience_s and not is_locked

    @property
    def commit_age_s(self) -> float:
        """For how long the write in flight has been without an answer."""
        since = self.committer.writing_since
        return 0.0 if since is None else asyncio.get_running_loop().time() - since

    async def retire(self) -> bool:
        """Answer parked claims, settle what was submitted, and clear the address.

        Returns whether it is cleared; if not, others find out that no broker is there.
        """
        self._ends_at = asyncio.get_running_loop().time() + self._timeout_s
        retiring = DeposedError("this broker retires: find the next one")
        self.committer.working.send_away(retiring)
        retire = Request(Retire(id=self._identity.id, epoch=self.epoch))
        try:
            await self.submit(retire, self._timeout_s)
        except BucketQError:
            return False
        return True

    @property
    def waits(self) -> int:
        """How many requests wait for the end of a job."""
        return len(self.committer.working.waits)

    def forget(self, parked: list[PendingRequest]) -> None:
        """Remove parked claims and waits whose client is gone."""
        working = self.committer.working
        for pending in parked:
            if not working.parked.discard(pending):
                working.waits.discard(pending)


class _LeaderHooks(CommitHooks):
    """What a leader decides while a group committer commits for it."""

    reads = frozenset[type]((*READS, Heartbeat, Announce))
    leads = True

    def __init__(
        self,
        clock: Clock,
        identity: Identity,
        after: int,
        observer: BrokerObserver | None,
        meter: CommitMeter,
    ) -> None:
        super().__init__(clock, create=False)
        # It does not take turns: direct writers beside it are few, and its clients are many.
        self.fairness = FairnessPause(clock, ALONE_S)
        self._identity = identity
        self._after = after
        self._observer = observer
        self._meter = meter
        self._samples = SampleRing(clock, meter)
        self._heartbeats = LeaseExpiry(0.0)
        self._workers = HeardWorkers()
        self._swept_s = 0.0
        self._persisted_s = 0.0
        """When the silence of workers was last added to the state, and when that was committed:
        a write that is lost to another writer is made up for at the next sweep."""
        self._committed_s = 0.0
        self._ticker: asyncio.TimerHandle | None = None

    def stop(self) -> None:
        """Stop the ticks."""
        if self._ticker is not None:
            self._ticker.cancel()

    async def load(self, register: Register) -> Document:
        """Take over by compare-and-set."""
        document = await elect(register, self._clock, self._identity, self._after)
        now_s = asyncio.get_running_loop().time()
        self._heartbeats = LeaseExpiry(now_s)
        self._swept_s = self._persisted_s = self._committed_s = now_s
        self._tick()
        return document

    def _tick(self) -> None:
        loop = asyncio.get_running_loop()
        self._heartbeats.tick(loop.time())
        self._ticker = loop.call_later(_TICK_S, self._tick)

    def check(self, document: Document) -> None:
        """Raise ``DeposedError`` if the object names another broker."""
        check_leads(document, self._identity)
        self._samples.drop()
        self._persisted_s = self._committed_s

    def intercept(self, pending: PendingRequest, state: State, looked_s: float) -> Applied | None:
        """Reject what a client's token does not allow; answer heartbeats from memory if possible.

        Tokens are checked again whenever the state was read anew, and when a parked claim is
        served.
        """
        operation = pending.request.operation
        if state.settings.require_token and isinstance(pending, RemoteRequest):
            shown = pending.connection.shown
            error = refusal(state, shown, operation, self._clock.now())
            if error is not None:
                return Applied(None, error, [])
        if type(operation) is Heartbeat:
            return self._hear(operation, state, looked_s)
        if type(operation) is Announce:
            return self._note_worker(operation, state, looked_s)
        if type(operation) is DrainWorker:
            return self._write_down(operation, state, is_retry=pending.request.since is not None)
        return None

    def _note_worker(self, worker: Announce, state: State, looked_s: float) -> Applied | None:
        """Note a worker, and answer it at once unless there is a request for it.

        That answer waits until the request is committed. The row of its worker is kept up to date.
        """
        try:
            check_announcement(worker)
        except InvalidRequestError as error:
            return Applied(None, error, [])
        self._workers.hear(worker, state, asyncio.get_running_loop().time())
        row = state.workers.get(worker.id)
        if row is not None and (row.draining or worker.leaving):
            apply(state, Request(worker), self._clock.now())
            return None
        return _NOT_ASKED if self.is_fresh(looked_s) else None

    def _write_down(self, drain: DrainWorker, state: State, *, is_retry: bool) -> Applied | None:
        """Add rows for workers that are asked to finish: the request must outlive this broker.

        A worker that neither the object nor this broker knows is an error, unless the request may
        have been applied before.
        """
        now = self._clock.now()
        for worker in self._workers.named(drain.worker):
            if worker.id not in state.workers:
                apply(state, Request(worker), now)
        if is_retry or any(drain.worker in (row.name, row.id) for row in state.workers):
            return None
        known = apply(state, Request(ReadWorkers()), now)
        listed = self._with_workers(state, known, now).answer
        return Applied(None, not_found(drain.worker, listed), [])

    def _hear(self, beat: Heartbeat, state: State, looked_s: float) -> Applied | None:
        """Note a heartbeat, and answer it at once if every lease is held.

        Any other answer may come from what is applied and not committed yet, and waits for it.
        """
        now_s = asyncio.get_running_loop().time()
        try:
            check_heartbeat(state, beat)
        except InvalidRequestError as error:
            return Applied(None, error, [])
        found = pulses(state, beat)
        is_good = True
        for pulse in found:
            if pulse.held:
                attempt = state.jobs.by_id[pulse.job].attempt
                self._heartbeats.hear(pulse.job, attempt, now_s)
                if pulse.job in beat.progress:
                    self._heartbeats.come(pulse.job, attempt, beat.progress[pulse.job])
            is_good = is_good and pulse.held and not pulse.cancel_requested
        return Applied(found, None, []) if is_good and now_s - looked_s <= PROOF_S else None

    def read(self, state: State, request: Request, now: datetime) -> Applied:
        """Answer a read, or a heartbeat that was not answered at once."""
        operation = request.operation
        if isinstance(operation, ReadSnapshot):
            size_bytes = state.size_bytes + state.cold.rows.live_bytes
            if size_bytes > SNAPSHOT_BYTES:
                return Applied(None, _too_large(size_bytes), [])
        if isinstance(operation, Announce):
            row = state.workers.get(operation.id)
            return Applied(row is not None and row.draining, None, [])
        if not isinstance(operation, Heartbeat):
            applied = self._with_news(state, operation, apply(state, request, now))
            return (
                self._with_workers(state, applied, now)
                if type(operation) is ReadWorkers
                else applied
            )
        return Applied(pulses(state, operation), None, [])

    def _with_workers(self, state: State, applied: Applied, now: datetime) -> Applied:
        """Add the workers that this broker has heard."""
        heard = self._workers.rows(state, now, asyncio.get_running_loop().time())
        return Applied(merged(applied.answer, heard), applied.error, applied.changes)

    def progress_of(self, job: JobRecord) -> Progress | None:
        """Return what the worker of a job reported last; it is not in the object yet."""
        return self._heartbeats.progress_of(job)

    def _with_news(self, state: State, operation: Operation, applied: Applied) -> Applied:
        """Add what only this broker knows: the progress of jobs, and how its commits went."""
        answer = applied.answer
        if isinstance(answer, Stats):
            is_asked = isinstance(operation, ReadStats) and operation.samples
            past = self._samples.read() if is_asked else None
            answer = replace(answer, commit_stats=self._meter.measure(), samples=past)
        elif isinstance(operation, Wait) and not isinstance(answer, JobEnd) and not applied.error:
            job = state.jobs.by_id.get(operation.job)
            answer = None if job is None else news_of(operation, self.progress_of(job))
        elif isinstance(answer, JobRecord) and answer.status == "running":
            answer = replace(answer, progress=self.progress_of(answer))
        elif isinstance(answer, Page):
            jobs = (
                replace(job, progress=self.progress_of(job)) if job.status == "running" else job
                for job in answer.jobs
            )
            answer = Page(tuple(jobs), answer.next_after)
        return Applied(answer, applied.error, applied.changes)

    def end_leases(self, state: State, looked_s: float) -> bool:
        """Do nothing: the sweep ends leases once a second, even without claims."""
        return False

    def before_commit(self, state: State, parked: ParkedClaims, looked_s: float) -> None:
        """End the leases of silent workers, and persist how long the others have been silent."""
        now, now_s = self._clock.now(), asyncio.get_running_loop().time()
        if now_s < self._swept_s + _SWEEP_S:
            return
        self._swept_s = now_s
        silent: dict[str | None, None] = {}
        for expire in self._heartbeats.stale(state, now_s):
            silent[state.jobs.by_id[expire.job].worker] = None
            apply(state, Request(expire), now)
            if self._observer is not None:
                self._observer.lease_expired()
        if silent and parked:
            parked.put_last(silent)
        if state.running and now_s - self._persisted_s >= state.settings.lease_s / 3:
            self._persisted_s = now_s
            apply(state, Request(self._heartbeats.write_down(state, now_s)), now)
            self._heartbeats.wrote_down(state)

    def prepared(self, state: State) -> None:
        """Count what is about to be committed, if it is time."""
        self._samples.take(state)

    def committed(self, answered: Collection[PendingRequest], state: State | None) -> None:
        """Count the silence of a worker from the answer to its claim, even if that was late."""
        now_s = asyncio.get_running_loop().time()
        self._committed_s = self._persisted_s
        self._samples.keep()
        for pending in answered:
            operation, applied = pending.request.operation, pending.applied
            if type(operation) is Claim and applied is not None:
                for job in applied.answer or ():
                    self._heartbeats.hear(job.id, job.attempt, now_s)
            elif type(operation) in CLAIMS and applied is not None and state is not None:
                self._hear_changed(applied.changes, state, now_s)

    def wrote(self, verdict: Verdict, took_s: float, size_bytes: int, requests: int) -> None:
        """Measure a write."""
        self._meter.wrote(verdict, took_s, size_bytes, requests)

    def _hear_changed(self, changes: list[Change], state: State, now_s: float) -> None:
        """Note the jobs of a batch; its answer does not name them."""
        for table, row in changes:
            job = state.jobs.by_id.get(row) if table == "jobs" else None
            if job is not None and job.status == "running":
                self._heartbeats.hear(job.id, job.attempt, now_s)

    def is_fresh(self, looked_s: float) -> bool:
        """Trust what is in memory while the proof of leadership is young."""
        return asyncio.get_running_loop().time() - looked_s <= PROOF_S

    def next_look_s(self, looked_s: float) -> float | None:
        """Prove every few seconds that it still leads."""
        return looked_s + _PROVE_S

    def next_duty_s(self, state: State | None) -> float | None:
        """Sweep once a second while jobs run."""
        return self._swept_s + _SWEEP_S if state is not None and state.running else None


def _too_large(size_bytes: int) -> PayloadTooLargeError:
    return PayloadTooLargeError(
        f"a snapshot of this queue has about {size_bytes:,} bytes, and a broker sends at most "
        f"{SNAPSHOT_BYTES:,}: read pages of jobs (Queue.jobs, `bucketq ls --all`), or read the "
        "storage by the address of the queue's object (`bucketq export`, Spark, or a queue with "
        'mode="direct")'
    )
