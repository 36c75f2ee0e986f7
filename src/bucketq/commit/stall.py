"""``StallWatch``: what group commit still does while its write in flight stalls.

A write stalls if a try has failed and the outcome stays unknown (``Register.stalled``): a stopped
process holds the lock of a file, or the storage accepts no writes. Requests that change something
have to wait for it. Two things do not:

* Reads are answered from the object, which is read again beside the write and confirmed for each
  round of reads. So they show only what is committed, and everything that was acknowledged before
  they came.
* A client that is about to give up gets the reason, which only this process knows.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial

from bucketq.clock import Clock
from bucketq.codec.document import Document
from bucketq.commit.commit_hooks import CommitHooks
from bucketq.commit.objects.register import Register
from bucketq.commit.pending_requests import PendingRequest
from bucketq.commit.read_turns import look_up_in_turns, reads_among
from bucketq.commit.upkeep.transient_faults import TransientFault
from bucketq.commit.working_state import WorkingState
from bucketq.errors import BucketQError, UnavailableError
from bucketq.store.backoff import RetryBackoff

_log = logging.getLogger("bucketq")

_TICK_S = 0.1
"""How often requests are checked during a stall: no caller notices a delay of that length."""
_LAST_WORD_S = 0.5
"""How long before its client gives up a request is answered: a tick, and time for the answer to
arrive, even if the broker or its client is busy."""
_FIRST_RETRY_S = 0.1
_LAST_RETRY_S = 3.0
"""Retries of reads beside the write; the last as rare as those of the write itself."""
_UNAWAITED_S = 2.0
"""How long closing waits for a stalled write that no caller waits for: most faults of a storage
have passed by then, and a program that was asked to stop does."""


class StallWatch:
    """Serves the requests of one queue while its write in flight stalls."""

    def __init__(
        self,
        register: Register,
        clock: Clock,
        working: WorkingState,
        hooks: CommitHooks,
        unknown: Callable[[PendingRequest], BucketQError],
    ) -> None:
        """Watch the writes of a register.

        A client that is about to give up gets what ``unknown`` returns.
        """
        self._register = register
        self._clock = clock
        self._working = working
        self._backlog = working.backlog
        self._hooks = hooks
        self._unknown = unknown
        self._fault = TransientFault(clock, _log, f"{register.where}: a write stalls")
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Begin to watch."""
        loop = asyncio.get_running_loop()
        self._tasks = [
            loop.create_task(self._answer_reads()),
            loop.create_task(self._give_reasons()),
        ]

    async def finish(self, committing: asyncio.Task[None], limit_s: float) -> None:
        """End the task that commits, after it has had some time to do so by itself."""
        await self._wait_for(committing, limit_s)
        tasks = [committing, *self._tasks]
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)

    async def _wait_for(self, committing: asyncio.Task[None], limit_s: float) -> None:
        """Wait until all is committed; not for long if it stalls and no caller waits for it."""
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        while not committing.done():
            is_vain = self._register.stalled.is_set() and not self._backlog.is_awaited
            patience_s = min(limit_s, _UNAWAITED_S) if is_vain else limit_s
            left_s = began_s + patience_s - loop.time()
            if left_s <= 0:
                return
            await asyncio.wait([committing], timeout=min(left_s, _TICK_S))

    async def _answer_reads(self) -> None:
        while True:
            await self._register.stalled.wait()
            self._fault.strike(self._register.trouble or UnavailableError("it cannot be read"))
            await self._answer_reads_of_one_stall()
            self._fault.passed()

    async def _answer_reads_of_one_stall(self) -> None:
        beside = self._register.beside()
        document: Document | None = None
        backoff = RetryBackoff(self._clock, _FIRST_RETRY_S, _LAST_RETRY_S)
        while self._register.stalled.is_set():
            pause_s = _TICK_S
            # Only reads that came before the object is read: it may be older than later ones.
            if reads := self._reads():
                try:
                    document = await (
                        beside.load() if document is None else beside.refresh(document)
                    )
                    self._hooks.check(document)
                except BucketQError:
                    # If that is final, the task that commits finds out by itself.
                    document, pause_s = None, backoff.next_s()
                else:
                    backoff = RetryBackoff(self._clock, _FIRST_RETRY_S, _LAST_RETRY_S)
                    self._answer(reads, document)
            await asyncio.sleep(pause_s)

    def _reads(self) -> list[PendingRequest]:
        """Return pending reads; none if there is no state in memory to check tokens against."""
        is_known = self._working.document is not None
        return reads_among(self._backlog, self._hooks.reads) if is_known else []

    def _answer(self, reads: list[PendingRequest], document: Document) -> None:
        reads = [read for read in reads if not read.is_resolved]
        look_up = partial(self._hooks.read, document.state, now=self._clock.now())
        now_s = asyncio.get_running_loop().time
        left = look_up_in_turns(reads, look_up, now_s, self._working.set_aside)
        later = set(map(id, left)) | set(self._backlog.waiting)
        done = [read for read in reads if id(read) not in later]
        self._backlog.remove(done)
        for read in done:
            if read.applied is not None:
                self._working.answer_applied(read, read.applied)

    async def _give_reasons(self) -> None:
        """Answer clients shortly before they give up; their requests are committed all the same."""
        loop = asyncio.get_running_loop()
        while True:
            await self._register.stalled.wait()
            until_s = loop.time() + _LAST_WORD_S
            for pending in self._backlog:
                if pending.expires_at <= until_s and not pending.is_resolved:
                    pending.resolve(None, self._unknown(pending))
            await asyncio.sleep(_TICK_S)
