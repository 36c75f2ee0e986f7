"""``GroupCommitQueue``: while one write is in flight, the next batch collects.

One task owns the state and writes it. A request is applied to the state in memory as soon as it
comes, ahead of the write in flight, and its answer is held back until the write that contains
it has landed; so a thousand callers share one write. The bytes of a write are frozen when it
begins: what comes later waits for the next one.

When a commit is lost to another writer the state is thrown away, and every request that has
not been answered is applied to the fresh one. Where a batch changes nothing (reads, empty claims,
refusals) nothing is written, but the object is asked whether it has changed first, so that no
answer is older than its question.

A claim that may wait and finds nothing is parked, and fed before the next write goes out. While
claims are parked the object is looked at once a second, for what others have pushed.

A bad request fails alone. A store that refuses is asked again with growing pauses; a write that it
refuses is refused to those who asked for it, and reads beside it are answered. Claims that wait
outlive a refusal that passes, and are refused when it lasts. If the owning task cannot go on (the
object is gone, or cannot be trusted), everybody is told; no one waits on a queue gone mute.
"""

from __future__ import annotations

import asyncio
import logging
import os
from functools import partial
from typing import Any, TypeVar

from msgspec.structs import replace

from bucketq.clock import Clock
from bucketq.codec import Document
from bucketq.commit.backlog import Backlog
from bucketq.commit.lease_watch import LeaseWatch
from bucketq.commit.pacing import ALONE_S, Courtesy, Gather
from bucketq.commit.parking import Parking, next_due_s
from bucketq.commit.reading import look_up_in_turns, reads_among
from bucketq.commit.register import Register, Settled
from bucketq.commit.request_ids import is_unjudged
from bucketq.commit.stall import StallWatch
from bucketq.commit.transient_faults import Refusals
from bucketq.commit.waiting import Caller, Waiting
from bucketq.errors import (
    BucketQError,
    ClosedError,
    NotDurableError,
    StoreRefusedError,
    UnavailableError,
)
from bucketq.model.operations import CLAIMS, READS, Claim, Request, Withdraw
from bucketq.model.transitions import Applied, apply
from bucketq.queue.object import ObjectQueue
from bucketq.store.conditional import Verdict

T = TypeVar("T")

_log = logging.getLogger("bucketq")

_LOOK_S = 1.0
_SHORTEST_WAIT_S = 0.001
_NOTHING = Applied((), None, [])


