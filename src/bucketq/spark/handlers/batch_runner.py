"""``SparkRunner``: runs the handlers of a worker's engine on Spark, many jobs in one batch.

To the engine it is a runner like any other: the engine claims, renews leases, drains and settles,
and does not know of batches. Jobs to be run collect here while batches are running, and are sent
together when one has ended, so the size of a batch follows the speed of the cluster.

A batch fails if a job ends the process that runs it, and Spark has retried it in vain. To find that
job, each job of the batch is run in a process of its own; that job has failed, and the others are
done. If even that fails (the whole executor died), the batch is split in halves until the job is
alone. If Spark itself is gone, no job is to blame, and all are released.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from bucketq.errors import InvalidRequestError
from bucketq.spark.handlers.batch_size import BatchSize
from bucketq.spark.handlers.executor_task import HandlerOutcome, Isolation
from bucketq.spark.handlers.progress_datagrams import ReportReceiver
from bucketq.worker.context import Context
from bucketq.worker.handler_exceptions import HandlerFailed
from bucketq.worker.handlers import Handler
from bucketq.worker.runners.reply import ENDED, Reply, value_of
from bucketq.worker.runners.runner import Begun, Runner
from bucketq.worker.runners.threads import ThreadRunner

if TYPE_CHECKING:
    from bucketq.spark.handlers.spark_cluster import SparkCluster

_log = logging.getLogger(__name__)

_INTERRUPT_AGAIN_S = 1.0
"""The wait before a batch that has not ended is cancelled again."""
_PING_S = 5.0
"""How often Spark is pinged; without jobs to run, nothing else would notice that it is gone."""


class BatchFailed(Exception):  # noqa: N818 - it never leaves this package
    """Spark could not run a batch to its end; the message is Spark's."""


class PendingJob:
    """A handler that was sent to Spark, or is to be: its result is what the handler returned.

    The engine is given it in place of a task or a future, because with short handlers these would
    cost more than all else that is done for a job here.
    """

    __slots__ = (
        "_error",
        "_on_cancel",
        "_on_done",
        "_result",
        "_state",
        "context",
        "is_cancelled",
        "is_suspect",
    )

    def __init__(self, handler: Handler, context: Context, on_cancel: OnCancel) -> None:
        self.context = context
        self.is_cancelled = False
        """Whether the engine does not want its outcome any more."""
        self._on_cancel = on_cancel
        self._on_done: OnDone | None = None
        self._state: Literal["pending", "done", "released"] = "pending"
        self._result: Any = None
        self._error: BaseException | None = None
        errors = context.job.record.errors
        has_died = bool(errors) and ENDED in errors[-1].error
        self.is_suspect = has_died and handler.place != "process"
        """Whether it seems to have ended its process before; then it is run isolated."""

    def add_done_callback(self, function: OnDone, /) -> None:
        """Call a function when it is over: one, and before that is so."""
        self._on_done = function

    def cancel(self) -> bool:
        """Ask the handler to stop; it is over when its batch is."""
        if self.done():
            return False
        self._on_cancel(self)
        return True

    def done(self) -> bool:
        """Whether it is over."""
        return self._state != "pending"

    def cancelled(self) -> bool:
        """Whether it was released without an outcome."""
        return self._state == "released"

    def exception(self) -> BaseException | None:
        """What the handler raised."""
        return self._error

    def result(self) -> Any:
        """What the handler returned."""
        return self._result

    def release(self) -> None:
        """End it without an outcome."""
        if self._state == "pending":
            self._state = "released"
            # Not at once: the engine may be about to do something else with this job.
            asyncio.get_running_loop().call_soon(self._notify)

    def end(self, reply: Reply) -> None:
        """Take the outcome from the executor."""
        if self._state != "pending":
            return
        try:
            if reply.follow_ups:
                self.context.take_follow_ups(reply.follow_ups)
            self._result = value_of(reply)
        except Exception as error:  # noqa: BLE001 - it is what the handler raised
            self._error = error
        self._state = "done"
        self._notify()

    def fail(self, error: BaseException) -> None:
        """End it with an error, unless it is over."""
        if self._state == "pending":
            self._error = error
            self._state = "done"
            self._notify()

    def _notify(self) -> None:
        # It may refer to what refers to this, which only the garbage collector would find.
        on_done, self._on_done = self._on_done, None
        if on_done is not None:
            on_done(self)


OnDone = Callable[[PendingJob], object]
OnCancel = Callable[[PendingJob], None]


