"""Reports outcomes of jobs to the queue until they are acknowledged.

Completions that are ready at the same time are sent in one request, and so are releases. While the
outcome of a request is unknown it is retried under the same id, so it is applied at most once; the
lease is renewed meanwhile.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Generic, TypeVar

from msgspec import Raw

from bucketq.clock import Clock, fraction
from bucketq.errors import (
    AccessDeniedError,
    InvalidRequestError,
    LeaseLostError,
    OverloadedError,
    PayloadTooLargeError,
    SupersededError,
    UnavailableError,
)
from bucketq.model.base import NewJob
from bucketq.model.records import Status
from bucketq.model.settings import Settings
from bucketq.queue.job import Job
from bucketq.queue.queue import Queue

A = TypeVar("A")
Item = TypeVar("Item")

_LARGEST_BATCH = 5000
"""How many jobs go in one request at most. Each request writes all running jobs once more."""
_LARGEST_WEIGHT = 8 << 20
"""How many bytes of results and follow-up jobs go in one request, if it has more than one
completion: they are written by one commit, for which others wait."""
_FOLLOW_UP_BYTES = 500
"""About what a follow-up job takes beside its payload."""
_FIRST_PAUSE_S = 0.1
"""The pause before the first retry; it doubles up to the longest one, with jitter."""
_LONGEST_PAUSE_S = 5.0
"""Short beside the default lease, so that outcomes are reported soon after an outage."""

_ENCODED = (Raw, bytes, bytearray, memoryview)
"""The types of results as ``Attempt`` passes them; others are small, and encoded by the queue."""
_OF_ONE_ITEM = (InvalidRequestError, PayloadTooLargeError)
"""Rejections that may be for one item of a batch. Others, of a store that refuses or of a missing
right, are for all of them: sending each by itself would only ask a thousand times more."""

OnAnswer = Callable[[bool, Exception | None], None]
"""Called with whether a lease was still held, or with the error."""
_Finished = tuple[Job[Any], Any, tuple[NewJob, ...]]
"""A job, its result, and the jobs that it pushes."""
_Ready = tuple[Item, OnAnswer]
"""An item, and what to call with its answer."""


class Unsettled(Exception):  # noqa: N818 - internal
    """The worker could not wait for the queue's answer any longer."""


class _Batches(Generic[Item]):
    """Sends items in batches: while one batch is in flight, the next one collects."""

    def __init__(
        self,
        settling: Settling,
        verb: Callable[..., Awaitable[list[bool]]],
        weigh: Callable[[Item], int] = lambda _: 0,
        pushes: Callable[[Item], bool] = lambda _: False,
    ) -> None:
        """Send with ``verb``.

        ``weigh`` returns how many bytes come with an item, and ``pushes`` whether jobs do.
        """
        self._settling = settling
        self._verb = verb
        self._weigh = weigh
        self._pushes = pushes
        self.ready: list[_Ready[Item]] = []
        self._sending: asyncio.Task[None] | None = None

    def add(self, item: Item, on_answer: OnAnswer) -> None:
        """Send an item with the next batch."""
        self.ready.append((item, on_answer))
        if self._sending is None or self._sending.done():
            self._sending = asyncio.get_running_loop().create_task(self._send())

    async def put(self, item: Item) -> bool:
        """Send an item with the next batch; False if its lease was lost."""
        done: asyncio.Future[bool] = asyncio.get_running_loop().create_future()

        def on_answer(is_held: bool, error: Exception | None) -> None:  # noqa: FBT001 - as declared
            if done.done():
                return  # The caller has left.
            if error is None:
                done.set_result(is_held)
            else:
                done.set_exception(error)

        self.add(item, on_answer)
        return await done

    async def close(self) -> None:
        """Stop sending."""
        if self._sending is not None:
            self._sending.cancel()
            await asyncio.gather(self._sending, return_exceptions=True)

    async def _send(self) -> None:
        """Send what is ready, and what has become ready meanwhile, until nothing is."""
        while self.ready:
            size = self._size()
            batch = self.ready[:size]
            del self.ready[:size]
            await self._send_batch(batch)

    def _size(self) -> int:
        """How many items go in the next request."""
        size, weight = min(_LARGEST_BATCH, self._settling.settings.max_batch_jobs), 0
        for count, (item, _) in enumerate(self.ready[:size]):
            weight += self._weigh(item)
            if count and weight > _LARGEST_WEIGHT:
                return count
        return size

    def _is_of_one_item(self, error: Exception, batch: list[_Ready[Item]]) -> bool:
        """Whether a rejection may be for one item; only some need the right to push."""
        if isinstance(error, AccessDeniedError):
            return any(self._pushes(item) for item, _ in batch)
        return isinstance(error, _OF_ONE_ITEM)

    async def _send_batch(self, batch: list[_Ready[Item]]) -> None:
        try:
            items = [item for item, _ in batch]
            answers = await self._settling.insist(
                lambda request: self._verb(items, request=request)
            )
        except Exception as error:  # noqa: BLE001 - passed on to the callers
            if len(batch) > 1 and self._is_of_one_item(error, batch):
                # They are too many or too large together, or the queue rejects one of them. Sending
                # halves isolates that one in few requests.
                middle = len(batch) // 2
                await self._send_batch(batch[:middle])
                await self._send_batch(batch[middle:])
                return
            for _, on_answer in batch:
                on_answer(False, error)  # noqa: FBT003 - as declared
        else:
            for (_, on_answer), is_held in zip(batch, answers, strict=True):
                on_answer(is_held, None)


