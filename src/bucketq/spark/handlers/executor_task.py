"""Runs on the executors: the jobs of one partition of a batch, several at once.

One Spark task runs the jobs on an event loop of its own, with the runners that a worker has: async
handlers on the loop, plain ones in threads, others in processes. Most are short, and need nothing
but to be called: then an asyncio task, or a thread if all are plain, takes one job after the other,
and there are as many as handlers may run at once.

The outcome of each job goes back as a ``Reply``; an exception of a handler never fails the task.
Executors read nothing of the queue but the large payloads of these jobs. Progress is reported to
the driver while the task runs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from functools import partial
from itertools import chain, islice
from threading import Lock
from typing import TYPE_CHECKING, Any, Literal

import msgspec
from msgspec import Struct

from bucketq.client.loop_thread import LoopThread
from bucketq.clock import SystemClock
from bucketq.model.records import JobRecord
from bucketq.model.side_objects import is_side
from bucketq.process_memory import freeze_modules
from bucketq.queue.job import Job
from bucketq.spark.handlers.handler_payloads import FetchedJob, HandlerPayloads
from bucketq.spark.handlers.job_child import run_in_child
from bucketq.spark.handlers.pickled_handlers import (
    HandlersNotLoaded,
    PickledHandlers,
    load_handlers,
)
from bucketq.spark.handlers.progress_datagrams import ReportAddress, ReportSender
from bucketq.spark.queue_access import QueueAccess
from bucketq.worker.context import Context
from bucketq.worker.handler_queue import HandlerQueue
from bucketq.worker.handlers import Handler, Place
from bucketq.worker.runners.reply import Reply, reply_done, reply_failed
from bucketq.worker.runners.runner import Runner, Runners, TaskRunner, call, call_plain
from bucketq.worker.runners.threads import ThreadRunner

if TYPE_CHECKING:
    import pyarrow as pa

_NO_QUEUE = (
    "executors of Spark do not reach the queue: push follow-up jobs with context.push, or run the "
    "handler by a worker"
)
_TURN_S = 0.001
"""How long handlers that wait for nothing may keep others from going on."""
_STOP_S = 1.0
"""How long a handler that was cancelled after its timeout may take to clean up."""

Isolation = Literal["shared", "isolated"]
"""Isolated: each job runs in a process of its own, to find the one that ends its process."""

_CANCELLED_ITSELF = Reply("failed", text="the handler cancelled itself")
_decode = msgspec.json.Decoder(list[JobRecord | None]).decode


class HandlerOutcome(Struct, frozen=True, omit_defaults=True):
    """The outcome of a job on an executor."""

    reply: Reply | None = None
    """None: it was not started."""
    load_error: str = ""
    """Why the executor cannot load the handlers, if so."""
    ended_s: float = 0.0
    """How long after the start of its task it ended."""


class TaskSettings(Struct, frozen=True):
    """How a task runs its jobs."""

    handlers: PickledHandlers
    concurrency: int
    budget_s: float
    """After that long no further job is started: finished ones wait for the end of the task."""
    isolation: Isolation = "shared"
    report_to: ReportAddress | None = None
    """Where to report how far handlers have come."""
    access: QueueAccess | None = None
    """How large payloads are fetched; None: executors cannot do it."""


def run_rows(settings: TaskSettings, rows: Iterable[bytes]) -> Iterator[bytes]:
    """Run the jobs of a partition.

    A row has several jobs, as the JSON of a list of records. It comes back as that of a list of
    their outcomes.
    """
    jobs = [*map(_decode, rows)]
    outcomes = iter(run_jobs(settings, [*chain.from_iterable(jobs)]))
    # Spark collects garbage after every task, which would take longer than many short handlers.
    freeze_modules()
    for row in jobs:
        yield msgspec.json.encode([*islice(outcomes, len(row))])


def run_batches(
    settings: TaskSettings, batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Run the jobs of a partition that comes as Arrow batches, with the columns ``n`` and ``body``.

    A row comes back under the same number.
    """
    import pyarrow as pa  # noqa: PLC0415 - it is an extra

    numbers: list[int] = []
    rows: list[bytes] = []
    for batch in batches:
        numbers += batch.column(0).to_pylist()
        rows += batch.column(1).to_pylist()
    bodies = pa.array([*run_rows(settings, rows)], pa.binary())
    yield pa.RecordBatch.from_arrays([pa.array(numbers, pa.int32()), bodies], names=["n", "body"])


