"""``GroupCommitter``: while one write is in flight, the next batch collects.

One task owns the state and writes it. A request is applied to the state in memory as soon as it
comes, ahead of the write in flight (``working_state``), and its answer is held back until the write
that contains it has landed; so a thousand callers share one write. The bytes of a write are frozen
when it begins: what comes later waits for the next one.

When a commit is lost to another writer the state is discarded, and every pending request is applied
to the fresh one. If a batch changes nothing (reads, empty claims, rejections) nothing is written,
but first a conditional read checks whether the object has changed, so that no answer is older than
its question.

A bad request fails alone. A store that refuses is asked again with growing pauses; if it refuses a
write, the requests in that write fail, and reads beside them are answered. Parked claims survive a
short refusal, and fail if it lasts. If the owning task cannot continue (the object is gone, or
cannot be trusted), every request is answered with the reason.
"""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import Any

from bucketq.archive.writer import ArchiveWriter
from bucketq.clock import Clock
from bucketq.codec.document import Document
from bucketq.commit.cold_reads import ColdReads
from bucketq.commit.commit_hooks import CommitHooks
from bucketq.commit.deadlines import Deadlines
from bucketq.commit.history_reader import HistoryReads
from bucketq.commit.large_pushes import LargePushes
from bucketq.commit.objects.pacing import BatchDelay
from bucketq.commit.objects.register import Register
from bucketq.commit.outcome_errors import closed, unanswered
from bucketq.commit.pending_requests import LocalRequest, PendingRequest, callers
from bucketq.commit.side_transfers import SideTransfers
from bucketq.commit.stall import StallWatch
from bucketq.commit.upkeep.archiver import Archiver
from bucketq.commit.upkeep.commit_signal import CommitSignal
from bucketq.commit.upkeep.history_keeper import HistoryKeeper
from bucketq.commit.upkeep.job_expirer import JobExpirer
from bucketq.commit.upkeep.schedule_firer import ScheduleFirer
from bucketq.commit.upkeep.segment_upkeep import SegmentUpkeep
from bucketq.commit.upkeep.spiller import Spiller
from bucketq.commit.upkeep.transient_faults import TransientFault
from bucketq.commit.working_state import WorkingState
from bucketq.errors import StoreRefusedError, UnavailableError
from bucketq.model.operations import HISTORY_READS, Request
from bucketq.model.side_objects import TRANSFERS
from bucketq.model.state import State
from bucketq.store.resolve_write import Verdict
from bucketq.tracing import in_spans_of, outside_of_spans

_log = logging.getLogger("bucketq")

_LONGEST_REFUSAL_S = 5.0
"""How long parked claims survive while the store refuses reads: renewed credentials, or rights that
are not known to every server yet, must not stop workers."""


