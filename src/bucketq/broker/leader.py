"""``Leader``: group commit that knows its epoch.

It is a queue like any other, and commits as group commit does. What it adds: it takes over by
compare-and-set when it opens; it goes on only while the object names it; it hears heartbeats
without writing them; it ends the leases of silent workers by its own clock; and it proves, while
nothing is written, that it still leads.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from datetime import datetime
from typing import Any

from bucketq.archive import ArchiveWriter
from bucketq.broker.broker_connection import RemoteRequest
from bucketq.broker.election import DeposedError, Identity, check_leads, elect
from bucketq.broker.silence import SilenceWatch
from bucketq.broker.token_guard import refusal
from bucketq.clock import Clock
from bucketq.codec import Document
from bucketq.commit.pacing import ALONE_S, Courtesy
from bucketq.commit.register import Register
from bucketq.commit.waiting import Waiting
from bucketq.errors import BucketQError, InvalidRequestError
from bucketq.model.leases import pulses
from bucketq.model.numbered_batches import ClaimBatch
from bucketq.model.operations import READS, Claim, Heartbeat, Request, Retire
from bucketq.model.state import Change, State
from bucketq.model.transitions import Applied, apply
from bucketq.queue.commit import GroupCommitQueue
from bucketq.store.base import LockHeldError

PROOF_S = 2.0
"""How old a proof of leadership may be for an answer from memory."""
_PROVE_S = 5.0
_SWEEP_S = 1.0
_TICK_S = 0.5


class Leader(GroupCommitQueue[Any]):
    """The broker of one queue, for as long as its epoch lasts."""

    _reads = frozenset[type]((*READS, Heartbeat))

    def __init__(
        self,
        register: Register,
        clock: Clock,
        *,
        identity: Identity,
        after: int,
        archive: ArchiveWriter | None,
        timeout_s: float,
    ) -> None:
        """Make a leader that takes over from epoch ``after`` when it is opened."""
        super().__init__(register, clock, timeout_s=timeout_s, archive=archive)
        # It does not take turns: direct writers beside it are few, and its clients are many.
        self._courtesy = Courtesy(ALONE_S)
        self._identity = identity
        self._after = after
        self._silence = SilenceWatch(0.0)
        self._swept_s = 0.0
        self._persisted_s = 0.0
        self._writing_since: float | None = None
        self._ticker: asyncio.TimerHandle | None = None
        self._ends_at: float | None = None
        """When it has to end, once it retires."""

    async def _first_document(self) -> Document:
        self._looked_at = asyncio.get_running_loop().time()
        document = await elect(self._register, self._clock, self._identity, self._after)
        now_s = asyncio.get_running_loop().time()
        self._silence = SilenceWatch(now_s)
        self._swept_s = self._persisted_s = now_s
        self._tick()
        return document

    def _start(self) -> None:
        """Begin to commit; that it leads is proved as of the beginning of its takeover."""
        proved_at = self._looked_at
        super()._start()
        self._looked_at = proved_at

    async def __aexit__(self, *error: object) -> None:
        """Commit what has been asked for, then close."""
        if self._ticker is not None:
            self._ticker.cancel()
        await super().__aexit__(*error)

    @property
    def state(self) -> State | None:
        """The queue as it will be once what was asked for is written; None: it is read again."""
        return self._current_state()

    @property
    def epoch(self) -> int:
        """The epoch in which it leads."""
        return self._after + 1

    @property
    def is_leading(self) -> bool:
        """Whether it still takes requests."""
        return self._broken is None and self._closed is None

    @property
    def waiting(self) -> tuple[int, int]:
        """How many requests have no answer yet, and how many bytes they carry."""
        return len(self._backlog), self._backlog.size_bytes

    @property
    def parked(self) -> int:
        """How many claims wait for a job."""
        return len(self._parked)

    @property
    def last_write_s(self) -> float:
        """How long the last write took."""
        return self._gather.last_s

    @property
    def unproven_s(self) -> float:
        """For how long it has not been proved that it leads."""
        return asyncio.get_running_loop().time() - self._looked_at

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
        since = self._writing_since
        return 0.0 if since is None else asyncio.get_running_loop().time() - since

    async def until_deposed(self) -> Exception | None:
        """Wait until it leads no more; returns why, or None where it was closed."""
        if self._task is not None:
            await asyncio.wait([self._task])
        return self._broken

    async def retire(self) -> bool:
        """Send waiting claims away, settle what has come, and clear the address.

        Returns whether it is cleared; if not, others find out that nobody is there.
        """
        self._ends_at = asyncio.get_running_loop().time() + self._timeout_s
        self._send_away(DeposedError("this broker retires: find the next one"))
        try:
            await self._submit(Request(Retire(id=self._identity.id, epoch=self.epoch)))
        except BucketQError:
            return False
        return True

    def _closing_s(self) -> float:
        """How long closing may wait: one limit for retiring and closing together."""
        if self._ends_at is None:
            return self._timeout_s
        return max(0.0, self._ends_at - asyncio.get_running_loop().time())

    def forget(self, claims: list[Waiting]) -> None:
        """Let parked claims go whose client is gone."""
        for claim in claims:
            self._parked.discard(claim)

    def _check(self, document: Document) -> None:
        check_leads(document, self._identity)

    def _tick(self) -> None:
        loop = asyncio.get_running_loop()
        self._silence.tick(loop.time())
        self._ticker = loop.call_later(_TICK_S, self._tick)

    def _needed_at(self) -> float:
        state = self._current_state()
        times = [self._looked_at + _PROVE_S]
        if state is not None and state.running:
            times.append(self._swept_s + _SWEEP_S)
        parked = super()._needed_at()
        if parked is not None:
            times.append(parked)
        return min(times)

    def _is_look_due(self) -> bool:
        now_s = asyncio.get_running_loop().time()
        # Reckoned as above: a difference may be rounded the other way, and nothing would wait.
        return super()._is_look_due() or now_s >= self._looked_at + _PROVE_S

    def _end_silent(self, document: Document) -> bool:
        """Leave that to the sweep: it comes once a second, whether anybody claims or not."""
        return False

    def _attend(self, document: Document) -> None:
        """End the leases of silent workers, and write down what was heard of the others."""
        state, now_s = document.state, asyncio.get_running_loop().time()
        if now_s < self._swept_s + _SWEEP_S:
            return
        self._swept_s = now_s
        now = self._clock.now()
        silent: dict[str | None, None] = {}
        for expire in self._silence.stale(state, now_s):
            silent[state.jobs.by_id[expire.job].worker] = None
            apply(state, Request(expire), now)
        if silent and self._parked:
            self._put_last(silent)
        if state.running and now_s - self._persisted_s >= state.settings.lease_s / 3:
            self._persisted_s = now_s
            apply(state, Request(self._silence.write_down(state, now_s)), now)
            self._silence.wrote_down(state)

    def _put_last(self, workers: Collection[str | None]) -> None:
        """Let claims of workers that fell silent wait behind all others.

        Whoever has waited longest would get its lost job again, while others who live wait for it.
        """
        for parked in list(self._parked):
            operation = parked.request.operation
            if isinstance(operation, Claim) and operation.worker in workers:
                self._parked.discard(parked)
                self._parked.add(parked)

    async def _settle_batch(self) -> None:
        self._writing_since = asyncio.get_running_loop().time()
        try:
            await super()._settle_batch()
        finally:
            self._writing_since = None

    def _apply(self, waiting: Waiting, document: Document) -> None:
        if document.state.settings.require_token and isinstance(waiting, RemoteRequest):
            # Asked again whenever the state was read anew, and when a parked claim is served.
            operation, shown = waiting.request.operation, waiting.connection.shown
            error = refusal(document.state, shown, operation, self._clock.now())
            if error is not None:
                self._backlog.drop(waiting)
                self._reject(waiting, error)
                return
        if type(waiting.request.operation) is Heartbeat:
            self._hear(waiting, waiting.request.operation, document)
        else:
            super()._apply(waiting, document)

    def _hear(self, waiting: Waiting, beat: Heartbeat, document: Document) -> None:
        """Note a heartbeat; where nothing but good news is to be told, tell it at once.

        Anything else might come from what is applied and not committed yet, and waits for it.
        """
        state, now_s = document.state, asyncio.get_running_loop().time()
        if len(beat.leases) > state.settings.max_batch_jobs:
            return
        found = pulses(state, beat)
        is_good = True
        for pulse in found:
            if pulse.held:
                attempt = state.jobs.by_id[pulse.job].attempt
                self._silence.hear(pulse.job, attempt, now_s)
            is_good = is_good and pulse.held and not pulse.cancel_requested
        if is_good and now_s - self._looked_at <= PROOF_S:
            self._backlog.drop(waiting)
            waiting.tell(found, None)

    def _look_up(self, document: Document, request: Request, now: datetime) -> Applied:
        operation = request.operation
        if not isinstance(operation, Heartbeat):
            return super()._look_up(document, request, now)
        limit = document.state.settings.max_batch_jobs
        if len(operation.leases) > limit:
            message = f"{len(operation.leases)} jobs in one heartbeat, at most {limit} are allowed"
            return Applied(None, InvalidRequestError(message), [])
        return Applied(pulses(document.state, operation), None, [])

    def _expire_parked(self, parked: Waiting) -> None:
        if self.unproven_s <= PROOF_S:
            parked.tell((), None)
        else:
            super()._expire_parked(parked)

    def _answer_in_flight(self, error: BucketQError | None) -> None:
        now_s = asyncio.get_running_loop().time()
        for waiting in self._backlog.in_flight:
            # Its worker learns of it now, however long the write took.
            operation, applied = waiting.request.operation, waiting.applied
            if type(operation) is Claim and applied is not None:
                for job in applied.answer or ():
                    self._silence.hear(job.id, job.attempt, now_s)
            elif type(operation) is ClaimBatch and applied is not None:
                self._hear_of(applied.changes, now_s)
        super()._answer_in_flight(error)

    def _hear_of(self, changes: list[Change], now_s: float) -> None:
        """Note who was told of the jobs of a batch; its answer does not name them."""
        state = self._current_state()
        jobs = {} if state is None else state.jobs.by_id
        for table, row in changes:
            job = jobs.get(row) if table == "jobs" else None
            if job is not None and job.status == "running":
                self._silence.hear(job.id, job.attempt, now_s)
