"""Runs on the executors: the jobs of one partition of a batch, several at once.

One Spark task runs the jobs on an event loop of its own, with the runners that a worker has: async
handlers on the loop, plain ones in threads, others in processes. Plain ones that run one at a time
are simply called. The outcome of each job goes back as a ``Reply``; an exception of a handler never
fails the task. Executors read nothing of the queue
but the large payloads of these jobs. Progress is reported to the driver while the task runs.
"""

from __future__ import annotations

import asyncio
import os
import select
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextvars import copy_context
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import msgspec
from msgspec import Struct

from bucketq.client.loop_thread import LoopThread
from bucketq.clock import SystemClock
from bucketq.model.records import JobRecord
from bucketq.model.side_objects import is_side
from bucketq.queue.job import Job
from bucketq.spark.handlers.handler_payloads import FetchedJob, HandlerPayloads
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
from bucketq.worker.runners.reply import Reply, how_it_ended, reply_done, reply_failed
from bucketq.worker.runners.runner import Runner, Runners, TaskRunner, call_plain
from bucketq.worker.runners.threads import ThreadRunner

if TYPE_CHECKING:
    import pyarrow as pa

_NO_QUEUE = (
    "executors of Spark do not reach the queue: push follow-up jobs with context.push, or run the "
    "handler by a worker"
)
_STOP_S = 1.0
"""How long a handler that was cancelled after its timeout may take to clean up."""
_CHUNK_BYTES = 1 << 16
"""The size of a pipe's buffer on Linux."""
_POLL_S = 0.2
"""How often the child is checked if its pipe stays open, as a process that it started keeps it."""

Isolation = Literal["shared", "isolated"]
"""Isolated: each job runs in a process of its own, to find the one that ends its process."""

_CANCELLED_ITSELF = Reply("failed", text="the handler cancelled itself")
_decode = msgspec.json.Decoder(JobRecord).decode
NO_JOB = b""
"""Sent instead of a job to check that an executor can load the handlers."""


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


