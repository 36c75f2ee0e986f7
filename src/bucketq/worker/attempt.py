"""One attempt at a job: its handler is run, stopped if necessary, and its outcome reported.

A handler is stopped for one of five reasons, and the first counts:

* ``lost``: the lease is lost. The result is dropped, and nothing is reported.
* ``silent``: the lease may be lost. The job is released, if the queue still accepts that.
* ``cancel``: the job was cancelled. It is released, which ends it.
* ``timeout``: it took too long. The attempt failed; the job is retried if attempts are left.
* ``hurry``: the worker has to exit. The job is released, without using up an attempt.

If the handler succeeds anyway, its result counts, unless the lease is lost.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

from msgspec.structs import replace

from bucketq.errors import InvalidRequestError, PayloadTooLargeError, RejectedError
from bucketq.model.effects.retry_delay import delay_after_failure
from bucketq.model.records import Progress
from bucketq.queue import payload as payloads
from bucketq.queue.job import Job
from bucketq.worker.context import Context
from bucketq.worker.failure import describe, unkept
from bucketq.worker.handler_exceptions import GiveUp, HandlerFailed, Retry, UnfitPayload
from bucketq.worker.handlers import Handler
from bucketq.worker.runners.runner import Runner
from bucketq.worker.settling import Settling, Unsettled

Stop = Literal["lost", "silent", "cancel", "timeout", "hurry"]
End = Literal["done", "retried", "dead", "cancelled", "released", "lost", "unsettled"]
"""The outcome of an attempt."""

_STOP_S = 1.0
"""How long a stopped handler may continue before its job is settled regardless: long enough for
``finally`` blocks, and short beside a lease, which another worker may get right after."""


class Ended(NamedTuple):
    """How an attempt ended."""

    end: End
    error: BaseException | None = None
    """What its handler raised, if it did."""


class Attempt:
    """One attempt at a job."""

    def __init__(self, job: Job[Any], handler: Handler, settling: Settling, now_s: float) -> None:
        self.job = job
        self.handler = handler
        self.claimed_s = now_s
        self._settling = settling
        self.stopped: Stop | None = None
        self._stop_s = _STOP_S
        self._context = Context(job)
        self._task: asyncio.Task[Any] | None = None
        self._moved: asyncio.Future[None] | None = None
        """Set when the handler is over or was stopped."""
        self._timer: asyncio.TimerHandle | None = None

    def progress(self) -> Progress | None:
        """How far the handler has come, as it reported."""
        return self._context.reported

    def stop(self, reason: Stop, stop_s: float = _STOP_S) -> None:
        """Ask the handler to stop; the first reason counts, but a lost lease overrides it.

        After ``stop_s`` the job is settled without waiting for the handler.
        """
        self._stop_s = min(self._stop_s, stop_s)
        is_over = self._task is not None and self._task.done()
        if reason == "lost" or (self.stopped is None and not is_over):
            self.stopped = reason
        self._context.cancelled = True
        if self._task is not None and not is_over:
            self._task.cancel()
        if self._moved is not None:
            _set(self._moved)

    async def run(self, runner: Runner, on_over: Callable[[], None]) -> None:
        """Run the handler until it is over, or was stopped and took too long.

        ``on_over`` is called when it is really over, which for a thread may be later.
        """
        loop = asyncio.get_running_loop()
        self._moved = moved = loop.create_future()

        def finish(task: asyncio.Task[Any]) -> None:
            """Handle the end of the handler, even if nothing waits for it any more."""
            if not task.cancelled():
                task.exception()
            if self._timer is not None:
                self._timer.cancel()
            on_over()
            _set(moved)

        self._task = loop.create_task(runner.run(self.handler, self._context, self._begun))
        self._task.add_done_callback(finish)
        if self.stopped is not None:
            self.stop(self.stopped)
        await moved
        while not self._task.done():
            # Cancelling promises that the job no longer runs, so that is waited for.
            patience_s = None if self.stopped == "cancel" else self._stop_s
            _, running = await asyncio.wait([self._task], timeout=patience_s)
            if running and self.stopped != "cancel":
                return

    def _begun(self) -> None:
        """Start the handler's timeout."""
        timeout_s = self.handler.timeout_s
        if timeout_s is not None and self._task is not None and not self._task.done():
            self._timer = asyncio.get_running_loop().call_later(timeout_s, self.stop, "timeout")

    async def settle(self) -> Ended:
        """Report the outcome to the queue."""
        if self.stopped == "lost":
            return Ended("lost")
        try:
            task = self._task
            if task is None or not task.done() or task.cancelled():
                return await self._settle_stopped()
            error = task.exception()
            if error is None:
                return await self._complete(task.result())
            if self.stopped is None:
                return await self._fail(error)
            return await self._settle_stopped()
        except (Unsettled, RejectedError) as error:
            # Rejected: the store or broker rejects this worker, which is not the job's fault.
            return Ended("unsettled", error)

    async def refuse(self) -> Ended | None:
        """Fail a job for good if lost leases used up its attempts; None if it may run.

        Only a worker knows the limit of its handler, so the queue hands such a job out again.
        """
        job, limit = self.job, self.handler.max_attempts
        if limit is None or job.max_attempts is not None:
            return None
        used = job.failures + job.lost_leases
        if used < limit:
            return None
        message = f"it failed or lost its worker {used} times, and {limit} attempts are allowed"
        try:
            status = await self._settling.fail(job, message, retry=False)
        except Unsettled:
            return Ended("unsettled")
        return Ended("lost" if status is None else "dead")

    async def _complete(self, result: Any) -> Ended:
        try:
            if result is not None:
                raw, encoding = payloads.encode(result, "result")
                result = raw if encoding is None else result
        except Exception as error:  # noqa: BLE001 - encoding runs the user's code
            return await self._fail_unkept(error)
        try:
            done = await self._settling.complete(self.job, result)
        except (InvalidRequestError, PayloadTooLargeError) as error:
            return await self._fail_unkept(error)
        return Ended("done" if done else "lost")

    async def _fail_unkept(self, error: Exception) -> Ended:
        """Treat a result that cannot be stored as a failure."""
        ended = await self._fail(HandlerFailed(unkept(error), type(error).__name__))
        return ended._replace(error=error)

    async def _settle_stopped(self) -> Ended:
        """Settle a job whose handler was stopped, or cancelled itself."""
        if self.stopped == "timeout":
            text = f"it took longer than {self.handler.timeout_s:g} s, and was stopped"
            return await self._fail(TimeoutError(text), text)
        if self.stopped is None:
            return await self._fail(None, "the handler cancelled itself")
        if not await self._settling.release(self.job):
            return Ended("lost")
        return Ended("cancelled" if self.stopped == "cancel" else "released")

    async def _fail(self, error: BaseException | None, text: str = "") -> Ended:
        if not text and error is not None:
            text = describe(error, self._settling.settings.max_error_bytes)
        status = await self._settling.fail(
            self.job,
            text,
            retry=not isinstance(error, GiveUp | UnfitPayload),
            delay_s=self._delay_s(error),
            max_attempts=self.handler.max_attempts,
        )
        if status is None:
            return Ended("lost", error)
        ends: dict[str, End] = {"queued": "retried", "dead": "dead"}
        return Ended(ends.get(status, "cancelled"), error)

    def _delay_s(self, error: BaseException | None) -> float | None:
        """The delay before the next attempt; None leaves it to the queue."""
        if isinstance(error, Retry):
            return error.delay_s
        if self.job.backoff is not None or self.handler.backoff is None:
            return None
        record = replace(
            self.job.record, backoff=self.handler.backoff, failures=self.job.failures + 1
        )
        return delay_after_failure(record, self._settling.settings).total_seconds()


def is_expected(error: BaseException | None) -> bool:
    """Whether a handler raised the error on purpose, to decide what happens to its job."""
    return isinstance(error, Retry | GiveUp | UnfitPayload)


def _set(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