def run_jobs(settings: TaskSettings, jobs: Sequence[JobRecord | None]) -> list[HandlerOutcome]:
    """Run jobs, and return their outcomes in order.

    None is sent instead of a job to check that an executor can load the handlers.
    """
    try:
        handlers = load_handlers(settings.handlers)
    except HandlersNotLoaded as error:
        return [HandlerOutcome(load_error=str(error)) for _ in jobs]
    records = [job for job in jobs if job is not None]
    if not records:
        return [HandlerOutcome() for _ in jobs]
    if settings.isolation == "isolated":
        return [
            HandlerOutcome(_run_isolated(settings, handlers[record.kind], record))
            for record in records
        ]
    if all(
        handlers[job.kind].place == "thread" and _is_call(handlers[job.kind], job)
        for job in records
    ):
        return _run_plain(settings, handlers, records)
    return asyncio.run(_run_together(settings, handlers, records))


async def _run_together(
    settings: TaskSettings, handlers: dict[str, Handler], records: Sequence[JobRecord]
) -> list[HandlerOutcome]:
    return await _RunTogether(settings, handlers, records).run()


def _is_call(handler: Handler, record: JobRecord) -> bool:
    """Whether running a job is only a call: nothing stops it, and nothing is fetched for it."""
    if handler.timeout_s is not None:
        return False
    return record.payload_encoding is None or not is_side(record.payload_encoding)


def _run_plain(
    settings: TaskSettings, handlers: dict[str, Handler], records: Sequence[JobRecord]
) -> list[HandlerOutcome]:
    """Call plain handlers, in threads without a loop, or in this one if they run one at a time."""
    outcomes = [HandlerOutcome()] * len(records)
    reports, access = _reports(settings), _access()
    clock, streams = asyncio.new_event_loop(), _StreamLoop()
    began_s = clock.time()
    numbered = enumerate(records)

    def work() -> None:
        """Call one handler after the other, always of the next job that is not taken."""
        for number, record in numbered:
            if number >= settings.concurrency and clock.time() - began_s >= settings.budget_s:
                return
            context = _context(FetchedJob(record).job(streams.get), access, reports)
            # What a handler sets in its context does not reach the next one.
            reply = copy_context().run(_call_plain, handlers[record.kind], context)
            if reports is not None:
                reports.end(context)
            outcomes[number] = HandlerOutcome(reply, ended_s=clock.time() - began_s)

    try:
        if settings.concurrency == 1:
            work()
        else:
            with ThreadPoolExecutor(settings.concurrency, "bucketq handler") as threads:
                for each in [threads.submit(work) for _ in records[: settings.concurrency]]:
                    each.result()
    finally:
        clock.close()
        streams.stop()
        if reports is not None:
            reports.close()
    return outcomes


