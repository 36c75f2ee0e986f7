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
from functools import partial
from typing import Any, Literal, NamedTuple

from msgspec.structs import replace

from bucketq.errors import (
    AccessDeniedError,
    InvalidRequestError,
    PayloadTooLargeError,
    RejectedError,
)
from bucketq.model.base import NewJob
from bucketq.model.effects.retry_delay import delay_after_failure
from bucketq.model.records import MAX_SNOOZES, Progress
from bucketq.queue import payload as payloads
from bucketq.queue.job import Job
from bucketq.worker.context import Context
from bucketq.worker.failure import describe, unkept
from bucketq.worker.handler_exceptions import GiveUp, HandlerFailed, Retry, Snooze, UnfitPayload
from bucketq.worker.handler_queue import HandlerQueue
from bucketq.worker.handlers import Handler
from bucketq.worker.runners.runner import Handling, Runner
from bucketq.worker.settling import Settling, Unsettled

Stop = Literal["lost", "silent", "cancel", "timeout", "hurry"]
End = Literal["done", "retried", "dead", "cancelled", "released", "snoozed", "lost", "unsettled"]
"""The outcome of an attempt."""

_ENDS: dict[str, End] = {"queued": "retried", "dead": "dead"}
"""The outcome of a failed attempt, by the status of its job."""
_STOP_S = 1.0
"""How long a stopped handler may continue before its job is settled regardless: long enough for
``finally`` blocks, and short beside a lease, which another worker may get right after."""
_OF_RESULTS = (InvalidRequestError, PayloadTooLargeError)
"""Rejections of a result, which fail the attempt. Others are not the fault of the job."""


class Ended(NamedTuple):
    """How an attempt ended."""

    end: End
    error: BaseException | None = None
    """What its handler raised, if it did."""


