"""A worker that runs one job at a time, on the caller's thread, for ``Workbench``.

Attempts are run, stopped and settled by the same code as in production. There is no engine: a job
is claimed only after the one before is settled, so jobs run in the order of the queue.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Coroutine, Mapping
from dataclasses import dataclass
from typing import Any, Self

from msgspec import structs

from bucketq.client.blocking_queue import BlockingQueue
from bucketq.clock import Clock
from bucketq.model.records import Progress
from bucketq.queue.job import Job
from bucketq.queue.queue import Queue
from bucketq.testing.whole_jobs import whole_job
from bucketq.worker.attempt import Attempt, End, Ended
from bucketq.worker.context import Context
from bucketq.worker.handler_exceptions import UnfitPayload
from bucketq.worker.handler_queue import HandlerQueue
from bucketq.worker.handlers import Handler
from bucketq.worker.lease_renewal import LeaseKeeper
from bucketq.worker.runners.runner import Begun, HandlerExit, Runner, TaskRunner
from bucketq.worker.runners.threads import ThreadRunner
from bucketq.worker.settling import Settling

_WORKER = "workbench"
_BEAT_S = 0.05
"""How soon a handler notices a cancellation; a test should not wait for seconds."""


@dataclass(frozen=True)
class Ran:
    """One attempt at a job."""

    job: Job[Any]
    """The job as the attempt left it: its status, its result, its errors."""
    end: End
    """How the attempt ended: ``done``, ``retried``, ``snoozed``, ``dead`` or ``cancelled``."""
    error: BaseException | None = None
    """The exception that the handler raised."""
    progress: Progress | None = None
    """What the handler has reported last of how far it has come."""


class InlineWorker:
    """Claims, runs and settles one job at a time."""

    def __init__(
        self,
        queue: Queue[Any],
        blocking: BlockingQueue[Any],
        handlers: Mapping[str, Handler],
        clock: Clock,
    ) -> None:
        """Work on jobs of an open queue, given in two ways; use it as ``async with``."""
        self._queue = queue
        self._handlers = handlers
        self._settling = Settling(queue, clock)
        self._access = HandlerQueue(clock, queue, lambda: blocking)
        self._runner = InlineRunner()

    async def __aenter__(self) -> Self:
        """Start to heartbeat."""
        settings = await self._queue.settings()
        self._settling.settings = self._access.settings = settings
        settings = structs.replace(settings, heartbeat_s=min(_BEAT_S, settings.heartbeat_s))
        self._keeper = LeaseKeeper(self._queue.heartbeat, settings)
        self._beating = asyncio.get_running_loop().create_task(self._keeper.run())
        return self

    async def __aexit__(self, *_: object) -> None:
        """Stop heartbeats and end the threads."""
        self._beating.cancel()
        await asyncio.gather(self._beating, return_exceptions=True)
        await self._runner.close()

    async def work_on_next(self) -> Ran | None:
        """Claim a job, run it and settle it; return None if no job is due."""
        jobs = await self._queue.claim(tuple(self._handlers), worker=_WORKER)
        if not jobs:
            return None
        [job] = jobs
        now_s = asyncio.get_running_loop().time()
        attempt = Attempt(job, self._handlers[job.kind], self._settling, now_s, self._access)
        self._keeper.keep(job.lease, now_s, attempt.stop, attempt.progress)
        try:
            ended = await self._run_and_settle(attempt)
        except asyncio.CancelledError:
            attempt.stop("hurry")
            raise
        finally:
            self._keeper.drop(job.lease)
        left = await whole_job(self._queue, await self._queue.get(job.id))
        return Ran(left, ended.end, _error(attempt, ended, left), attempt.progress())

    async def _run_and_settle(self, attempt: Attempt) -> Ended:
        if attempt.has_used_up_attempts:
            return await attempt.refuse()
        over = asyncio.Event()
        await attempt.run(self._runner, over.set)
        ended = await attempt.settle()
        # A thread that was asked to stop keeps its slot until it does, and there is only one.
        await over.wait()
        return ended


class InlineRunner(Runner):
    """Runs handlers on this thread, unless they can be asked to stop.

    A plain function that has a timeout or takes a ``Context`` can be asked to stop. That needs
    another thread, so it gets one, as in production.
    """

    def __init__(self) -> None:
        self._here = TaskRunner()
        self._threads = ThreadRunner()

    def run(self, handler: Handler, context: Context, begun: Begun) -> Coroutine[Any, Any, Any]:
        """Run a handler."""
        is_plain = handler.place != "loop" and not inspect.iscoroutinefunction(handler.function)
        can_stop = handler.timeout_s is not None or "context" in handler.wants.values()
        runner = self._threads if is_plain and can_stop else self._here
        return runner.run(handler, context, begun)

    async def close(self) -> None:
        """End the threads."""
        await self._threads.close()


def _error(attempt: Attempt, ended: Ended, left: Job[Any]) -> BaseException | None:
    """Return what a handler raised, as an exception that users know."""
    if isinstance(ended.error, UnfitPayload):
        return ended.error.__cause__
    if isinstance(ended.error, HandlerExit) and isinstance(
        ended.error.__cause__, KeyboardInterrupt
    ):
        return ended.error.__cause__  # Ctrl-C is meant for the test.
    if attempt.stopped == "timeout" and ended.end in {"retried", "dead"}:
        return TimeoutError(left.errors[-1].error)
    return ended.error
