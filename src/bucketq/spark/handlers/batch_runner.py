"""``SparkRunner``: sends the handlers of a worker's engine to Spark, many jobs in one batch.

To the engine it is a runner like others: it claims, keeps leases, drains and settles as ever, and
knows nothing of batches. The jobs that are to be run gather here while batches are under way, and
go out together when one has ended, so a batch is as large as the pace of the cluster makes it.

A batch that fails has ended the process that ran it, and Spark has tried it again as often as it
does. Which job did it is found out by running each in a process of its own; that job has failed,
and the others are done. Where even that fails (the whole executor went), the batch is cut into
halves until the one is alone. Where Spark itself is gone, no job is to blame: all are given back.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Protocol

import msgspec

from bucketq.errors import InvalidRequestError
from bucketq.spark.handlers.executor_task import Care, Outcome
from bucketq.worker.context import Context
from bucketq.worker.handler_exceptions import HandlerFailed
from bucketq.worker.handlers import Handler
from bucketq.worker.reply import ENDED, value_of
from bucketq.worker.runner import Begun
from bucketq.worker.threads import ThreadRunner

_log = logging.getLogger(__name__)

_SHORT_S = 0.5
_LONG_S = 2.0
_MOST_JOBS = 5000
_LARGEST_STEP = 8
_INTERRUPT_AGAIN_S = 1.0
_PING_S = 5.0
"""How often Spark is asked whether it is there; where nothing is to be done nobody would notice."""


class BatchFailed(Exception):  # noqa: N818 - it never leaves this package
    """Spark could not run a batch to its end; the text tells what it says."""


class Cluster(Protocol):
    """What is needed of Spark. The calls block, and are made in threads."""

    def submit(self, bodies: Sequence[bytes], care: Care, tag: str) -> list[Outcome]:
        """Run jobs, and return what became of each, in their order.

        Raises ``BatchFailed``, and ``InvalidRequestError`` where an executor has no handlers.
        """
        ...

    def interrupt(self, tag: str) -> None:
        """End the batch of a tag, which then raises."""
        ...

    def ping(self) -> None:
        """Raise an error of ours where Spark is gone."""
        ...

    def check(self) -> None:
        """The same, and where it has no handlers."""
        ...


class BatchSize:
    """How many jobs go into a batch: so many that handlers are busy for about a second.

    Each batch costs Spark a tenth of a second or more, whatever is in it, and much more where the
    cluster has other work; that is no reason for smaller batches, but for larger ones. What is in
    a batch is settled when all of it is over.
    """

    def __init__(self, least: int, most: int = _MOST_JOBS) -> None:
        """Begin with ``least``, which is as many as run at once."""
        self._least = least
        self._most = max(least, most)
        self.jobs = least
        self.is_brisk = False
        """Whether handlers were busy for so short that the next batch had better wait here."""

    def note(self, jobs: int, took_s: float, busy_s: float | None = None) -> None:
        """Note how long a batch took, and for how much of that handlers were busy."""
        busy_s = took_s if busy_s is None else min(busy_s, took_s)
        self.is_brisk = busy_s <= _LONG_S
        short_s = min(max(_SHORT_S, took_s - busy_s), _LONG_S / 2)
        if not self.is_brisk:
            self.jobs = max(self._least, self.jobs // 2)
        elif busy_s < short_s and jobs >= self.jobs:
            # By as much as would still be short: each step costs as much as a batch does.
            factor = _LARGEST_STEP if _LARGEST_STEP * busy_s < short_s else 2
            self.jobs = min(self._most, factor * self.jobs)


class _Visit:
    """A job on its way to an executor and back."""

    __slots__ = ("body", "is_cancelled", "is_suspect", "over")

    def __init__(self, handler: Handler, context: Context, over: asyncio.Future[Outcome]) -> None:
        self.body = msgspec.json.encode(context.job.record)
        self.over = over
        self.is_cancelled = False
        errors = context.job.errors
        has_died = bool(errors) and ENDED in errors[-1].error
        self.is_suspect = has_died and handler.place != "process"
        """Whether it seems to have ended its process before: then it is run apart from others."""


class _Batch:
    """Jobs that are run together."""

    __slots__ = ("care", "is_interrupted", "number", "tag", "visits")

    def __init__(self, visits: list[_Visit], care: Care) -> None:
        self.visits = visits
        self.care: Care = care
        self.number = 0
        self.tag = ""
        self.is_interrupted = False


class SparkRunner:
    """Runs handlers on a cluster. Made and used on the engine's loop."""

    def __init__(self, cluster: Cluster, size: BatchSize, name: str, batches: int = 2) -> None:
        """Run up to ``batches`` batches at once, so that executors need not wait for the next."""
        self._cluster = cluster
        self._size = size
        self._name = name
        self._batches = batches
        self._threads = ThreadRunner()
        self._waiting: deque[_Visit] = deque()
        self._again: deque[_Batch] = deque()
        """Batches that have failed, cut smaller or treated with more care."""
        self._running: dict[int, _Batch] = {}
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._count = 0
        self._is_due = False
        self.on_size: Callable[[int], None] = lambda _: None
        """Told how many jobs may be held, where that changes."""
        self.on_gone: Callable[[], None] = lambda: None
        """Told that Spark is gone, and no job can be run any more."""
        self.trouble: Exception | None = None
        """Why Spark is gone."""
        self._watching = asyncio.get_running_loop().create_task(self._watch())

    @property
    def slots(self) -> int:
        """How many jobs may be held: those under way, and a batch to follow the first that ends.

        With no more than are under way, batches would be cut smaller and smaller, as each is made
        of what is there when another ends. Where handlers take long that does not matter, and jobs
        that wait here are jobs that others cannot take.
        """
        return self._size.jobs * (self._batches + self._size.is_brisk)

    async def run(self, handler: Handler, context: Context, begun: Begun) -> Any:
        """Run a handler on the cluster; its time is counted there."""
        del begun
        loop = asyncio.get_running_loop()
        visit = _Visit(handler, context, loop.create_future())
        self._waiting.append(visit)
        self._soon()
        while not visit.over.done():
            try:
                await asyncio.shield(visit.over)
            except asyncio.CancelledError:
                if visit.over.cancelled():
                    raise
                self._cancel(visit)
        reply = visit.over.result().reply
        return None if reply is None else value_of(reply)

    async def close(self) -> None:
        """End what is under way, and wait for nobody any more."""
        self._watching.cancel()
        for batch in list(self._running.values()):
            self._interrupt(batch)
        for batch in (*self._running.values(), *self._again):
            _let_go(batch.visits)
        _let_go(self._waiting)
        await asyncio.gather(self._watching, *self._tasks.values(), return_exceptions=True)
        await self._threads.close()

    def _soon(self) -> None:
        """Send what there is when those that come at the same time are here as well."""
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
            task = asyncio.get_running_loop().create_task(self._see_through(batch))
            self._tasks[batch.number] = task
            task.add_done_callback(partial(self._over, batch.number))

    def _over(self, number: int, task: asyncio.Task[None]) -> None:
        batch = self._running.pop(number)
        del self._tasks[number]
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.error("batch %s failed", batch.tag, exc_info=error)
            for visit in batch.visits:
                if not visit.over.done():
                    visit.over.set_exception(error)
        self._soon()

    def _next(self) -> _Batch | None:
        """The next batch that is worth running."""
        while self._again:
            batch = self._again.popleft()
            batch.visits = [visit for visit in batch.visits if not _drop(visit)]
            if batch.visits:
                return batch
        visits: list[_Visit] = []
        while self._waiting and len(visits) < self._size.jobs:
            if visits and self._waiting[0].is_suspect != visits[0].is_suspect:
                break
            visit = self._waiting.popleft()
            if not _drop(visit):
                visits.append(visit)
        return _Batch(visits, "apart" if visits[0].is_suspect else "together") if visits else None

    async def _see_through(self, batch: _Batch) -> None:
        """Run one batch, and tell each of its jobs what became of it."""
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        bodies = [visit.body for visit in batch.visits]
        submit = partial(self._cluster.submit, bodies, batch.care, batch.tag)
        try:
            outcomes: list[Outcome] = await self._threads.call(submit)
        except Exception as error:  # noqa: BLE001 - Spark has many, and each ends a batch
            await self._mend(batch, error)
            return
        before = self.slots
        if batch.care == "together":
            busy_s = max(outcome.ended_s for outcome in outcomes)
            self._size.note(len(bodies), loop.time() - began_s, busy_s)
        unbegun: list[_Visit] = []
        for visit, outcome in zip(batch.visits, outcomes, strict=True):
            if outcome.reply is not None:
                _set(visit, outcome)
            elif not _drop(visit):
                unbegun.append(visit)
        self._waiting.extendleft(reversed(unbegun))
        if self.slots != before:
            self.on_size(self.slots)

    async def _mend(self, batch: _Batch, error: Exception) -> None:
        """Find out why a batch failed, and go on with its jobs as well as can be."""
        if batch.is_interrupted:
            _let_go(batch.visits)
            return
        if (trouble := await self._trouble(error)) is not None:
            self._lose(trouble)
            _let_go(batch.visits)
            return
        visits = batch.visits
        if batch.care == "together":
            self._again.append(_Batch(visits, "apart"))
        elif len(visits) > 1:
            middle = len(visits) // 2
            self._again.append(_Batch(visits[:middle], "apart"))
            self._again.append(_Batch(visits[middle:], "apart"))
        elif not visits[0].over.done():
            text = f"{ENDED} was ended together with its Spark executor: {error}"
            visits[0].over.set_exception(HandlerFailed(text))

    async def _trouble(self, error: Exception) -> Exception | None:
        """Why no batch can be run, if that is so."""
        if isinstance(error, InvalidRequestError):
            return error  # An executor has no handlers.
        try:
            await self._threads.call(self._cluster.check)
        except Exception as trouble:  # noqa: BLE001 - whatever it is, no job is to blame
            return trouble
        return None

    async def _watch(self) -> None:
        """Notice that Spark is gone, also where no job is there to find out."""
        while self.trouble is None:
            await asyncio.sleep(_PING_S)
            try:
                await self._threads.call(self._cluster.ping)
            except Exception as trouble:  # noqa: BLE001 - whatever it is, nothing can be run
                self._lose(trouble)

    def _lose(self, trouble: Exception) -> None:
        if self.trouble is None:
            self.trouble = trouble
            self.on_gone()

    def _cancel(self, visit: _Visit) -> None:
        """Note that nobody wants the outcome; a batch that nobody wants is ended."""
        visit.is_cancelled = True
        for batch in self._running.values():
            if visit in batch.visits:
                if all(each.is_cancelled or each.over.done() for each in batch.visits):
                    self._interrupt(batch)
                return
        self._soon()
        _drop(visit)

    def _interrupt(self, batch: _Batch) -> None:
        if not batch.is_interrupted:
            batch.is_interrupted = True
            task = asyncio.get_running_loop().create_task(self._end(batch))
            self._tasks[-batch.number] = task
            task.add_done_callback(lambda _: self._tasks.pop(-batch.number))

    async def _end(self, batch: _Batch) -> None:
        """End a batch, again and again: Spark knows nothing of one that it has not begun yet."""
        while (running := self._tasks.get(batch.number)) is not None:
            try:
                await self._threads.call(partial(self._cluster.interrupt, batch.tag))
            except Exception as trouble:  # noqa: BLE001 - Spark is gone, and the batch with it
                self._lose(trouble)
                return
            await asyncio.wait([running], timeout=_INTERRUPT_AGAIN_S)


def _drop(visit: _Visit) -> bool:
    """Let a job go that nobody wants to be run any more."""
    if visit.is_cancelled:
        visit.over.cancel()
    return visit.is_cancelled or visit.over.done()


def _let_go(visits: Sequence[_Visit] | deque[_Visit]) -> None:
    for visit in visits:
        visit.over.cancel()


def _set(visit: _Visit, outcome: Outcome) -> None:
    if not visit.over.done():
        visit.over.set_result(outcome)