class GroupCommitQueue(ObjectQueue[T]):
    """A queue that commits what all its callers ask for in one write after another."""

    _reads = frozenset[type](READS)  # Answered from what is committed; they change nothing.

    def __init__(self, register: Register, clock: Clock, **options: Any) -> None:
        """Make a queue over a register; the options are those of ``ObjectQueue``."""
        super().__init__(register, clock, **options)
        self._backlog = Backlog()
        self._parked: Parking[Waiting] = Parking()
        self._wake = asyncio.Event()
        self._gather = Gather()
        self._courtesy = Courtesy(ALONE_S, takes_turns=True)
        self._leases = LeaseWatch()
        self._refusals = Refusals(clock, _log, self._where)
        self._stalls = StallWatch(
            register, clock, self._backlog, self._stalled_reads, self._look_up, self._check
        )
        self._looked_at = 0.0
        """When the object was last known to be what is in memory, by the loop's time."""
        self._task: asyncio.Task[None] | None = None
        self._broken: Exception | None = None

    async def __aenter__(self) -> GroupCommitQueue[T]:
        """Load or create the queue, and begin to commit."""
        await self._open()
        self._start()
        return self

    async def __aexit__(self, *_: object) -> None:
        """Commit what has been asked for, then close."""
        if os.getpid() != self._process:
            return  # A forked child has no threads to write with, and it is its parent's to do.
        self._send_away(ClosedError(f"the queue {self._where} is closed: connect again"))
        await self._close()
        task = self._task
        if task is None:
            return
        self._wake.set()
        await self._stalls.finish(task, self._closing_s())
        self._tell_everybody(None)
        self._document = None

    def _closing_s(self) -> float:
        """How long closing may wait for what is under way."""
        return self._timeout_s

    def _start(self) -> None:
        loop = asyncio.get_running_loop()
        self._looked_at = loop.time()
        self._task = loop.create_task(self._run())
        self._stalls.start(lambda late: self._unknown(late.request, late.since, "in time"))

    async def _submit(self, request: Request) -> Any:
        """Apply a request, and wait until what it led to is durable."""
        loop = asyncio.get_running_loop()
        waiting = Caller(request, self._register.version, loop)
        self.admit(waiting)
        self.accept(waiting)
        limit_s = self._timeout_s + max(0.0, waiting.until - loop.time())
        try:
            async with asyncio.timeout(limit_s):
                # If the caller is cancelled, the request still commits; only its answer is dropped.
                return await waiting.answer
        except TimeoutError as error:
            raise self._unknown(waiting.request, waiting.since) from error

    def accept(self, waiting: Waiting) -> None:
        """Take a request: apply it, and let it be answered once that is durable."""
        if self._task is None or self._task.done():
            gone = ClosedError(f"the queue {self._where} is closed: connect again")
            waiting.tell(None, self._broken or gone)
            return
        if waiting.is_told and type(waiting.request.operation) is Claim:
            return  # Its client hung up before its turn came: it would take jobs for no one.
        if self._parked and self._document and type(waiting.request.operation) in CLAIMS:
            self._hand_out(self._document)  # Whoever has waited longer goes first.
        self._backlog.add(waiting)
        if self._document is not None:
            self._apply(waiting, self._document)
        self._wake.set()

    def withdraw(self, claim: Claim) -> None:
        """Let a claim wait no longer: its caller is gone. What it has got is given back."""
        self._let_go(claim.secret)

    def _let_go(self, secret: str) -> None:
        for parked in self._parked.withdraw(secret):
            parked.tell((), None)

    def _send_away(self, error: Exception) -> None:
        """Tell the claims that wait that they wait in vain."""
        parked, self._parked = self._parked, Parking()
        for waiting in parked:
            waiting.tell(None, error)

    def admit(self, waiting: Waiting) -> None:
        """Raise ``OverloadedError`` where too much waits already."""
        self._backlog.admit(waiting, self._where, self._gather.last_s)

    async def _run(self) -> None:
        """Own the state: commit batch after batch, until the queue is closed and all is said."""
        try:
            while True:
                await self._until_needed()
                if self._closed is not None and not self._backlog.batch:
                    return
                if self._backlog.batch:
                    await self._gather.wait(lambda: len(self._backlog.batch))
                    await self._courtesy.turn()
                # Before the round: what it finds in the object is to be attended to after it.
                self._wake.clear()
                await self._round()
        except Exception as error:  # noqa: BLE001 - whatever it is, nobody may wait for ever
            self._broken = error
            self._tell_everybody(error)
        except asyncio.CancelledError:
            # Somebody ends all tasks of the loop, or closing has waited long enough.
            self._closed = self._closed or "was cancelled: connect again"
            self._tell_everybody(None)
            raise

    async def _until_needed(self) -> None:
        """Sleep until there is a request, or something else to attend to."""
        if self._backlog.batch or self._closed is not None:
            return
        loop = asyncio.get_running_loop()
        needed_at = self._needed_at()
        if needed_at is not None:
            needed_at = max(needed_at, self._refusals.rests_until_s)
        timer = None if needed_at is None else loop.call_at(needed_at, self._wake.set)
        try:
            await self._wake.wait()
        finally:
            if timer is not None:
                timer.cancel()

    def _needed_at(self) -> float | None:
        """When this queue has something to do by itself, by the loop's time."""
        if not self._parked:
            return None
        times = [self._looked_at + _LOOK_S]
        expiry = self._parked.next_expiry()
        if expiry is not None:
            times.append(expiry)
        due_s = next_due_s(self._current_state(), self._clock.now())
        if due_s is not None:
            times.append(asyncio.get_running_loop().time() + max(due_s, _SHORTEST_WAIT_S))
        return min(times)

    async def _round(self) -> None:
        """Settle the requests that have come so far; a look that is refused, is refused to them."""
        try:
            await self._settle_batch()
        except StoreRefusedError as error:
            if not self._backlog.in_flight:
                self._backlog.send()
            self._document = None
            self._answer_in_flight(error)
            if self._refusals.refuse_look(error):
                self._send_away(error)
        else:
            self._refusals.allow_look()

    async def _settle_batch(self) -> None:
        if self._document is None:
            self._adopt(await self._load())
        document = self._document
        if document is None:
            return  # A request spoiled it, and has been told so; the others start over.
        self._attend(document)
        self._feed(document)
        if self._document is not document:
            return
        self._backlog.send()
        if not document.state.has_changes:
            self._read(document)
            if self._backlog.in_flight or self._is_look_due():
                await self._confirm(document)
            return
        self._keep_tidy(document.state)
        base_version = self._register.version
        began_at = asyncio.get_running_loop().time()
        prepared = self._register.prepare(document)
        self._read(document)
        try:
            settled = await self._register.commit(document, prepared)
        except StoreRefusedError as error:
            await self._refuse_write(error)
            return
        self._refusals.allow_write()
        self._looked_at = began_at
        took_s = asyncio.get_running_loop().time() - began_at
        self._courtesy.wrote(began_at, was_first=settled.verdict is Verdict.LANDED)
        self._gather.wrote(took_s, len(self._backlog.in_flight), len(self._backlog.batch))
        self._settle(document, settled, base_version)

    async def _refuse_write(self, error: StoreRefusedError) -> None:
        """Refuse the writes of a batch; its reads are answered by a look at what is there."""
        self._document = None
        self._refusals.refuse_write(error)
        reads = self._backlog.split(self._reads)
        self._answer_in_flight(error)
        if reads:
            self._backlog.in_flight = reads
            document = await self._load()
            self._check(document)
            self._read(document)
            self._answer_in_flight(None)
            self._adopt(document)

    def _attend(self, document: Document) -> None:
        """Do what nobody asks for, before a write goes out."""
        if self._parked:
            self._end_silent(document)

    def _end_silent(self, document: Document) -> bool:
        """End the leases of silent workers for whoever claims; returns whether there were any."""
        now, now_s = self._clock.now(), asyncio.get_running_loop().time()
        return self._leases.end_silent(document.state, now, now_s, self._looked_at)

    def _feed(self, document: Document) -> None:
        """Hand out jobs to parked claims; let those go that have waited long enough."""
        if not self._parked:
            return
        self._hand_out(document)
        if self._document is not document:
            return
        for parked in self._parked.take_expired(asyncio.get_running_loop().time()):
            self._expire_parked(parked)

    def _hand_out(self, document: Document) -> None:
        """Give jobs to parked claims, in the order in which they came."""
        now = self._clock.now()
        while (parked := self._parked.next_servable(document.state, now)) is not None:
            if parked.is_told:
                continue
            # It is parked again only if its answer is lost to another writer with time left.
            until, parked.until = parked.until, 0.0
            self._backlog.add(parked)
            self._apply(parked, document)
            parked.until = until
            if self._document is not document:
                return

    def _expire_parked(self, parked: Waiting) -> None:
        """Answer a claim that has found nothing, with everything else that changes nothing."""
        parked.applied = _NOTHING
        self._backlog.add(parked)

    def _is_look_due(self) -> bool:
        return bool(self._parked) and asyncio.get_running_loop().time() >= self._looked_at + _LOOK_S

    def _read(self, document: Document) -> None:
        """Let the reads of a batch see exactly the version that is about to be written.

        Those for which there is no time now wait for the next round.
        """
        reads, now = reads_among(self._backlog.in_flight, self._reads), self._clock.now()
        look_up = partial(self._look_up, document, now=now)
        left = look_up_in_turns(reads, look_up, asyncio.get_running_loop().time)
        self._backlog.postpone(left)

    def _stalled_reads(self) -> list[Waiting]:
        """The reads without an answer; none if nothing is in memory to check who may ask."""
        return [] if self._document is None else reads_among(self._backlog, self._reads)

    def _look_up(self, document: Document, request: Request, now: Any) -> Applied:
        return apply(document.state, request, now)

    async def _confirm(self, document: Document) -> None:
        """Answer a batch that changes nothing, once the object is known not to have changed."""
        began_at = asyncio.get_running_loop().time()
        try:
            fresh = await self._register.refresh(document)
        except UnavailableError:
            fresh = await self._load()
        else:
            self._looked_at = began_at
        if fresh is not document:
            self._start_over(fresh)
        elif not self._reclaim(document):
            self._answer_in_flight(None)

    def _reclaim(self, document: Document) -> bool:
        """Let claims that found nothing have the jobs of workers that this look shows as silent."""
        in_vain = [each for each in self._backlog.in_flight if each.is_in_vain]
        if not (in_vain or self._parked) or not self._end_silent(document):
            return False
        self._wake.set()  # The next round serves the claims that are parked.
        self._backlog.put_back()
        for waiting in in_vain:
            if self._document is document:
                self._apply(waiting, document)
        return True

    def _settle(self, document: Document, settled: Settled, base_version: int) -> None:
        if settled.verdict is Verdict.LANDED:
            self._answer_in_flight(None)
        elif settled.verdict is Verdict.FORGOTTEN:
            for waiting in self._backlog.in_flight:
                since = min(waiting.since, base_version)
                waiting.request = replace(waiting.request, since=since)
        if settled.document is not document:
            self._start_over(settled.document)

    def _start_over(self, document: Document) -> None:
        """Apply every request without an answer to a fresh state."""
        self._backlog.put_back()
        self._adopt(document)

    def _adopt(self, document: Document) -> None:
        """Go on with a state that was just read."""
        self._check(document)
        self._document = document
        for waiting in list(self._backlog.batch):
            if self._document is document:
                self._apply(waiting, document)
        self._wake.set()

    def _check(self, document: Document) -> None:
        """Raise where this queue may not go on with a state that was just read."""

    async def _load(self) -> Document:
        document, self._looked_at = await self._register.load_until_answered()
        return document

    def _apply(self, waiting: Waiting, document: Document) -> None:
        """Apply one request; if that goes wrong in a way it never should, it fails alone."""
        request = waiting.request
        if type(request.operation) in self._reads:
            return
        try:
            if type(request.operation) in CLAIMS:
                self._end_silent(document)
            waiting.applied = applied = apply(document.state, request, self._clock.now())
        except Exception as error:  # noqa: BLE001 - a fault of ours must not take others down
            self._document = None  # It may be half changed: nobody goes on with it.
            self._backlog.drop(waiting)
            waiting.tell(None, error)
            return
        if type(request.operation) is Withdraw:
            self._withdraw(waiting, request.operation, applied)
        elif applied.answer == () and type(request.operation) is Claim:
            self._park(waiting, request.operation)

    def _park(self, waiting: Waiting, claim: Claim) -> None:
        """Let a claim that found nothing wait, if it may."""
        has_time = waiting.until > asyncio.get_running_loop().time()
        if claim.wait_s and has_time and self._closed is None and not waiting.is_told:
            self._backlog.drop(waiting)
            self._parked.add(waiting)

    def _withdraw(self, waiting: Waiting, withdraw: Withdraw, applied: Applied) -> None:
        """Let go of a parked claim. Unless jobs were released, nothing has to be written."""
        self._let_go(withdraw.secret)
        if not applied.changes:
            self._backlog.drop(waiting)
            waiting.tell(applied.answer, applied.error)

    def _answer_in_flight(self, error: BucketQError | None) -> None:
        """Hand out the answers of the batch that was just settled."""
        for waiting in self._backlog.settle():
            applied = waiting.applied
            if error is not None or applied is None:
                self._reject(waiting, error)
            else:
                waiting.tell(applied.answer, applied.error)

    def _reject(self, waiting: Waiting, error: BucketQError | None) -> None:
        """Answer a request with an error; an earlier write of it may have landed all the same."""
        if error is not None and is_unjudged(error, waiting.request):
            error = self._still_unknown(waiting.request, error)
        waiting.tell(None, error)

    def _tell_everybody(self, error: Exception | None) -> None:
        """Leave nobody waiting for a queue that commits no more."""
        left = [*self._backlog.clear(), *self._parked]
        self._parked = Parking()
        for waiting in left:
            told = error or self._unknown(waiting.request, waiting.since)
            if isinstance(error, NotDurableError):
                told = self._stopped(error, waiting.request, waiting.since)
            waiting.tell(None, told)
