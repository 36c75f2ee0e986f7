"""``DirectCommitter``: every request reads the object, changes it, and writes it back by itself.

It needs no other process and holds nothing that could be lost. Each change costs a write of the
whole object, and writers that collide retry, so it suits a few operations a second.
"""

from __future__ import annotations

import asyncio
from contextlib import nullcontext, suppress
from functools import partial
from typing import Any

from msgspec.structs import replace

from bucketq.archive.writer import ArchiveWriter
from bucketq.clock import Clock
from bucketq.codec.document import Document
from bucketq.commit.cold_reads import apply_reading
from bucketq.commit.direct_lease_expiry import DirectLeaseExpiry
from bucketq.commit.history_reader import HistoryReads
from bucketq.commit.large_pushes import LargePushes
from bucketq.commit.objects.pacing import FairnessPause
from bucketq.commit.objects.queue_segments import StaleStateError
from bucketq.commit.objects.register import Register
from bucketq.commit.outcome_errors import closed, not_durable, rejected_repeat, unanswered
from bucketq.commit.parked_claims import next_due_s
from bucketq.commit.parked_waits import ParkedWaits
from bucketq.commit.polled_waits import PolledWaits
from bucketq.commit.request_ids import is_unjudged
from bucketq.commit.side_transfers import SideTransfers
from bucketq.commit.upkeep.archiver import Archiver
from bucketq.commit.upkeep.background import Background
from bucketq.commit.upkeep.direct_upkeep import DirectUpkeep
from bucketq.commit.upkeep.history_keeper import HistoryKeeper
from bucketq.commit.upkeep.job_expirer import JobExpirer
from bucketq.commit.upkeep.schedule_firer import ScheduleFirer
from bucketq.commit.upkeep.segment_upkeep import SegmentUpkeep
from bucketq.commit.upkeep.spiller import Spiller
from bucketq.commit.upkeep.tidying import tidy
from bucketq.errors import NotDurableError, RejectedError, UnavailableError
from bucketq.model.history import is_asked
from bucketq.model.operations import CLAIMS, HISTORY_READS, READS, Claim, Heartbeat, Request
from bucketq.model.results import Wait
from bucketq.model.side_objects import TRANSFERS
from bucketq.model.state import State
from bucketq.model.transitions import Applied
from bucketq.model.worker_records import Announce
from bucketq.store.backoff import RetryBackoff
from bucketq.store.resolve_write import Verdict

_FIRST_RETRY_S = 0.01
_LAST_RETRY_S = 1.0
"""Retries while the storage does not answer: from about the latency of a fast store up to a rate
that does not add to the trouble of a store."""
_LAST_RACE_S = 0.2
"""The longest pause after losing to another writer: shorter than the pauses that busy writers make
(``pacing.FairnessPause``), or they are missed."""
_FIRST_POLL_S = 0.05
_LAST_POLL_S = 1.0
"""How often a claim that waits reads the object again for jobs that others pushed: often at first,
then as often as a conditional GET is cheap on every store."""
_SHORTEST_WAIT_S = 0.005
"""A timer may fire a little early; this keeps a claim from spinning until a delayed job is due."""