@dataclass(slots=True, eq=False)
class _Batch:
    """Jobs that are sent to Spark together."""

    jobs: list[PendingJob]
    isolation: Isolation
    number: int = 0
    tag: str = ""
    is_interrupted: bool = False
    _contexts: dict[str, Context] | None = None

    def context_of(self, job_id: str) -> Context | None:
        """The context of one of its jobs. Few handlers report, so it is not kept by id before."""
        if self._contexts is None:
            self._contexts = {job.context.job.id: job.context for job in self.jobs}
        return self._contexts.get(job_id)


class SparkRunner(Runner):
    """Runs handlers on a cluster. It is made and used on the engine's loop.

    The calls of the cluster block, so they are made in threads.
    """

    def __init__(
        self,
        cluster: SparkCluster,
        size: BatchSize,
        name: str,
        batches: int = 2,
        reports: ReportReceiver | None = None,
    ) -> None:
        """Run up to ``batches`` batches at once, so that executors do not wait for the next one.

        ``reports`` are those of handlers on executors; it is closed with this.
        """
        self._cluster = cluster
        self._size = size
        self._name = name
        self._batches = batches
        self._reports = reports
        if reports is not None:
            reports.context_of = self._context_of
        self._threads = ThreadRunner()
        self._waiting: deque[PendingJob] = deque()
        self._again: deque[_Batch] = deque()
        """Batches to run again after a failure, smaller or isolated."""
        self._running: dict[int, _Batch] = {}
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._count = 0
        self._is_due = False
        self._is_closed = False
        self._on_cancel = self._cancel
        self.on_size: Callable[[int], None] = lambda _: None
        """Called with how many jobs may be held, if that changes."""
        self.on_gone: Callable[[], None] = lambda: None
        """Called once if Spark is gone, and no job can be run any more."""
        self.trouble: Exception | None = None
        """Why Spark is gone."""
        self._watching = asyncio.get_running_loop().create_task(self._watch())

    @property
    def slots(self) -> int:
        """How many jobs may be held: those that run, and one batch to follow the first that ends.

        With only those that run, batches would shrink, because each is made of what is here when
        another ends. If handlers are slow that does not matter, and jobs that wait here are jobs
        that other workers cannot claim.
        """
        return self._size.jobs * (self._batches + self._size.is_fast)

    def start(self, handler: Handler, context: Context, begun: Begun) -> PendingJob:
        """Send a job to the cluster, where its timeout is measured too."""
        del begun
        job = PendingJob(handler, context, self._on_cancel)
        self._waiting.append(job)
        self._send_soon()
        return job

    async def run(self, handler: Handler, context: Context, begun: Begun) -> Any:
        """Run a handler on the cluster."""
        job = self.start(handler, context, begun)
        over = asyncio.Event()
        job.add_done_callback(lambda _: over.set())
        while not job.done():
            try:
                await over.wait()
            except asyncio.CancelledError:
                job.cancel()
        if job.cancelled():
            raise asyncio.CancelledError
        if (error := job.exception()) is not None:
            raise error
        return job.result()

    def _context_of(self, job_id: str) -> Context | None:
        """The context of a job that is running."""
        found = (batch.context_of(job_id) for batch in self._running.values())
        return next((context for context in found if context is not None), None)

    async def close(self) -> None:
        """Cancel what is running, and release all jobs."""
        self._is_closed = True
        if self._reports is not None:
            self._reports.close()
        self._watching.cancel()
        for batch in list(self._running.values()):
            self._interrupt(batch)
        for batch in (*self._running.values(), *self._again):
            _release(batch.jobs)
        _release(self._waiting)
        await asyncio.gather(self._watching, *self._tasks.values(), return_exceptions=True)
        await self._threads.close()

    def _send_soon(self) -> None:
        """Send batches after the callbacks that are due now, which may bring more jobs."""
        if not self._is_due:
            self._is_due = True
            asyncio.get_running_loop().call_soon(self._send)

    def _send(self) -> None:
        self._is_due = False
        while len(self._running) < self._batches and (batch := self._next()) is not None:
            self._count += 1
            batch.number = self._count
            batch.tag = f"{self._name}-{batch.number}"
            self._running[batch.number] = batch
            task = asyncio.get_running_loop().create_task(self._run_batch(batch))
            self._tasks[batch.number] = task
            task.add_done_callback(partial(self._over, batch.number))

    def _over(self, number: int, task: asyncio.Task[None]) -> None:
        batch = self._running.pop(number)
        del self._tasks[number]
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.error("batch %s failed", batch.tag, exc_info=error)
            for job in batch.jobs:
                job.fail(error)
        self._send_soon()

    def _next(self) -> _Batch | None:
        """Return the next batch, without jobs that were cancelled."""
        while self._again:
            batch = self._again.popleft()
            batch.jobs = [job for job in batch.jobs if not _drop_if_cancelled(job)]
            if batch.jobs:
                return batch
        jobs: list[PendingJob] = []
        while self._waiting and len(jobs) < self._size.jobs:
            if jobs and self._waiting[0].is_suspect != jobs[0].is_suspect:
                break
            job = self._waiting.popleft()
            if not _drop_if_cancelled(job):
                jobs.append(job)
        return _Batch(jobs, "isolated" if jobs[0].is_suspect else "shared") if jobs else None

    async def _run_batch(self, batch: _Batch) -> None:
        """Run one batch, and set the outcome of each of its jobs."""
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        records = [job.context.job.record for job in batch.jobs]
        submit = partial(self._cluster.submit, records, batch.isolation, batch.tag)
        try:
            outcomes: list[HandlerOutcome] = await self._threads.call(submit)
        except Exception as error:  # noqa: BLE001 - Spark has many, and each ends a batch
            await self._recover(batch, error)
            return
        before = self.slots
        if batch.isolation == "shared":
            busy_s = max(outcome.ended_s for outcome in outcomes)
            ended = sum(outcome.reply is not None for outcome in outcomes)
            self._size.note(len(records), loop.time() - began_s, busy_s, ended)
        not_started: list[PendingJob] = []
        for job, outcome in zip(batch.jobs, outcomes, strict=True):
            if outcome.reply is not None:
                job.end(outcome.reply)
            elif not _drop_if_cancelled(job):
                not_started.append(job)
        self._waiting.extendleft(reversed(not_started))
        if self.slots != before:
            self.on_size(self.slots)

    async def _recover(self, batch: _Batch, error: Exception) -> None:
        """Find out why a batch failed, and run its jobs again if Spark still works."""
        if batch.is_interrupted:
            _release(batch.jobs)
            return
        if (trouble := await self._find_trouble(error)) is not None:
            self._lose(trouble)
            _release(batch.jobs)
            return
        jobs = batch.jobs
        if batch.isolation == "shared":
            self._again.append(_Batch(jobs, "isolated"))
        elif len(jobs) > 1:
            middle = len(jobs) // 2
            self._again.append(_Batch(jobs[:middle], "isolated"))
            self._again.append(_Batch(jobs[middle:], "isolated"))
        else:
            text = f"{ENDED} was ended together with its Spark executor: {error}"
            jobs[0].fail(HandlerFailed(text))

    async def _find_trouble(self, error: Exception) -> Exception | None:
        """Return why no batch can be run, or None if that is possible."""
        if isinstance(error, InvalidRequestError):
            return error  # An executor cannot load the handlers.
        try:
            await self._threads.call(self._cluster.check)
        except Exception as trouble:  # noqa: BLE001 - none of them is the fault of a job
            return trouble
        return None

    async def _watch(self) -> None:
        """Notice that Spark is gone, even if there are no jobs to run."""
        # A call in a thread is not cancelled, so this has to be seen after it.
        while self.trouble is None and not self._is_closed:
            await asyncio.sleep(_PING_S)
            try:
                await self._threads.call(self._cluster.ping)
            except Exception as trouble:  # noqa: BLE001 - after any of them nothing can be run
                self._lose(trouble)

    def _lose(self, trouble: Exception) -> None:
        if self.trouble is None:
            self.trouble = trouble
            self.on_gone()

    def _cancel(self, job: PendingJob) -> None:
        """Cancel a job, and its batch if all jobs in it are cancelled or done."""
        job.is_cancelled = True
        for batch in self._running.values():
            if job in batch.jobs:
                if all(each.is_cancelled or each.done() for each in batch.jobs):
                    self._interrupt(batch)
                return
        self._send_soon()
        _drop_if_cancelled(job)

    def _interrupt(self, batch: _Batch) -> None:
        if not batch.is_interrupted:
            batch.is_interrupted = True
            task = asyncio.get_running_loop().create_task(self._cancel_batch(batch))
            self._tasks[-batch.number] = task
            task.add_done_callback(lambda _: self._tasks.pop(-batch.number))

    async def _cancel_batch(self, batch: _Batch) -> None:
        """Cancel a batch repeatedly: Spark ignores that for one that it has not started yet."""
        while (running := self._tasks.get(batch.number)) is not None:
            try:
                await self._threads.call(partial(self._cluster.interrupt, batch.tag))
            except Exception as trouble:  # noqa: BLE001 - Spark is gone, and the batch with it
                self._lose(trouble)
                return
            await asyncio.wait([running], timeout=_INTERRUPT_AGAIN_S)


def _drop_if_cancelled(job: PendingJob) -> bool:
    """Give up a job that was cancelled; return whether it need not be run."""
    if job.is_cancelled:
        job.release()
    return job.is_cancelled or job.done()


def _release(jobs: Iterable[PendingJob]) -> None:
    for job in jobs:
        job.release()
