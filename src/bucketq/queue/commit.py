"""``GroupCommitQueue``: while one write is in flight, the next batch collects.

One task owns the state and writes it. A request is applied to the state in memory as soon as it
comes, ahead of the write in flight, and its answer is held back until the write that contains
it has landed; so a thousand callers share one write. The bytes of a write are frozen when it
begins: what comes later waits for the next one.

When a commit is lost to another writer the state is thrown away, and every request that has
not been answered is applied to the fresh one. Where a batch changes nothing (reads, empty claims,
refusals) nothing is written, but the object is asked whether it has changed first, so that no
answer is older than its question.

A bad request fails alone. If the owning task cannot go on (the object is gone, or cannot be
trusted), everybody is told; nobody waits on a queue that has gone mute.
"""

from __future__ import annotations

import asyncio
from typing import Any, TypeVar

from msgspec.structs import replace

from bucketq.clock import Clock
from bucketq.codec import Document
from bucketq.errors import BucketQError, OverloadedError, StoreRefusedError, UnavailableError
from bucketq.model.operations import READS, Claim, Push, Request, Tidy
from bucketq.model.operators import is_untidy
from bucketq.model.transitions import Applied, apply
from bucketq.queue.leases import LeaseWatch
from bucketq.queue.pace import Backoff
from bucketq.queue.register import Register, Settled, Verdict
from bucketq.queue.verbs import Verbs

T = TypeVar("T")

_MAX_WAITING = 20_000
_MAX_WAITING_BYTES = 256 * 1024 * 1024
_FIRST_RETRY_S = 0.05
_LAST_RETRY_S = 3.0


class _Waiting:
    """A request that has not been answered yet."""

    __slots__ = ("answer", "applied", "request", "since", "size_bytes")

    def __init__(self, request: Request, answer: asyncio.Future[Any], since: int) -> None:
        self.request = request
        self.answer = answer
        self.since = since
        """The newest version that was known to be in the object when it came."""
        self.applied: Applied | None = None
        self.size_bytes = _size_bytes(request)


