"""One job in the hands of a worker: its handler is run, stopped where it must be, and settled.

A handler is told to stop for one of five reasons, and the first counts:

* ``lost``: the lease is gone. Whatever comes of the handler is dropped; nothing is told.
* ``silent``: the lease may be gone. The job is given back, if the queue still takes it.
* ``cancel``: somebody cancelled the job. It is given back, which ends it.
* ``timeout``: it took too long. It failed, and is tried again if attempts are left.
* ``hurry``: the worker is to end. The job is given back unharmed.

A handler that ends well in spite of that is believed, unless the lease is gone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

from msgspec.structs import replace

from bucketq.errors import InvalidRequestError, PayloadTooLargeError, RejectedError
from bucketq.model.retry import delay_after_failure
from bucketq.model.settings import Settings
from bucketq.queue import payload as payloads
from bucketq.queue.job import Job
from bucketq.worker.context import Context
from bucketq.worker.failure import describe, unkept
from bucketq.worker.handler_exceptions import GiveUp, HandlerFailed, Retry, UnfitPayload
from bucketq.worker.handlers import Handler
from bucketq.worker.runner import Runner
from bucketq.worker.settling import Settling, Unsettled

Stop = Literal["lost", "silent", "cancel", "timeout", "hurry"]
End = Literal["done", "retried", "dead", "cancelled", "released", "lost", "unsettled"]
"""What became of an attempt."""

_STOP_S = 1.0
"""How long a handler that was told to stop is waited for before its job is settled without it."""


class Ended(NamedTuple):
    """How an attempt ended."""

    end: End
    error: BaseException | None = None
    """What its handler raised, where it did."""


class Attempt:
    """One attempt at a job."""

    def __init__(self, job: Job[Any], handler: Handler, now_s: float) -> None:
        """Take a job that was claimed just now."""
        self.job = job
        self.handler = handler
        self.claimed_s = now_s
        self.stopped: Stop | None = None
        self._stop_s = _STOP_S
        self._context = Context(job)
        self._task: asyncio.Task[Any] | None = None
        self._moved: asyncio.Future[None] | None = None
        """Set when the handler is over or was told to stop."""
        self._timer: asyncio.TimerHandle | None = None

    def stop(self, reason: Stop, stop_s: float = _STOP_S) -> None:
        """Tell the handler to stop; the first reason counts, but a lost lease overrides.

        After ``stop_s`` the job is settled without the handler.
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
        """Run the handler until it is over or need not be waited for.

        ``on_over`` is called when it is really over, which for a thread may be later.
        """
        loop = asyncio.get_running_loop()
        self._moved = moved = loop.create_future()

        def finish(task: asyncio.Task[Any]) -> None:
            """Note the end of the handler, also where nobody looks at it any more."""
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
            # Somebody who cancelled a job wants to know that it stands still, and waits for it.
            patience_s = None if self.stopped == "cancel" else self._stop_s
            _, running = await asyncio.wait([self._task], timeout=patience_s)
            if running and self.stopped != "cancel":
                return

    def _begun(self) -> None:
        """Count the handler's time from now on."""
        timeout_s = self.handler.timeout_s
        if timeout_s is not None and self._task is not None and not self._task.done():
            self._timer = asyncio.get_running_loop().call_later(timeout_s, self.stop, "timeout")

    async def settle(self, settling: Settling, settings: Settings) -> Ended:
        """Tell the queue what became of the job."""
        if self.stopped == "lost":
            return Ended("lost")
        try:
            task = self._task
            if task is None or not task.done() or task.cancelled():
                return await self._settle_stopped(settling, settings, None)
            error = task.exception()
            if error is None:
                return await self._complete(settling, settings, task.result())
            if self.stopped is None:
                return await self._fail(settling, settings, error)
            return await self._settle_stopped(settling, settings, error)
        except (Unsettled, RejectedError) as error:
            # Rejected: storage or broker take nothing from this worker, and it is not the job's.
            return Ended("unsettled", error)

    async def refuse(self, settling: Settling) -> Ended | None:
        """Bury a job whose attempts were used up by lost leases; None: it may be run.

        Only a worker knows the limit of its handler, so the queue hands such a job out once more.
        """
        job, limit = self.job, self.handler.max_attempts
        if limit is None or job.max_attempts is not None:
            return None
        used = job.failures + job.lost_leases
        if used < limit:
            return None
        message = f"its worker was lost or it failed {used} times, and {limit} are allowed"
        try:
            status = await settling.fail(job, message, retry=False)
        except Unsettled:
            return Ended("unsettled")
        return Ended("lost" if status is None else "dead")

    async def _complete(self, settling: Settling, settings: Settings, result: Any) -> Ended:
        try:
            if result is not None:
                raw, encoding = payloads.encode(result, "result")
                result = raw if encoding is None else result
        except Exception as error:  # noqa: BLE001 - encoding a value calls code of the user's
            return await self._fail_unkept(settling, settings, error)
        try:
            done = await settling.complete(self.job, result)
        except (InvalidRequestError, PayloadTooLargeError) as error:
            return await self._fail_unkept(settling, settings, error)
        return Ended("done" if done else "lost")

    async def _fail_unkept(self, settling: Settling, settings: Settings, error: Exception) -> Ended:
        """Count a result that cannot be kept as any failure, wherever its handler has run."""
        failed = HandlerFailed(unkept(error), type(error).__name__)
        ended = await self._fail(settling, settings, failed)
        return ended._replace(error=error)

    async def _settle_stopped(
        self, settling: Settling, settings: Settings, error: BaseException | None
    ) -> Ended:
        """Settle a job whose handler was told to stop, or cancelled itself."""
        if self.stopped == "timeout":
            text = f"it took longer than {self.handler.timeout_s:g} s, and was told to stop"
            return await self._fail(settling, settings, TimeoutError(text), text)
        if self.stopped is None:
            return await self._fail(settling, settings, error, "the handler cancelled itself")
        held = await settling.release(self.job)
        if not held:
            return Ended("lost")
        return Ended("cancelled" if self.stopped == "cancel" else "released")

    async def _fail(
        self, settling: Settling, settings: Settings, error: BaseException | None, text: str = ""
    ) -> Ended:
        if not text and error is not None:
            text = describe(error, settings.max_error_bytes)
        status = await settling.fail(
            self.job,
            text,
            retry=not isinstance(error, GiveUp | UnfitPayload),
            delay_s=self._delay_s(error, settings),
            max_attempts=self.handler.max_attempts,
        )
        if status is None:
            return Ended("lost", error)
        ends: dict[str, End] = {"queued": "retried", "dead": "dead"}
        return Ended(ends.get(status, "cancelled"), error)

    def _delay_s(self, error: BaseException | None, settings: Settings) -> float | None:
        """How long to wait before the next attempt; None: as the queue itself says."""
        if isinstance(error, Retry):
            return error.delay_s
        if self.job.backoff is not None or self.handler.backoff is None:
            return None
        record = replace(
            self.job.record, backoff=self.handler.backoff, failures=self.job.failures + 1
        )
        return delay_after_failure(record, settings).total_seconds()


def is_expected(error: BaseException | None) -> bool:
    """Whether an error is one by which handlers say what they want."""
    return isinstance(error, Retry | GiveUp | UnfitPayload)


def _set(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
