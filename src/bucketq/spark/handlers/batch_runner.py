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
from typing import TYPE_CHECKING, Any

import msgspec

from bucketq.errors import InvalidRequestError
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

_SHORT_S = 0.5
_LONG_S = 2.0
"""Batches are made larger below the first and smaller above the second: handlers are busy for
about a second, ten times what a batch costs Spark."""
_JOBS_MAX = 5000
"""Bounds what the driver holds, and how many jobs wait to be settled with the slowest of them."""
_GROWTH_MAX = 8
"""The largest factor by which a batch grows at once, so that a lucky measurement does little."""
_INTERRUPT_AGAIN_S = 1.0
"""The wait before a batch that has not ended is cancelled again."""
_PING_S = 5.0
"""How often Spark is pinged; without jobs to run, nothing else would notice that it is gone."""


class BatchFailed(Exception):  # noqa: N818 - it never leaves this package
    """Spark could not run a batch to its end; the message is Spark's."""


class BatchSize:
    """How many jobs go into a batch: so many that handlers are busy for about a second.

    Each batch costs Spark a tenth of a second or more, whatever its size, and much more if the
    cluster is busy; so overhead makes batches larger, not smaller. The jobs of a batch are settled
    together when the last of them has ended.
    """

    def __init__(self, least: int, most: int = _JOBS_MAX) -> None:
        """Begin with ``least``, the number of jobs that run at the same time."""
        self._least = least
        self._most = max(least, most)
        self.jobs = least
        self.is_fast = False
        """Whether batches are short enough that a third one should wait here for its turn."""

    def note(self, jobs: int, took_s: float, busy_s: float | None = None) -> None:
        """Adapt to the duration of a batch, and of the part of it in which handlers were busy."""
        busy_s = took_s if busy_s is None else min(busy_s, took_s)
        self.is_fast = busy_s <= _LONG_S
        short_s = min(max(_SHORT_S, took_s - busy_s), _LONG_S / 2)
        if not self.is_fast:
            self.jobs = max(self._least, self.jobs // 2)
        elif busy_s < short_s and jobs >= self.jobs:
            # By a large factor if even that batch would be short, as each step costs a batch.
            factor = _GROWTH_MAX if _GROWTH_MAX * busy_s < short_s else 2
            self.jobs = min(self._most, factor * self.jobs)


class PendingJob(asyncio.Future[Any]):
    """A handler that was sent to Spark, or is to be: its result is what the handler returned.

    The engine is given it in place of a task, because with short handlers a task for each job
    would cost more than all else that is done for it here.
    """

    def __init__(self, handler: Handler, context: Context, on_cancel: OnCancel) -> None:
        super().__init__()
        self.body = msgspec.json.encode(context.job.record)
        self.context = context
        self.is_cancelled = False
        """Whether the engine does not want its outcome any more."""
        self._on_cancel = on_cancel
        errors = context.job.errors
        has_died = bool(errors) and ENDED in errors[-1].error
        self.is_suspect = has_died and handler.place != "process"
        """Whether it seems to have ended its process before; then it is run isolated."""

    def cancel(self, msg: object = None) -> bool:
        """Ask the handler to stop; it is over when its batch is."""
        del msg
        if self.done():
            return False
        self._on_cancel(self)
        return True

    def release(self) -> None:
        """End it without an outcome."""
        super().cancel()

    def end(self, reply: Reply) -> None:
        """Take the outcome from the executor."""
        if self.done():
            return
        try:
            self.context.take_follow_ups(reply.follow_ups)
            self.set_result(value_of(reply))
        except Exception as error:  # noqa: BLE001 - it is what the handler raised
            self.set_exception(error)


OnCancel = Callable[[PendingJob], None]


@dataclass(slots=True, eq=False)
class _Batch:
    """Jobs that are sent to Spark together."""

    jobs: list[PendingJob]
    isolation: Isolation
    number: int = 0
    tag: str = ""
    is_interrupted: bool = False


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
        self._threads = ThreadRunner()
        self._waiting: deque[PendingJob] = deque()
        self._again: deque[_Batch] = deque()
        """Batches to run again after a failure, smaller or isolated."""
        self._running: dict[int, _Batch] = {}
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._count = 0
        self._is_due = False
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
        job = PendingJob(handler, context, self._cancel)
        self._waiting.append(job)
        self._send_soon()
        if self._reports is not None:
            self._reports.add(context)
            job.add_done_callback(self._end_reports)
        return job

    async def run(self, handler: Handler, context: Context, begun: Begun) -> Any:
        """Run a handler on the cluster."""
        return await self.start(handler, context, begun)

    def _end_reports(self, job: PendingJob) -> None:
        if self._reports is not None:
            self._reports.remove(job.context)

    async def close(self) -> None:
        """Cancel what is running, and release all jobs."""
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
                if not job.done():
                    job.set_exception(error)
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
        bodies = [job.body for job in batch.jobs]
        submit = partial(self._cluster.submit, bodies, batch.isolation, batch.tag)
        try:
            outcomes: list[HandlerOutcome] = await self._threads.call(submit)
        except Exception as error:  # noqa: BLE001 - Spark has many, and each ends a batch
            await self._recover(batch, error)
            return
        before = self.slots
        if batch.isolation == "shared":
            busy_s = max(outcome.ended_s for outcome in outcomes)
            self._size.note(len(bodies), loop.time() - began_s, busy_s)
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
        elif not jobs[0].done():
            text = f"{ENDED} was ended together with its Spark executor: {error}"
            jobs[0].set_exception(HandlerFailed(text))

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
        while self.trouble is None:
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