class GroupCommitQueue(Verbs[T]):
    """A queue that commits what all its callers ask for in one write after another."""

    def __init__(self, register: Register, clock: Clock, **options: Any) -> None:
        """Make a queue over a register; the options are those of ``Verbs``."""
        super().__init__(register, clock, **options)
        self._batch: list[_Waiting] = []
        self._in_flight: list[_Waiting] = []
        self._waiting_bytes = 0
        self._wake = asyncio.Event()
        self._leases = LeaseWatch()
        self._task: asyncio.Task[None] | None = None
        self._broken: Exception | None = None

    async def __aenter__(self) -> GroupCommitQueue[T]:
        """Load or create the queue, and begin to commit."""
        await self._open()
        self._task = asyncio.get_running_loop().create_task(self._run())
        return self

    async def __aexit__(self, *_: object) -> None:
        """Commit what has been asked for, then close."""
        await self._close()
        task = self._task
        if task is None:
            return
        self._wake.set()
        await asyncio.wait([task], timeout=self._timeout_s)
        if not task.done():
            task.cancel()
            await asyncio.wait([task])
        self._tell_everybody(None)
        self._document = None

    async def _submit(self, request: Request) -> Any:
        """Apply a request, and wait until what it led to is durable."""
        if self._broken is not None:
            raise self._broken
        waiting = _Waiting(
            request, asyncio.get_running_loop().create_future(), self._register.version
        )
        self._admit(waiting)
        self._batch.append(waiting)
        if self._document is not None:
            self._apply(waiting, self._document)
        self._wake.set()
        try:
            async with asyncio.timeout(self._timeout_s):
                # The future is this caller's alone: if he is cancelled or gives up, only he
                # misses the answer, and the request goes its way.
                return await waiting.answer
        except TimeoutError as error:
            raise self._unknown(waiting.request, waiting.since) from error

    def _admit(self, waiting: _Waiting) -> None:
        count = len(self._batch) + len(self._in_flight)
        too_large = self._waiting_bytes + waiting.size_bytes > _MAX_WAITING_BYTES
        if count >= _MAX_WAITING or (too_large and count):
            message = (
                f"{count} requests ({self._waiting_bytes:,} bytes) wait to be written to "
                f"{self._where} already: wait for some answers before you send more"
            )
            raise OverloadedError(message)
        self._waiting_bytes += waiting.size_bytes

    async def _run(self) -> None:
        """Own the state: commit batch after batch, until the queue is closed and all is said."""
        try:
            while True:
                await self._wake.wait()
                self._wake.clear()
                while self._batch:
                    await self._round()
                if self._closed is not None:
                    return
        except Exception as error:  # noqa: BLE001 - whatever it is, nobody may wait for ever
            self._broken = error
            self._tell_everybody(error)
        except asyncio.CancelledError:
            # Somebody ends all tasks of the loop, or closing has waited long enough.
            self._closed = self._closed or "was cancelled: connect again"
            self._tell_everybody(None)
            self._announce()
            raise

    async def _round(self) -> None:
        """Settle the requests that have come so far; what the store refuses, it refuses to them."""
        try:
            await self._settle_batch()
        except StoreRefusedError as error:
            if not self._in_flight:
                self._in_flight, self._batch = self._batch, []
            self._document = None
            self._answer_in_flight(error)

    async def _settle_batch(self) -> None:
        if self._document is None:
            self._adopt(await self._load())
        document = self._document
        if document is None:
            return  # A request spoiled it, and has been told so; the others start over.
        self._in_flight, self._batch = self._batch, []
        if not document.state.has_changes:
            self._read(document)
            await self._confirm(document)
            return
        now = self._clock.now()
        if is_untidy(document.state, now):
            apply(document.state, Request(Tidy()), now)
        base_version = self._register.version
        prepared = self._register.prepare(document)
        self._read(document)
        settled = await self._register.commit(document, prepared)
        self._settle(document, settled, base_version)

    def _read(self, document: Document) -> None:
        """Let the reads of a batch see exactly the version that is about to be written."""
        now = self._clock.now()
        for waiting in self._in_flight:
            if isinstance(waiting.request.operation, READS) and not waiting.answer.done():
                try:
                    waiting.applied = apply(document.state, waiting.request, now)
                except Exception as error:  # noqa: BLE001 - a fault of ours fails alone
                    waiting.answer.set_exception(error)

    async def _confirm(self, document: Document) -> None:
        """Answer a batch that changes nothing, once the object is known not to have changed."""
        try:
            fresh = await self._register.refresh(document)
        except UnavailableError:
            fresh = await self._load()
        if fresh is document:
            self._answer_in_flight(None)
        else:
            self._start_over(fresh)

    def _settle(self, document: Document, settled: Settled, base_version: int) -> None:
        if settled.verdict is Verdict.LANDED:
            self._answer_in_flight(None)
            self._announce()
        elif settled.verdict is Verdict.FORGOTTEN:
            for waiting in self._in_flight:
                since = min(waiting.since, base_version)
                waiting.request = replace(waiting.request, since=since)
        if settled.document is not document:
            self._start_over(settled.document)

    def _start_over(self, document: Document) -> None:
        """Apply every request without an answer to a fresh state."""
        self._batch = self._in_flight + self._batch
        self._in_flight = []
        self._adopt(document)

    def _adopt(self, document: Document) -> None:
        self._document = document
        for waiting in list(self._batch):
            if self._document is document:
                self._apply(waiting, document)
        self._announce()
        self._wake.set()

    async def _load(self) -> Document:
        backoff = Backoff(self._clock, _FIRST_RETRY_S, _LAST_RETRY_S)
        while True:
            try:
                return await self._register.load()
            except UnavailableError:
                await backoff.wait()

    def _apply(self, waiting: _Waiting, document: Document) -> None:
        """Apply one request; if that goes wrong in a way it never should, it fails alone."""
        if isinstance(waiting.request.operation, READS):
            return
        state, now = document.state, self._clock.now()
        try:
            if isinstance(waiting.request.operation, Claim) and not state.is_served:
                monotonic_s = asyncio.get_running_loop().time()
                for expire in self._leases.stale(state, now, monotonic_s):
                    apply(state, Request(expire), now)
            waiting.applied = apply(state, waiting.request, now)
        except Exception as error:  # noqa: BLE001 - a fault of ours must not take others down
            self._document = None  # It may be half changed: nobody goes on with it.
            self._batch.remove(waiting)
            self._waiting_bytes -= waiting.size_bytes
            if not waiting.answer.done():
                waiting.answer.set_exception(error)

    def _answer_in_flight(self, error: BucketQError | None) -> None:
        """Hand out the answers of the batch that was just settled."""
        settled, self._in_flight = self._in_flight, []
        for waiting in settled:
            self._waiting_bytes -= waiting.size_bytes
            if waiting.answer.done():
                continue
            applied = waiting.applied
            refusal = error or (applied.error if applied else None)
            if refusal is not None:
                waiting.answer.set_exception(refusal)
            else:
                waiting.answer.set_result(applied.answer if applied else None)

    def _tell_everybody(self, error: Exception | None) -> None:
        """Leave nobody waiting for a queue that commits no more."""
        left, self._in_flight, self._batch = self._in_flight + self._batch, [], []
        self._waiting_bytes = 0
        for waiting in left:
            if not waiting.answer.done():
                waiting.answer.set_exception(error or self._unknown(waiting.request, waiting.since))


def _size_bytes(request: Request) -> int:
    operation = request.operation
    if isinstance(operation, Push):
        return sum(len(bytes(job.payload)) for job in operation.jobs)
    return 0