class Settling:
    """Reports outcomes for all jobs of a worker."""

    def __init__(self, queue: Queue[Any], clock: Clock) -> None:
        self._queue = queue
        self._clock = clock
        self.settings = Settings()
        """Those of the queue; they may be replaced while it runs."""
        self._gives_up = asyncio.Event()
        self._completions = _Batches[_Finished](self, queue.complete_many, _weight, _pushes)
        self._releases = _Batches[Job[Any]](self, queue.release_many)

    @property
    def is_empty(self) -> bool:
        """Whether nothing waits to be sent."""
        return not self._completions.ready and not self._releases.ready

    def give_up(self) -> None:
        """From now on try each request once more only: the worker is shutting down."""
        self._gives_up.set()

    async def close(self) -> None:
        """Stop sending."""
        await self._completions.close()
        await self._releases.close()

    async def complete(
        self, job: Job[Any], result: Any, follow_ups: tuple[NewJob, ...] = ()
    ) -> bool:
        """Complete a job; False if its lease was lost.

        Raises ``RejectedError`` if the queue rejects the result, and ``Unsettled``.
        """
        return await self._completions.put((job, result, follow_ups))

    def complete_soon(
        self, job: Job[Any], result: Any, follow_ups: tuple[NewJob, ...], on_answer: OnAnswer
    ) -> None:
        """Complete a job, and call ``on_answer`` once that is acknowledged or rejected."""
        self._completions.add((job, result, follow_ups), on_answer)

    async def fail(
        self,
        job: Job[Any],
        error: str,
        *,
        retry: bool,
        delay_s: float | None = None,
        max_attempts: int | None = None,
    ) -> Status | None:
        """Report a failure and return the new status; None if the lease was lost."""
        try:
            return await self.insist(
                lambda request: self._queue.fail(
                    job,
                    error,
                    retry=retry,
                    delay_s=delay_s,
                    max_attempts=max_attempts,
                    request=request,
                )
            )
        except LeaseLostError:
            return None

    async def snooze(
        self, job: Job[Any], delay_s: float, reason: str, max_attempts: int | None
    ) -> Status | None:
        """Put a job off and return its new status; None if the lease was lost."""
        try:
            return await self.insist(
                lambda request: self._queue.snooze(
                    job, delay_s, reason=reason, max_attempts=max_attempts, request=request
                )
            )
        except LeaseLostError:
            return None

    async def release(self, job: Job[Any]) -> bool:
        """Release a job; False if its lease was lost."""
        return await self._releases.put(job)

    async def insist(self, ask: Callable[[str | None], Awaitable[A]]) -> A:
        """Call ``ask``, and retry with the same request id while the outcome is unknown.

        Raises ``Unsettled`` if the worker does not wait any longer, or the queue is gone.
        """
        request: str | None = None
        pause_s = _FIRST_PAUSE_S
        while True:
            is_last = self._gives_up.is_set()
            try:
                return await ask(request)
            except UnavailableError as error:
                # None: it is older than what the queue remembers of its clients. Sent anew it is
                # judged by its lease, and a claim takes other jobs.
                request = error.request
                trouble: Exception = error
            except OverloadedError as error:
                pause_s = max(pause_s, error.retry_after_s)
                trouble = error
            except SupersededError as error:
                raise Unsettled(str(error)) from error
            if is_last:
                raise Unsettled(str(trouble)) from trouble
            try:
                await self._pause(pause_s * (0.5 + fraction(self._clock)))
            except asyncio.CancelledError:
                if request is not None:
                    await self._withdraw(ask(request))
                raise
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)

    async def _withdraw(self, asking: Awaitable[Any]) -> None:
        """Send the request once more, and cancel it at once.

        Its outcome is unknown. The queue releases the jobs of a claim that is cancelled; those of
        an abandoned claim would wait until their leases expire.
        """
        task = asyncio.ensure_future(asking)
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    async def _pause(self, pause_s: float) -> None:
        """Wait, or until the worker gives up."""
        try:
            async with asyncio.timeout(pause_s):
                await self._gives_up.wait()
        except TimeoutError:
            return


def _weight(finished: _Finished) -> int:
    """About how many bytes the result and the follow-up jobs of a completion have."""
    _, result, follow_ups = finished
    weight = len(result) if isinstance(result, _ENCODED) else 0
    for job in follow_ups:
        weight += _FOLLOW_UP_BYTES + len(job.payload)
    return weight


def _pushes(finished: _Finished) -> bool:
    """Whether a completion pushes jobs."""
    return bool(finished[2])