class DirectCommitter:
    """Commits each request with one compare-and-set of the object."""

    mode = "direct"
    joins = True

    def __init__(
        self,
        register: Register,
        clock: Clock,
        *,
        timeout_s: float = 60.0,
        create: bool = True,
        archive: ArchiveWriter | None = None,
        fires_schedules: bool = False,
    ) -> None:
        """Make a committer over a register; other arguments are those of ``GroupCommitter``.

        ``fires_schedules`` is whether it stays open and fires them, as workers do.
        """
        self._register = register
        self._clock = clock
        self._timeout_s = timeout_s
        self._create = create
        self.where = register.where
        submit = partial(self.submit, timeout_s=timeout_s)
        self._archiver = Archiver(submit, archive, clock, self.where)
        spiller = Spiller(submit, register.segments, clock, self.where)
        self._upkeep = SegmentUpkeep(submit, register, clock, archive)
        self._large_pushes = LargePushes(register.segments, clock, self.where)
        self._history = HistoryKeeper(submit, register, clock)
        self._own_upkeep = DirectUpkeep(register, spiller, self._upkeep, self._history)
        self._schedules = ScheduleFirer(submit, clock, self.where)
        self._expirer = JobExpirer(submit, clock, self.where)
        self._fires_schedules = fires_schedules
        self._history_reads = HistoryReads(register, clock, archive, lambda: self.state)
        self._transfers = SideTransfers(register.side, self.where, lambda: self.state)
        self._waits = PolledWaits(self._submit_once, self._look)
        self._looked_at = 0
        """The version in which the jobs of waits were last looked up."""
        self._claiming = Background()
        self._document: Document | None = None
        self._line = asyncio.Lock()
        self._turn = asyncio.Lock()
        """An operation holds both, and a heartbeat only the second: so it waits for two others at
        most. Those in the line may be so many that its lease would expire."""
        self._under_way = 0
        """How many operations hold the locks or wait for them."""
        self._leases = DirectLeaseExpiry()
        self._fairness = FairnessPause(clock)
        self._seen: State | None = None
        """The state that the last request was applied to."""
        self.sees_broker = False
        """Whether the object named a broker when it was last read."""
        self._changed = asyncio.Event()
        self._poll_s = _FIRST_POLL_S
        self.is_open = False

    @property
    def version(self) -> int:
        """The newest version of the object that it has seen or written."""
        return self._register.version

    async def open(self) -> None:
        """Load or create the queue."""
        loading = self._register.open(create=self._create)
        self._document = await self._register.in_time(loading, self._timeout_s)
        self.is_open = True
        self._archiver.start(lambda: self.state)
        self._upkeep.start(lambda: self.state)
        self._history.start(lambda: self.state)
        self._expirer.start(lambda: self.state)
        self._expirer.notice(self._document.state)
        if self._fires_schedules:
            self._schedules.start(lambda: self.state, leads=False)
            self._schedules.notice(self._document.state)

    async def close(self) -> None:
        """Wait for requests in progress, then close."""
        await self._schedules.stop()
        await self._expirer.stop()
        await self._archiver.stop()
        await self._upkeep.stop()
        await self._history.stop()
        self.is_open = False
        self._announce()
        await self._waits.stop(closed(self.where))
        await self._claiming.finish(self._timeout_s)
        async with self._line, self._turn:
            self._document = self._seen = None

    async def submit(self, request: Request, timeout_s: float) -> Any:
        """Commit one request, retrying until its outcome is certain or the time is over."""
        if not self.is_open:
            raise closed(self.where)
        operation = request.operation
        if isinstance(operation, Wait):
            return await self._waits.wait(request, timeout_s)
        if not isinstance(operation, Claim):
            return await self._submit_once(request, timeout_s)
        until = asyncio.get_running_loop().time() + operation.wait_s
        while True:
            # Before the claim, or a change between its answer and the waiting would be missed.
            changed = self._changed
            # In a task: if the caller is cancelled, a withdrawal must know how the write ended.
            jobs = await asyncio.shield(self._claiming.start(self._submit_once(request, timeout_s)))
            left_s = until - asyncio.get_running_loop().time()
            # A claim that finds nothing has changed nothing, so it can be made again.
            if jobs or left_s <= 0:
                return jobs
            await self._arrival(changed, left_s)
            if not self.is_open:
                raise closed(self.where)

    async def flush_archive(self) -> int:
        """Archive everything that is finished now, and return how many jobs left by this call."""
        return await self._archiver.flush()

    async def _submit_once(self, request: Request, timeout_s: float) -> Any:
        attempts = _Attempts(request)
        try:
            async with asyncio.timeout(timeout_s):
                if isinstance(request.operation, HISTORY_READS):
                    return await self._history_reads.read(request.operation)
                if isinstance(request.operation, TRANSFERS):
                    return await self._transfers.move(request.operation)
                if isinstance(request.operation, READS) and self._under_way:
                    return await self._read_in_time(attempts)
                return await self._try_in_turn(attempts)
        except TimeoutError as error:
            limit, trouble = f"in {timeout_s:g} s", self._register.trouble
            raise unanswered(self.where, limit, trouble, attempts.request, self.version) from error
        except NotDurableError as error:
            raise not_durable(error, attempts.request, self.version) from error
        except RejectedError as error:
            if is_unjudged(error, attempts.request):
                raise rejected_repeat(self.where, attempts.request, error) from error
            raise

    async def _read_in_time(self, attempts: _Attempts) -> Any:
        """Read when it is this request's turn, or beside a write that stalls."""
        loop = asyncio.get_running_loop()
        reading = loop.create_task(self._try_in_turn(attempts))
        stall = loop.create_task(self._register.stalled.wait())
        try:
            await asyncio.wait([reading, stall], return_when=asyncio.FIRST_COMPLETED)
            if reading.done():
                return reading.result()
        finally:
            reading.cancel()
            stall.cancel()
            await asyncio.gather(reading, stall, return_exceptions=True)
        return await self._read_beside(attempts.request)

    async def _read_beside(self, request: Request) -> Any:
        """Answer a read from the object: the outcome of changes in memory is unknown."""
        while True:
            document, _ = await self._register.beside().load_until_answered()
            with suppress(StaleStateError):
                now = self._clock.now()
                applied = await apply_reading(self._register, document.state, request, now)
                return applied.result()

    async def _try_in_turn(self, attempts: _Attempts) -> Any:
        is_urgent = isinstance(attempts.request.operation, Heartbeat)
        self._under_way += 1
        try:
            async with nullcontext() if is_urgent else self._line, self._turn:
                return await self._try_until_certain(attempts)
        finally:
            self._under_way -= 1

    async def _try_until_certain(self, attempts: _Attempts) -> Any:
        backoff = RetryBackoff(self._clock, _FIRST_RETRY_S, _LAST_RETRY_S)
        race = RetryBackoff(self._clock, _FIRST_RETRY_S, _LAST_RACE_S)
        await self._fairness.turn()
        while True:
            if attempts.is_needless and not self.is_open:
                raise closed(self.where)
            # An interruption must not leave a half-changed state behind.
            document, self._document = self._document, None
            looked_s = asyncio.get_running_loop().time()
            try:
                document = await (
                    self._register.load() if document is None else self._register.refresh(document)
                )
            except UnavailableError:
                await backoff.wait()
                continue
            if await self._put_first(document.state, attempts):
                self._document = document
                continue  # Others have committed meanwhile.
            try:
                applied = await self._apply(document, attempts.request, looked_s)
            except StaleStateError:
                continue
            if not document.state.has_changes:
                self._document = document
                return applied.result()
            base_version = self._register.version
            began_s = asyncio.get_running_loop().time()
            prepared = self._register.prepare(document)
            settled = await self._register.commit(document, prepared)
            is_first = settled.verdict is Verdict.LANDED
            if is_first and settled.document is document and not document.state.is_served:
                self._history.notice(document.state, prepared.body)
                self._archiver.notice(document.state)
            self._fairness.wrote(began_s, was_first=is_first)
            self._document = settled.document
            if is_first:
                self._own_upkeep.landed()
                self._announce()
                return applied.result()
            if settled.verdict is Verdict.FORGOTTEN:
                attempts.may_have_landed_since(base_version)
            await race.wait()

    async def _look(self, waits: ParkedWaits) -> bool:
        """Answer the waits whose jobs are over; return whether the object has changed."""
        async with self._line, self._turn:
            document, self._document = self._document, None
            document = await (
                self._register.load() if document is None else self._register.refresh(document)
            )
            self._document = document
            if self._looked_at == self._register.version:
                return False
            try:
                for pending in waits.take_over(document.state):
                    waits.add(pending)  # Unless it is answered, it waits on.
                    request, now = pending.request, self._clock.now()
                    applied = await apply_reading(self._register, document.state, request, now)
                    if applied.answer is not None or applied.error is not None:
                        waits.discard(pending)
                        pending.resolve(applied.answer, applied.error)
            except StaleStateError:
                self._document = None
            else:
                self._looked_at = self._register.version
        return True

    async def _put_first(self, state: State, attempts: _Attempts) -> bool:
        """Put what the commit of a request is to name; return whether something was put."""
        has_put = False
        if self._large_pushes.wants(state, attempts.request):
            attempts.request = await self._large_pushes.put(state, attempts.request)
            has_put = True
        is_alone = not state.is_served  # Otherwise the broker does it, beside its commits.
        is_exempt = isinstance(attempts.request.operation, (*READS, Heartbeat, Announce))
        if is_alone and not is_exempt and not attempts.has_kept_up:
            attempts.has_kept_up = True
            has_put = await self._own_upkeep.put(state) or has_put
        return has_put

    async def _apply(self, document: Document, request: Request, looked_s: float) -> Applied:
        state = document.state
        self._seen = state
        self.sees_broker = state.is_served
        self._schedules.notice(state)
        self._expirer.notice(state)
        now = self._clock.now()
        if isinstance(request.operation, CLAIMS):
            self._leases.end_silent(state, now, asyncio.get_running_loop().time(), looked_s)
        by = self._register.writer if request.session or is_asked(request.operation) else ""
        applied = await apply_reading(self._register, state, request, now, by)
        if state.has_changes:
            tidy(state, now)
            if not state.is_served:
                await self._own_upkeep.apply(state, now)
        return applied

    @property
    def state(self) -> State | None:
        """The newest known state, for judging what is due.

        While an operation is in progress it may hold changes that are not committed: a busy queue
        is hardly ever between two operations.
        """
        return self._document.state if self._document else self._seen

    def _announce(self) -> None:
        """Wake claims and waits of this process."""
        self._waits.announce()
        self._changed.set()
        self._changed = asyncio.Event()
        self._poll_s = _FIRST_POLL_S

    async def _arrival(self, changed: asyncio.Event, wait_s: float) -> None:
        """Wait for a change made here, the next delayed job, or the next poll."""
        self._poll_s = min(2 * self._poll_s, _LAST_POLL_S)
        wait_s = min(wait_s, self._poll_s)
        due_s = next_due_s(self.state, self._clock.now())
        if due_s is not None:
            wait_s = min(wait_s, max(_SHORTEST_WAIT_S, due_s))
        try:
            async with asyncio.timeout(wait_s):
                await changed.wait()
        except TimeoutError:
            return


class _Attempts:
    """A request, with what earlier tries have shown."""

    def __init__(self, request: Request) -> None:
        self.request = request
        self.has_kept_up = False
        """Whether upkeep was done for it: once is enough, however often it is tried."""
        self._in_doubt = False

    @property
    def is_needless(self) -> bool:
        """Whether it need not be tried again if the queue closes: no jobs were claimed for it.

        A client that has found a broker claims there instead. What it withdraws there must not be
        claimed here later.
        """
        return isinstance(self.request.operation, Claim) and not self._in_doubt

    def may_have_landed_since(self, version: int) -> None:
        """Note that it was written on top of ``version``, with an unknown outcome."""
        since = self.request.since
        since = version if since is None else min(since, version)
        self._in_doubt = True
        self.request = replace(self.request, since=since)