class GroupCommitter:
    """Commits the requests of all its callers, in one write after another."""

    mode = "embedded"
    joins = True

    def __init__(
        self,
        register: Register,
        clock: Clock,
        *,
        timeout_s: float = 60.0,
        create: bool = True,
        archive: ArchiveWriter | None = None,
        hooks: CommitHooks | None = None,
    ) -> None:
        """Make a committer over a register.

        Args:
            register: The object.
            clock: Time and entropy.
            timeout_s: How long opening and closing may take.
            create: Whether to create the queue if there is none.
            archive: Where finished jobs go; without it they stay in the queue.
            hooks: What its owner decides; by default those of an embedded queue.
        """
        self._register = register
        self._clock = clock
        self._timeout_s = timeout_s
        self._hooks = hooks or CommitHooks(clock, create=create)
        self.where = register.where
        submit = partial(self.submit, timeout_s=timeout_s)
        self._next_commit = CommitSignal()
        self._archiver = Archiver(submit, archive, clock, self.where, self._next_commit)
        self._spiller = Spiller(submit, register.segments, clock, self.where)
        self._upkeep = SegmentUpkeep(submit, register, clock, archive)
        self._history = HistoryKeeper(submit, register, clock)
        self._schedules = ScheduleFirer(submit, clock, self.where)
        self._expirer = JobExpirer(submit, clock, self.where)
        self._history_reads = HistoryReads(register, clock, archive, lambda: self.state)
        self._transfers = SideTransfers(register.side, self.where, lambda: self.state)
        self._wake = asyncio.Event()
        self._cold = ColdReads(register)
        self._large_pushes = LargePushes(register.segments, clock, self.where)
        self.working = WorkingState(
            self.where, clock, self._hooks, self._cold, self._large_pushes, self._wake.set
        )
        """The state in memory, and the pending requests."""
        self._batch_delay = BatchDelay()
        self._deadlines = Deadlines(
            lambda pending: self._unanswered(pending, f"in {pending.timeout_s:g} s")
        )
        unknown = partial(self._unanswered, limit="in time")
        self._stalls = StallWatch(register, clock, self.working, self._hooks, unknown)
        self._unreadable = TransientFault(clock, _log, f"{self.where}: cannot be read")
        self._unwritable = TransientFault(clock, _log, f"{self.where}: cannot be written")
        self._rests_until_s = 0.0
        """Until when the store is left alone, unless requests come; by the loop's time."""
        self.writing_since: float | None = None
        """When the current write or look began."""
        self._task: asyncio.Task[None] | None = None
        self._is_closing = False
        self._broken: Exception | None = None

    @property
    def version(self) -> int:
        """The newest version of the object that it has seen or written."""
        return self._register.version

    @property
    def is_open(self) -> bool:
        """Whether it accepts requests."""
        return self._task is not None and not self._is_closing and self._broken is None

    async def open(self) -> None:
        """Load or create the queue, and begin to commit."""
        loop = asyncio.get_running_loop()
        # Before the load, because it proves only what was true when it began.
        began_s = loop.time()
        document = await self._register.in_time(self._hooks.load(self._register), self._timeout_s)
        self.working.adopt(document, began_s)
        with outside_of_spans():
            self._start(loop, document.state)

    def _start(self, loop: asyncio.AbstractEventLoop, state: State) -> None:
        """Begin to commit, and all that is done beside it."""
        self._archiver.start(lambda: self.state)
        self._spiller.start(lambda: self.state)
        self._upkeep.start(lambda: self.state)
        self._history.start(lambda: self.state)
        self._schedules.start(lambda: self.state, leads=self._hooks.leads)
        self._schedules.notice(state)
        self._expirer.start(lambda: self.state)
        self._expirer.notice(state)
        self._task = loop.create_task(self._run())
        self._stalls.start()

    async def close(self, limit_s: float | None = None) -> None:
        """Commit what was submitted, then stop. Parked claims get ``ClosedError``."""
        self.working.send_away(closed(self.where))
        await self._schedules.stop()
        await self._expirer.stop()
        await self._archiver.stop()
        await self._spiller.stop()
        await self._upkeep.stop()
        await self._history.stop()
        self._is_closing = self.working.is_closing = True
        if self._task is not None:
            self._wake.set()
            limit_s = self._timeout_s if limit_s is None else limit_s
            await self._stalls.finish(self._task, limit_s)
        await self._cold.stop()
        await self._large_pushes.stop()
        await self._history_reads.stop()
        await self._transfers.stop()
        self._answer_all(None)
        self._deadlines.close()
        self.working.document = None

    async def submit(self, request: Request, timeout_s: float) -> Any:
        """Apply a request, and wait until its effect is durable."""
        loop = asyncio.get_running_loop()
        pending = LocalRequest(request, self._register.version, loop, self._register.writer)
        self.admit(pending)
        self.accept(pending)
        pending.timeout_s = timeout_s
        self._deadlines.add(pending, max(pending.until, loop.time()) + timeout_s)
        try:
            # If the caller is cancelled, the request still commits; only its answer is dropped.
            return await pending.answer
        finally:
            self._deadlines.remove(pending)

    async def flush_archive(self) -> int:
        """Archive everything that is finished now, and return how many jobs left by this call."""
        return await self._archiver.flush()

    @property
    def state(self) -> State | None:
        """The queue as it will be once what was submitted is written; None: it is read again."""
        return self.working.state

    @property
    def last_write_s(self) -> float:
        """How long the last write took."""
        return self._batch_delay.last_s

    async def stopped(self) -> Exception | None:
        """Wait until it has stopped; return why, or None if it was closed."""
        if self._task is not None:
            await asyncio.wait([self._task])
        return self._broken

    def admit(self, pending: PendingRequest) -> None:
        """Raise ``OverloadedError`` if too many requests are pending."""
        self.working.backlog.admit(pending, self.where, self._batch_delay.last_s)

    def accept(self, pending: PendingRequest) -> None:
        """Apply a request; it is answered once that is durable."""
        if self._task is None or self._task.done():
            pending.resolve(None, self._broken or closed(self.where))
            return
        if isinstance(pending.request.operation, HISTORY_READS):
            self._history_reads.start(pending, self.working.refusal_of)
            return
        if isinstance(pending.request.operation, TRANSFERS):
            self._transfers.start(pending, self.working.refusal_of)
            return
        self.working.accept(pending)
        if self._next_commit.is_awaited and self.state is not None and self.state.has_changes:
            self._next_commit.announce()
        self._wake.set()

    async def _run(self) -> None:
        """Own the state: commit batch after batch, until it is closed and all is answered."""
        backlog = self.working.backlog
        try:
            while True:
                await self._until_needed()
                if self._is_closing and not backlog.batch and not backlog.waiting:
                    return
                if backlog.batch:
                    await self._batch_delay.wait(lambda: callers(backlog.batch), self._wake)
                    await self._hooks.fairness.turn()
                # Before the round: what it finds in the object is for the next one.
                self._wake.clear()
                self.writing_since = asyncio.get_running_loop().time()
                await self._round()
                self.writing_since = None
                if self.state is not None:
                    self._schedules.notice(self.state)
                    self._expirer.notice(self.state)
        except Exception as error:  # noqa: BLE001 - whatever it is, no caller may hang
            self._broken = error
            self._answer_all(error)
        except asyncio.CancelledError:
            # All tasks of the loop are being cancelled, or closing has waited long enough.
            self._is_closing = True
            self._answer_all(None)
            raise

    async def _until_needed(self) -> None:
        """Sleep until there is a request, or something else to do."""
        if self.working.backlog.batch or (self._is_closing and not self.working.backlog.waiting):
            return
        needed_at = self.working.needed_at()
        if needed_at is not None:
            needed_at = max(needed_at, self._rests_until_s)
        loop = asyncio.get_running_loop()
        timer = None if needed_at is None else loop.call_at(needed_at, self._wake.set)
        try:
            await self._wake.wait()
        finally:
            if timer is not None:
                timer.cancel()

    async def _round(self) -> None:
        """Settle the requests that came so far. If the store refuses to be read, they fail."""
        working = self.working
        try:
            await self._settle_batch()
        except StoreRefusedError as error:
            if not working.backlog.in_flight:
                working.backlog.send()
            working.document = None
            working.answer_in_flight(error)
            self._rest(self._unreadable.strike(error))
            if self._unreadable.lasts_s >= _LONGEST_REFUSAL_S:
                working.send_away(error)
        else:
            self._unreadable.passed()

    async def _settle_batch(self) -> None:
        working = self.working
        if working.document is None:
            await self._load()
        document = working.document
        if document is None or not working.finish_batch(document):
            return  # A request failed half-way and was answered; the others are applied again.
        if not document.state.has_changes:
            self._hooks.prepared(document.state)
            working.read(document)
            if working.backlog.in_flight or working.is_look_due():
                await self._confirm(document)
            else:
                # All reads of this round wait for rows of segments, and others are left for the
                # next: other tasks have their turn in between.
                await asyncio.sleep(0)
            return
        base_version = self._register.version
        began_s = asyncio.get_running_loop().time()
        prepared = self._register.prepare(document)
        self._hooks.prepared(document.state)
        working.read(document)
        try:
            with in_spans_of(working.backlog.traceparents()):
                settled = await self._register.commit(document, prepared)
        except StoreRefusedError as error:
            await self._refuse_write(error)
            return
        self._unwritable.passed()
        took_s = asyncio.get_running_loop().time() - began_s
        self._hooks.fairness.wrote(began_s, was_first=settled.verdict is Verdict.LANDED)
        requests = callers(working.backlog.in_flight)
        self._batch_delay.wrote(took_s, requests, callers(working.backlog.batch))
        self._hooks.wrote(settled.verdict, took_s, len(prepared.body), requests)
        self._archiver.notice(document.state)
        self._spiller.notice(document.state)
        if settled.verdict is Verdict.LANDED and settled.document is document:
            self._history.notice(document.state, prepared.body)
        if working.settle(document, settled, base_version, began_s):
            self._wake.set()

    async def _refuse_write(self, error: StoreRefusedError) -> None:
        """Fail the writes of a batch; its reads are answered from the object."""
        working, backlog = self.working, self.working.backlog
        working.document = None
        self._rest(self._unwritable.strike(error))
        reads = backlog.split(self._hooks.reads)
        working.answer_in_flight(error)
        if reads:
            backlog.in_flight = dict.fromkeys(reads)
            document, looked_s = await self._register.load_until_answered()
            self._hooks.check(document)
            working.read(document)
            working.answer_in_flight(None)
            working.adopt(document, looked_s)
            self._wake.set()

    async def _confirm(self, document: Document) -> None:
        """Answer a batch that changes nothing, once the object is known not to have changed."""
        began_s = asyncio.get_running_loop().time()
        try:
            fresh = await self._register.refresh(document)
        except UnavailableError:
            fresh, began_s = await self._register.load_until_answered()
        if self.working.confirm(document, fresh, began_s):
            self._wake.set()

    async def _load(self) -> None:
        document, looked_s = await self._register.load_until_answered()
        self.working.adopt(document, looked_s)
        self._wake.set()

    def _rest(self, pause_s: float) -> None:
        self._rests_until_s = asyncio.get_running_loop().time() + pause_s

    def _answer_all(self, error: Exception | None) -> None:
        """Answer every request, because nothing is committed any more."""
        self.working.answer_all(
            lambda pending: error or self._unanswered(pending, "before it was closed")
        )

    def _unanswered(self, pending: PendingRequest, limit: str) -> UnavailableError:
        trouble = self._register.trouble
        return unanswered(self.where, limit, trouble, pending.request, pending.since)