class _StreamLoop:
    """The loop on which plain handlers stream payloads, which few ask for."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._thread: LoopThread | None = None

    def get(self) -> asyncio.AbstractEventLoop:
        """Return the loop, which runs in a thread from the first call on."""
        with self._lock:
            if self._thread is None:
                self._thread = LoopThread()
            return self._thread.loop

    def stop(self) -> None:
        """End the thread."""
        if self._thread is not None:
            self._thread.stop()


def _call_plain(handler: Handler, context: Context) -> Reply:
    try:
        result = call_plain(handler, context)
    except asyncio.CancelledError:
        return _CANCELLED_ITSELF
    except Exception as error:  # noqa: BLE001 - it fails this job only
        return reply_failed(error)
    return reply_done(result, context.end())


def _run_isolated(settings: TaskSettings, handler: Handler, record: JobRecord) -> Reply:
    """Run one job in a child; its payload is fetched before, because a child cannot connect."""

    async def fetch() -> FetchedJob:
        async with HandlerPayloads(settings.access) as payloads:
            return await payloads.fetch(record)

    fetched = asyncio.run(fetch())
    try:
        return run_in_child(partial(_run_alone, settings, handler, fetched))
    finally:
        fetched.close()


def _run_alone(settings: TaskSettings, handler: Handler, fetched: FetchedJob) -> Reply:
    """Run one job; called in a process of its own."""

    async def main() -> Reply:
        runner = _runner({handler.kind: handler})
        reports = _reports(settings)
        try:
            return await _run_one(runner, handler, _context(fetched.job(), _access(), reports))
        finally:
            await runner.close()

    return asyncio.run(main())


class _RunTogether:
    """Runs jobs on a loop, several at once."""

    def __init__(
        self, settings: TaskSettings, handlers: dict[str, Handler], records: Sequence[JobRecord]
    ) -> None:
        self._settings = settings
        self._handlers = {record.kind: handlers[record.kind] for record in records}
        self._outcomes = [HandlerOutcome()] * len(records)
        self._numbered = enumerate(records)
        self._loop = asyncio.get_running_loop()
        self._began_s = self._loop.time()
        self._runner, self._reports = _runner(self._handlers), _reports(settings)
        self._payloads, self._access = HandlerPayloads(settings.access), _access()

    async def run(self) -> list[HandlerOutcome]:
        """Run the jobs, and return their outcomes in order."""
        at_once = min(self._settings.concurrency, len(self._outcomes))
        try:
            async with self._payloads:
                await asyncio.gather(*(self._work() for _ in range(at_once)))
        finally:
            await self._runner.close()
            if self._reports is not None:
                self._reports.close()
        return self._outcomes

    async def _work(self) -> None:
        """Run jobs one after the other in a task, and in a new one after a handler changed it."""
        is_over = False
        while not is_over:
            working = self._loop.create_task(self._work_in_task())
            await asyncio.wait([working])
            is_over = not working.cancelled() and working.result()

    async def _work_in_task(self) -> bool:
        """Run jobs, always the next that is not taken; return whether none is left.

        Returns earlier, and False, if a handler has cancelled this task or changed its context.
        """
        unchanged = copy_context()
        turn_s = now_s = self._loop.time() - self._began_s
        for number, record in self._numbered:
            # The first ones are started in any case, or a batch might never make progress.
            if number >= self._settings.concurrency and now_s >= self._settings.budget_s:
                break
            reply = await self._reply_of(record)
            now_s = self._loop.time() - self._began_s
            self._outcomes[number] = HandlerOutcome(reply, ended_s=now_s)
            if _is_cancelled() or copy_context() != unchanged:
                return False
            if now_s - turn_s >= _TURN_S:
                await asyncio.sleep(0)
                turn_s = now_s = self._loop.time() - self._began_s
        return True

    async def _reply_of(self, record: JobRecord) -> Reply:
        handler, reports = self._handlers[record.kind], self._reports
        is_call = _is_call(handler, record)
        fetched = FetchedJob(record) if is_call else await self._payloads.fetch(record)
        context = _context(fetched.job(), self._access, reports)
        try:
            if is_call and handler.place == "loop":
                return await _reply_of(call(handler, context), context)
            return await _run_one(self._runner, handler, context)
        except asyncio.CancelledError:
            return _CANCELLED_ITSELF
        finally:
            fetched.close()
            if reports is not None:
                reports.end(context)


def _access() -> HandlerQueue:
    return HandlerQueue(SystemClock(), reason=_NO_QUEUE)


def _context(job: Job[Any], access: HandlerQueue, reports: ReportSender | None) -> Context:
    context = Context(job, access)
    if reports is not None:
        context.on_report = partial(reports.report, context)
    return context


async def _run_one(runner: Runner, handler: Handler, context: Context) -> Reply:
    """Run one handler, until it ends or its timeout is over."""
    if handler.timeout_s is not None:
        return await _run_timed(runner, handler, context, handler.timeout_s)
    loop = asyncio.get_running_loop()
    # A task of its own, so that a handler that cancels its task cancels nothing else.
    task = loop.create_task(_reply_of(runner.run(handler, context, _ignore), context))
    try:
        return await task
    except asyncio.CancelledError:
        if not task.cancelled() or _is_cancelled():
            raise
        return _CANCELLED_ITSELF


def _is_cancelled() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def _ignore() -> None:
    """Do nothing: there is no timeout that begins."""


async def _run_timed(runner: Runner, handler: Handler, context: Context, timeout_s: float) -> Reply:
    loop = asyncio.get_running_loop()
    over = asyncio.Event()
    timers: list[asyncio.TimerHandle] = []
    is_late = False

    def stop() -> None:
        nonlocal is_late
        is_late = True
        context.cancelled = True
        task.cancel()
        timers.append(loop.call_later(_STOP_S, over.set))

    def begun() -> None:
        timers.append(loop.call_later(timeout_s, stop))

    task = loop.create_task(_reply_of(runner.run(handler, context, begun), context))
    task.add_done_callback(lambda _: over.set())
    await over.wait()
    for timer in timers:
        timer.cancel()
    reply = task.result() if task.done() and not task.cancelled() else None
    if is_late and (reply is None or reply.kind != "done"):
        return Reply("failed", text=f"it took longer than {timeout_s:g} s, and was cancelled")
    return reply or _CANCELLED_ITSELF


async def _reply_of(running: Awaitable[Any], context: Context) -> Reply:
    """Return the outcome of a handler. Raises only ``CancelledError``."""
    try:
        result = await running
    except Exception as error:  # noqa: BLE001 - it fails this job only
        return reply_failed(error)
    return reply_done(result, context.end())


def _reports(settings: TaskSettings) -> ReportSender | None:
    return None if settings.report_to is None else ReportSender(settings.report_to)


def _runner(handlers: dict[str, Handler]) -> Runners:
    runners: dict[Place, Runner] = {"loop": TaskRunner(), "thread": ThreadRunner()}
    if any(handler.place == "process" for handler in handlers.values()):
        from bucketq.worker.runners.processes import ProcessRunner  # noqa: PLC0415 - few need it

        runners["process"] = ProcessRunner(handlers)
    return Runners(runners)