def run_partition(
    settings: TaskSettings, batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Run the jobs of a partition; Spark calls this with rows of ``n`` and ``body``."""
    import pyarrow as pa  # noqa: PLC0415 - it is an extra

    numbers: list[int] = []
    bodies: list[bytes] = []
    for batch in batches:
        numbers += batch.column(0).to_pylist()
        bodies += batch.column(1).to_pylist()
    outcomes = run_jobs(settings, bodies)
    yield pa.RecordBatch.from_arrays(
        [
            pa.array(numbers, pa.int32()),
            pa.array([msgspec.json.encode(outcome) for outcome in outcomes], pa.binary()),
        ],
        names=["n", "body"],
    )


def run_jobs(settings: TaskSettings, bodies: Sequence[bytes]) -> list[HandlerOutcome]:
    """Run jobs, given as the JSON of their records; return their outcomes in order."""
    try:
        handlers = load_handlers(settings.handlers)
    except HandlersNotLoaded as error:
        return [HandlerOutcome(load_error=str(error)) for _ in bodies]
    if not any(bodies):
        return [HandlerOutcome() for _ in bodies]
    records = [*map(_decode, bodies)]
    if settings.isolation == "isolated":
        return [
            HandlerOutcome(_run_isolated(settings, handlers[record.kind], record))
            for record in records
        ]
    if settings.concurrency == 1 and all(_is_simple(handlers[job.kind], job) for job in records):
        return _run_in_turn(settings, handlers, records)
    return asyncio.run(_run_together(settings, handlers, records))


def _is_simple(handler: Handler, record: JobRecord) -> bool:
    """Whether a job needs neither a loop nor a thread: none to stop it, none to fetch for it."""
    if handler.place != "thread" or handler.timeout_s is not None:
        return False
    return record.payload_encoding is None or not is_side(record.payload_encoding)


def _run_in_turn(
    settings: TaskSettings, handlers: dict[str, Handler], records: Sequence[JobRecord]
) -> list[HandlerOutcome]:
    """Call plain handlers one after the other, in this thread, which runs no loop."""
    outcomes = [HandlerOutcome()] * len(records)
    reports, access = _reports(settings), _access()
    clock, streams = asyncio.new_event_loop(), list[LoopThread]()
    began_s = clock.time()

    def loop_of() -> asyncio.AbstractEventLoop:
        """Return the loop on which payloads are streamed, which few handlers ask for."""
        if not streams:
            streams.append(LoopThread())
        return streams[0].loop

    try:
        for number, record in enumerate(records):
            if number and clock.time() - began_s >= settings.budget_s:
                break
            context = _context(FetchedJob(record).job(loop_of), access, reports)
            # Like a thread's, what a handler sets in its context does not reach the next one.
            reply = copy_context().run(_call_plain, handlers[record.kind], context)
            if reports is not None:
                reports.end(context)
            outcomes[number] = HandlerOutcome(reply, ended_s=clock.time() - began_s)
    finally:
        clock.close()
        for each in streams:
            each.stop()
        if reports is not None:
            reports.close()
    return outcomes


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


async def _run_together(
    settings: TaskSettings, handlers: dict[str, Handler], records: Sequence[JobRecord]
) -> list[HandlerOutcome]:
    loop = asyncio.get_running_loop()
    began_s = loop.time()
    wanted = {record.kind: handlers[record.kind] for record in records}
    runner, reports = _runner(wanted), _reports(settings)
    outcomes = [HandlerOutcome()] * len(records)
    numbered = enumerate(records)
    payloads, access = HandlerPayloads(settings.access), _access()

    async def work() -> None:
        """Run jobs one after the other, always the next that is not taken."""
        for number, record in numbered:
            # The first ones are started in any case, or a batch might never make progress.
            if number >= settings.concurrency and loop.time() - began_s >= settings.budget_s:
                return
            fetched = await payloads.fetch(record)
            context = _context(fetched.job(), access, reports)
            try:
                reply = await _run_one(runner, wanted[record.kind], context)
            finally:
                fetched.close()
                if reports is not None:
                    reports.end(context)
            outcomes[number] = HandlerOutcome(reply, ended_s=loop.time() - began_s)

    try:
        async with payloads:
            await asyncio.gather(*(work() for _ in records[: settings.concurrency]))
    finally:
        await runner.close()
        if reports is not None:
            reports.close()
    return outcomes


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


def run_in_child(run: Callable[[], Reply]) -> Reply:
    """Run a job in a child of this process; if the child dies, the job has failed.

    The child is forked: it has handlers that were pickled with their code, and starts fast.
    """
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        _run_child(run, writer)
    os.close(writer)
    try:
        reply, exitcode = _read_reply(child, reader)
    finally:
        os.close(reader)
    if exitcode != 0 or not reply:
        return Reply("failed", text=how_it_ended(exitcode))
    return msgspec.json.decode(reply, type=Reply)


def _read_reply(child: int, reader: int) -> tuple[bytearray, int]:
    """Read the reply of a child until it ends; processes that it started may keep its pipe open."""
    os.set_blocking(reader, False)
    reply = bytearray()
    status: int | None = None
    is_open = True
    while status is None:
        if is_open:
            select.select([reader], [], [], _POLL_S)
        # Before reading, so that everything it wrote can be read afterwards.
        ended, found = os.waitpid(child, os.WNOHANG if is_open else 0)
        status = found if ended else None
        try:
            while is_open:
                chunk = os.read(reader, _CHUNK_BYTES)
                reply += chunk
                is_open = bool(chunk)
        except BlockingIOError:
            continue
    return reply, os.waitstatus_to_exitcode(status)


def _run_child(run: Callable[[], Reply], writer: int) -> None:
    """Run in the child. It never returns, because the frames above belong to the parent."""
    exitcode = 1
    try:
        reply = memoryview(msgspec.json.encode(run()))
        while reply:
            reply = reply[os.write(writer, reply) :]
        exitcode = 0
    finally:
        os._exit(exitcode)
