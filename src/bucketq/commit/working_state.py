"""``WorkingState``: the state in memory, which runs ahead of the object.

Requests are applied to it as they come, and their answers are held back until a write or a look at
the object confirms them. Nothing here does I/O: the ``GroupCommitter`` reads and writes, and
reports the outcome.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import datetime
from functools import partial
from typing import Any

from bucketq.clock import Clock
from bucketq.codec.document import Document
from bucketq.commit.claim_lines import ClaimLines
from bucketq.commit.cold_reads import ColdReads
from bucketq.commit.commit_hooks import CommitHooks
from bucketq.commit.large_pushes import LargePushes
from bucketq.commit.objects.queue_segments import StaleStateError
from bucketq.commit.objects.register import Settled
from bucketq.commit.outcome_errors import not_durable, rejected_repeat
from bucketq.commit.parked_claims import ParkedClaims, next_due_s
from bucketq.commit.parked_waits import ParkedWaits, has_answer
from bucketq.commit.pending_requests import Backlog, PendingRequest
from bucketq.commit.read_turns import look_up_in_turns, reads_among
from bucketq.commit.request_ids import is_unjudged
from bucketq.commit.upkeep.tidying import tidy
from bucketq.errors import BucketQError, CorruptStateError, NotDurableError, UnavailableError
from bucketq.model.indexes.cold_rows import ColdRowsNeededError
from bucketq.model.indexes.lane import lane_of
from bucketq.model.operations import CLAIMS, Claim, Heartbeat, Request, Withdraw
from bucketq.model.results import Wait
from bucketq.model.state import State
from bucketq.model.transitions import Applied, apply
from bucketq.store.resolve_write import Verdict

_LOOK_S = 1.0
"""How often the object is looked at while claims wait: a push by another process is seen that soon,
and one conditional GET a second is cheap on every store."""
_SHORTEST_WAIT_S = 0.001
"""A timer may fire a little early; this keeps the task from spinning until the job is due."""
_NOTHING = Applied((), None, [])


class WorkingState:
    """The state of one queue in memory, and its pending requests."""

    def __init__(
        self,
        where: str,
        clock: Clock,
        hooks: CommitHooks,
        cold: ColdReads,
        large_pushes: LargePushes,
        wake: Callable[[], None],
    ) -> None:
        """Begin without a document; ``adopt`` brings one.

        ``wake`` is called if there is something new to do that no caller brought.
        """
        self._where = where
        self._clock = clock
        self._hooks = hooks
        self._cold = cold
        self._large_pushes = large_pushes
        self._wake = wake
        self.document: Document | None = None
        """The object with what was applied to it; None: it must be read again."""
        self.looked_at = 0.0
        """When the object was last known to be what is in memory, by the loop's time."""
        self.backlog = Backlog()
        self.parked = ParkedClaims()
        self.waits = ParkedWaits()
        self._lines = ClaimLines()
        self.is_closing = False
        """Whether claims and waits are no longer parked."""
        self._reading_for_parked = False
        """Whether rows are being read that parked claims need."""

    @property
    def state(self) -> State | None:
        """The queue as it will be once what was submitted is written; None: it is read again."""
        return self.document.state if self.document else None

    def accept(self, pending: PendingRequest) -> None:
        """Apply a request."""
        is_claim = type(pending.request.operation) in CLAIMS
        if pending.is_resolved and type(pending.request.operation) is Claim:
            return  # Its client is gone, and no worker would run its jobs.
        if is_claim and self.parked and self.document:
            self._hand_out(self.document)  # Claims that have waited longer are served first.
        self.backlog.add(pending)
        if self.document is not None:
            self._apply_in_line(pending, self.document)
            if self.waits:
                self._report(pending, self.document)

    def refusal_of(self, pending: PendingRequest) -> Exception | None:
        """Return why a request is rejected that is answered beside the state; None: it is not."""
        if self.document is None:
            return UnavailableError("the queue is being reloaded: try again")
        answered = self._hooks.intercept(pending, self.document.state, self.looked_at)
        return None if answered is None else answered.error

    def adopt(self, document: Document, looked_s: float) -> None:
        """Continue with a document that was just read: apply every request that collects."""
        self.looked_at = looked_s
        self._hooks.check(document)
        self.document = document
        for wait in self.waits.take_over(document.state):
            self.backlog.add(wait)
        for pending in list(self.backlog.batch):
            if self.document is document:
                self._apply_in_line(pending, document)

    def finish_batch(self, document: Document) -> bool:
        """Add what is due without a request, and move the batch in flight.

        Returns False if the document must be read again first.
        """
        self._hooks.before_commit(document.state, self.parked, self.looked_at)
        if self.parked:
            self._hand_out(document)
            if self.document is document:
                self._answer_expired()
        if self.document is not document:
            return False
        if document.state.has_changes:
            tidy(document.state, self._clock.now())
        if self.waits:
            self._wake_waits(document)
        self.backlog.send()
        return True

    def read(self, document: Document) -> None:
        """Answer the reads of a batch from exactly the version that is about to be written.

        Those for which there is no time now wait for the next round.
        """
        if reads := reads_among(self.backlog.in_flight, self._hooks.reads):
            look_up = partial(self._hooks.read, document.state, now=self._clock.now())
            now_s = asyncio.get_running_loop().time
            self.backlog.postpone(look_up_in_turns(reads, look_up, now_s, self.set_aside))

    def settle(
        self, document: Document, settled: Settled, base_version: int, began_s: float
    ) -> bool:
        """Process the verdict on a write; return whether there is something new to do."""
        self.looked_at = began_s
        if settled.verdict is Verdict.LANDED:
            self.answer_in_flight(None)
        elif settled.verdict is Verdict.FORGOTTEN:
            self.backlog.note_sent(base_version)
        if settled.document is document:
            return False
        self._start_over(settled.document, began_s)
        return True

    def confirm(self, document: Document, fresh: Document, looked_s: float) -> bool:
        """Process the result of a look, after a batch that changes nothing.

        Returns whether there is something new to do.
        """
        if fresh is not document:
            self._start_over(fresh, looked_s)
            return True
        self.looked_at = looked_s
        if self._reclaim(document):
            return True
        self.answer_in_flight(None)
        return False

    def needed_at(self) -> float | None:
        """When there is something to do without a request, by the loop's time."""
        state = self.state
        times = [self._hooks.next_look_s(self.looked_at), self._hooks.next_duty_s(state)]
        if self.waits:
            times += [self.looked_at + _LOOK_S, self.waits.next_expiry()]
        if self.parked:
            times.append(self.looked_at + _LOOK_S)
            if not self._reading_for_parked:
                times.append(self.parked.next_expiry())
                due_s = next_due_s(state, self._clock.now())
                if due_s is not None:
                    times.append(asyncio.get_running_loop().time() + max(due_s, _SHORTEST_WAIT_S))
        return min((time for time in times if time is not None), default=None)

    def is_look_due(self) -> bool:
        """Whether to look at the object even if no request needs it."""
        # Compared as it was computed above: a difference may be rounded the other way, and then
        # neither of the two would be due.
        now_s = asyncio.get_running_loop().time()
        look_s = self._hooks.next_look_s(self.looked_at)
        is_for_parked = bool(self.parked or self.waits) and now_s >= self.looked_at + _LOOK_S
        return is_for_parked or (look_s is not None and now_s >= look_s)

    def answer_in_flight(self, error: BucketQError | None) -> None:
        """Answer the requests of the batch that was just settled."""
        if error is None:
            self._hooks.committed(self.backlog.in_flight, self.state)
        for pending in self.backlog.settle():
            self._cold.release(pending)
            applied = pending.applied
            if error is not None or applied is None:
                self._answer(pending, None, error)
            else:
                self.answer_applied(pending, applied)

    def answer_applied(self, pending: PendingRequest, applied: Applied) -> None:
        """Answer a request whose effect is durable; park a wait for a job that is not over."""
        is_over = applied.answer is not None or applied.error is not None
        if is_over or type(pending.request.operation) is not Wait or not self._may_wait(pending):
            pending.resolve(applied.answer, applied.error)
        else:
            self.waits.add(pending)

    def _park_wait(self, pending: PendingRequest, state: State) -> None:
        """Park a read that waits for a job that is not over, without a look at the object.

        If another process has ended the job, or what is in memory is lost, the object is read, and
        all waits are looked up in it.
        """
        wait = pending.request.operation
        job = state.jobs.by_id.get(wait.job) if isinstance(wait, Wait) else None
        if job is None or not self._may_wait(pending):
            return
        if not has_answer(job, pending, self._hooks.progress_of(job)):
            self.backlog.drop(pending)
            self.waits.add(pending)

    def _may_wait(self, pending: PendingRequest) -> bool:
        """Whether a claim or a wait can be parked for some more time."""
        if self.is_closing or pending.is_resolved:
            return False
        return pending.until > asyncio.get_running_loop().time()

    def _report(self, pending: PendingRequest, document: Document) -> None:
        """Read the jobs of waits again if this is a heartbeat that says how far they have come."""
        beat = pending.request.operation
        for wait in self.waits.take_jobs(beat.progress) if isinstance(beat, Heartbeat) else ():
            self.backlog.add(wait)
            self._apply(wait, document)

    def _wake_waits(self, document: Document) -> None:
        """Read the jobs of waits that this batch changes; answer the waits whose time is over."""
        for wait in self.waits.take_changed(document.state.changes):
            self.backlog.add(wait)
            self._apply(wait, document)
        for wait in self.waits.take_expired(asyncio.get_running_loop().time()):
            wait.resolve(None, None)

    def _answer(self, pending: PendingRequest, answer: Any, error: Exception | None) -> None:
        """Answer a request; if it is rejected, an earlier try may still have landed."""
        if error is not None and is_unjudged(error, pending.request):
            error = rejected_repeat(self._where, pending.request, error)
        pending.resolve(answer, error)

    def answer_all(self, error_for: Callable[[PendingRequest], Exception]) -> None:
        """Answer every pending request with an error."""
        left = [*self.backlog.clear(), *self.parked, *self.waits.take_all()]
        self._reading_for_parked = False
        self.parked = ParkedClaims()
        self._lines.clear()
        for pending in left:
            error = error_for(pending)
            if isinstance(error, NotDurableError):
                error = not_durable(error, pending.request, pending.since)
            pending.resolve(None, error)

    def send_away(self, error: Exception) -> None:
        """Answer the parked claims and waits with an error."""
        parked, self.parked = self.parked, ParkedClaims()
        for pending in (*parked, *self.waits.take_all()):
            pending.resolve(None, error)

    def _start_over(self, document: Document, looked_s: float) -> None:
        """Apply every pending request to a fresh state."""
        self.backlog.put_back()
        self.adopt(document, looked_s)

    def _hand_out(self, document: Document) -> None:
        """Give jobs to parked claims, in order of arrival."""
        now = self._clock.now()
        while (parked := self._next_servable(document.state, now)) is not None:
            if parked.is_resolved:
                continue
            # It is parked again only if its answer is lost to another writer with time left.
            until, parked.until = parked.until, 0.0
            self.backlog.add(parked)
            self._apply(parked, document)
            parked.until = until
            if self.document is not document:
                return

    def _next_servable(self, state: State, now: datetime) -> PendingRequest | None:
        """Return the oldest parked claim for which there is a job.

        If that takes rows of segments, they are read first, and parked claims wait for them.
        """
        if self._reading_for_parked:
            return None
        try:
            parked = self.parked.next_servable(state, now)
        except ColdRowsNeededError as needed:
            self._reading_for_parked = True
            self._cold.start(self, needed.parts, self._read_for_parked)
            return None
        self._cold.release(self)
        return parked

    def _read_for_parked(self, error: Exception | None) -> None:
        self._reading_for_parked = False
        if isinstance(error, StaleStateError):
            self.document = None
        elif error is not None and not isinstance(error, CorruptStateError):
            self._cold.release(self)
            self.send_away(error)
        self._wake()

    def _read_ahead(self, state: State, claim: Applied) -> None:
        """Read the rows that the claims after this one will need."""
        lanes = dict.fromkeys(lane_of(job.kind, job.group) for job in claim.answer or ())
        self._cold.prefetch([part for lane in lanes for part in state.cold.ahead(lane)])

    def set_aside(self, pending: PendingRequest, needed: ColdRowsNeededError) -> None:
        """Let a request wait until rows of segments were read."""
        self.backlog.set_aside(pending)
        self._lines.begin(pending)
        self._cold.start(pending, needed.parts, partial(self._resume, pending))

    def _put_first(self, pending: PendingRequest, state: State) -> None:
        """Let a large push wait until its rows were put in segments."""

        def done(request: Request) -> None:
            pending.request = request
            self._resume(pending, None)

        self.backlog.set_aside(pending)
        self._large_pushes.start(state, pending.request, done)

    def _resume(self, pending: PendingRequest, error: Exception | None) -> None:
        """Apply a request whose rows were read or put, and then the claims behind it.

        If a segment is damaged, the state knows by now, and can do without it.
        """
        if isinstance(error, StaleStateError):
            self.document, error = None, None
        if isinstance(error, CorruptStateError):
            error = None
        if pending.is_resolved or error is not None:
            self._cold.release(pending)
        if error is None:
            self._accept_again(pending)
        elif self.backlog.take_back(pending):
            self._answer(pending, None, error)
        if id(pending) not in self.backlog.waiting:
            self._lines.pass_on(pending, self._accept_again)
        self._wake()

    def _accept_again(self, pending: PendingRequest) -> None:
        """Apply a request that was set aside, unless it was answered meanwhile."""
        if self.backlog.take_back(pending):
            self.accept(pending)
        else:
            self._cold.release(pending)

    def _answer_expired(self) -> None:
        """Answer the parked claims whose time is over."""
        if self._reading_for_parked:
            return  # These rows may be for them.
        for parked in self.parked.take_expired(asyncio.get_running_loop().time()):
            if self._hooks.is_fresh(self.looked_at):
                parked.resolve((), None)
            else:
                parked.applied = _NOTHING
                self.backlog.add(parked)

    def _reclaim(self, document: Document) -> bool:
        """Give claims that found nothing the jobs of workers that this look shows as silent."""
        in_vain = [each for each in self.backlog.in_flight if each.is_in_vain]
        if not (in_vain or self.parked):
            return False
        if not self._hooks.end_leases(document.state, self.looked_at):
            return False
        self.backlog.put_back()
        for pending in in_vain:
            if self.document is document:
                self._apply(pending, document)
        return True

    def _apply_in_line(self, pending: PendingRequest, document: Document) -> None:
        """Apply a request, unless it is a claim that must wait for the rows that another reads."""
        if self._lines.join(pending):
            self.backlog.set_aside(pending)
        else:
            self._apply(pending, document)

    def _apply(self, pending: PendingRequest, document: Document) -> None:
        """Apply one request; if that raises, only this request fails."""
        answered = self._hooks.intercept(pending, document.state, self.looked_at)
        operation = pending.request.operation
        if answered is not None:
            self.backlog.drop(pending)
            self._answer(pending, answered.answer, answered.error)
            return
        if type(operation) in self._hooks.reads:
            self._park_wait(pending, document.state)
            return
        try:
            if type(operation) in CLAIMS:
                self._hooks.end_leases(document.state, self.looked_at)
            if self._large_pushes.wants(document.state, pending.request):
                self._put_first(pending, document.state)
                return
            applied = apply(document.state, pending.request, self._clock.now(), pending.by)
        except ColdRowsNeededError as needed:
            self.set_aside(pending, needed)
            return
        except Exception as error:  # noqa: BLE001 - a bug of ours fails one request
            self.document = None  # It may be half changed, so it is read again.
            self.backlog.drop(pending)
            pending.resolve(None, error)
            return
        pending.applied = applied
        self._cold.release(pending)
        if type(operation) is Claim and document.state.cold.rows.segments:
            self._read_ahead(document.state, applied)
        if type(operation) is Withdraw:
            self._withdraw(pending, operation, applied)
        elif applied.answer == () and type(operation) is Claim:
            self._park(pending, operation)

    def _park(self, pending: PendingRequest, claim: Claim) -> None:
        """Park a claim that found nothing, if it may wait."""
        if claim.wait_s and self._may_wait(pending):
            self.backlog.drop(pending)
            self.parked.add(pending)

    def _withdraw(self, pending: PendingRequest, withdraw: Withdraw, applied: Applied) -> None:
        """Drop a claim that has no jobs. Unless jobs were released, nothing must be written."""
        for claim in self.parked.withdraw(withdraw) + self.backlog.take_in_vain(withdraw):
            claim.resolve((), None)
        if not applied.changes:
            self.backlog.drop(pending)
            pending.resolve(applied.answer, applied.error)