class Attempt:
    """One attempt at a job.

    It is run by callbacks instead of a task of its own, because most handlers are so short that a
    task would cost more.
    """

    __slots__ = (
        "_context",
        "_handling",
        "_is_ended",
        "_on_ended",
        "_on_over",
        "_patience",
        "_settling",
        "_stop_s",
        "_timer",
        "begun_s",
        "claimed_s",
        "handler",
        "job",
        "lease",
        "stopped",
        "took_s",
    )

    def __init__(
        self,
        job: Job[Any],
        handler: Handler,
        settling: Settling,
        now_s: float,
        access: HandlerQueue | None = None,
    ) -> None:
        self.job = job
        self.lease = job.lease
        self.handler = handler
        self.claimed_s = now_s
        self.begun_s = now_s
        """When it got its slot."""
        self.took_s = 0.0
        """How long its handler ran, or was waited for."""
        self._settling = settling
        self.stopped: Stop | None = None
        self._stop_s = _STOP_S
        self._context = Context(job, access)
        self._handling: Handling | None = None
        self._is_ended = False
        """Whether the handler is over, or is not waited for any more."""
        self._on_over: Callable[[Attempt], None] = _ignore
        self._on_ended: Callable[[Attempt], None] = _ignore
        self._timer: asyncio.TimerHandle | None = None
        """Stops the handler after its timeout."""
        self._patience: asyncio.TimerHandle | None = None
        """Ends the wait for a handler that was stopped."""

    def progress(self) -> Progress | None:
        """How far the handler has come, as it reported."""
        return self._context.reported

    def start(
        self,
        runner: Runner,
        on_over: Callable[[Attempt], None],
        on_ended: Callable[[Attempt], None],
    ) -> None:
        """Start the handler.

        ``on_ended`` is called when it is over, or was stopped and took too long: then the attempt
        can be settled. ``on_over`` is called when it is really over, which for a thread may be
        later.
        """
        self._on_over, self._on_ended = on_over, on_ended
        self._handling = runner.start(self.handler, self._context, self._begun)
        self._handling.add_done_callback(self._finish)
        if self.stopped is not None:
            self.stop(self.stopped)

    def stop(self, reason: Stop, stop_s: float = _STOP_S) -> None:
        """Ask the handler to stop; the first reason counts, but a lost lease overrides it.

        After ``stop_s`` the job is settled without waiting for the handler.
        """
        self._stop_s = min(self._stop_s, stop_s)
        handling = self._handling
        is_over = handling is not None and handling.done()
        if reason == "lost" or (self.stopped is None and not is_over):
            self.stopped = reason
        self._context.cancelled = True
        if handling is not None and not is_over:
            handling.cancel()
            self._lose_patience()

    def abandon(self) -> None:
        """Report nothing any more: the worker has to exit."""
        self._is_ended = True
        self._cancel_timers()

    async def run(self, runner: Runner, on_over: Callable[[], None]) -> None:
        """Run the handler until it is over, or was stopped and took too long.

        ``on_over`` is called when it is really over.
        """
        ended = asyncio.get_running_loop().create_future()
        self.start(runner, lambda _: on_over(), lambda _: _set(ended))
        await ended

    def _begun(self) -> None:
        """Start the handler's timeout."""
        timeout_s = self.handler.timeout_s
        if timeout_s is not None and (self._handling is None or not self._handling.done()):
            self._timer = asyncio.get_running_loop().call_later(timeout_s, self.stop, "timeout")

    def _finish(self, handling: Handling) -> None:
        """Handle the end of the handler, even if nothing waits for it any more."""
        if not handling.cancelled():
            handling.exception()  # The loop would log one that is not looked at.
        self._cancel_timers()
        self._on_over(self)
        self._end()

    def _lose_patience(self) -> None:
        """Wait for a stopped handler for a limited time."""
        if self._is_ended or self.stopped == "cancel":
            return  # Cancelling promises that the job no longer runs, so that is waited for.
        loop = asyncio.get_running_loop()
        until_s = loop.time() + self._stop_s
        if self._patience is not None:
            until_s = min(until_s, self._patience.when())
            self._patience.cancel()
        self._patience = loop.call_at(until_s, self._end)

    def _end(self) -> None:
        if not self._is_ended:
            self._is_ended = True
            self._on_ended(self)

    def _cancel_timers(self) -> None:
        for timer in (self._timer, self._patience):
            if timer is not None:
                timer.cancel()

    async def settle(self) -> Ended:
        """Report the outcome to the queue."""
        follow_ups = self._context.end()
        if self.stopped == "lost":
            return Ended("lost")
        try:
            handling = self._handling
            if handling is None or not handling.done() or handling.cancelled():
                return await self._settle_stopped()
            error = handling.exception()
            if error is None:
                return await self._complete(handling.result(), follow_ups)
            if self.stopped is not None:
                return await self._settle_stopped()
            snooze = error if isinstance(error, Snooze) else None
            return await (self._fail(error) if snooze is None else self._snooze(snooze))
        except (Unsettled, RejectedError) as error:
            # Rejected: the store or broker rejects this worker.
            return Ended("unsettled", error)

    def complete_soon(self, on_answer: Callable[[Attempt, bool, Exception | None], None]) -> bool:
        """Complete a job with the next batch, if its handler succeeded; False if it did not.

        Unlike ``settle`` it needs no task to wait in. ``on_answer`` is called with whether the
        lease was still held, or with the error, for ``settle_rejected``.
        """
        handling = self._handling
        if self.stopped == "lost" or handling is None or not handling.done():
            return False
        if handling.cancelled() or handling.exception() is not None:
            return False
        try:
            result = _encoded(handling.result())
        except Exception:  # noqa: BLE001 - encoding runs the user's code; settle handles it
            return False
        follow_ups = self._context.end()
        self._settling.complete_soon(self.job, result, follow_ups, partial(on_answer, self))
        return True

    async def settle_rejected(self, error: Exception) -> Ended:
        """Report the outcome if the completion was not accepted."""
        try:
            if self._is_unkept(error):
                return await self._fail_unkept(error)
            raise error
        except (Unsettled, RejectedError) as trouble:
            return Ended("unsettled", trouble)

    @property
    def has_used_up_attempts(self) -> bool:
        """Whether lost leases have used up the attempts that the handler allows.

        Only a worker knows the limit of its handler, so the queue hands such a job out again.
        """
        job, limit = self.job.record, self.handler.max_attempts
        if limit is None or job.max_attempts is not None:
            return False
        return job.failures + job.lost_leases >= limit

    async def refuse(self) -> Ended:
        """Fail a job for good whose attempts are used up."""
        used, limit = self.job.failures + self.job.lost_leases, self.handler.max_attempts
        message = f"it failed or lost its worker {used} times, and {limit} attempts are allowed"
        try:
            status = await self._settling.fail(self.job, message, retry=False)
        except Unsettled:
            return Ended("unsettled")
        return Ended("lost" if status is None else "dead")

    async def _complete(self, result: Any, follow_ups: tuple[NewJob, ...]) -> Ended:
        try:
            result = _encoded(result)
        except Exception as error:  # noqa: BLE001 - encoding runs the user's code
            return await self._fail_unkept(error)
        try:
            done = await self._settling.complete(self.job, result, follow_ups)
        except RejectedError as error:
            if self._is_unkept(error):
                return await self._fail_unkept(error)
            raise
        return Ended("done" if done else "lost")

    def _is_unkept(self, error: Exception) -> bool:
        """Whether an error rejects the result of the handler, or its follow-up jobs."""
        is_denied = isinstance(error, AccessDeniedError) and bool(self._context.follow_ups)
        return is_denied or isinstance(error, _OF_RESULTS)

    async def _fail_unkept(self, error: Exception) -> Ended:
        """Treat a result or follow-up jobs that cannot be stored as a failure."""
        text = unkept(error, has_pushed=bool(self._context.follow_ups))
        ended = await self._fail(HandlerFailed(text, type(error).__name__))
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

    async def _snooze(self, snooze: Snooze) -> Ended:
        counted = self.job.record.snoozes
        text = describe(snooze, self._settling.settings.max_error_bytes)
        status = await self._settling.snooze(
            self.job, snooze.delay_s, text, self.handler.max_attempts
        )
        if status == "queued":
            return Ended("retried" if counted >= MAX_SNOOZES else "snoozed", snooze)
        return Ended("lost" if status is None else _ENDS.get(status, "cancelled"), snooze)

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
        return Ended(_ENDS.get(status, "cancelled"), error)

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
    return isinstance(error, Retry | Snooze | GiveUp | UnfitPayload)


def _encoded(result: Any) -> Any:
    """Encode a result, to find out whether it can be; bytes are passed on as they are."""
    if result is None:
        return None
    raw, encoding = payloads.encode(result, "result")
    return raw if encoding is None else result


def _ignore(_: Attempt) -> None:
    """Do nothing."""


def _set(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
