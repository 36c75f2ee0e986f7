"""The parts of a worker, each alone: what ``worker.py`` prints in microseconds a job."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from datetime import UTC, datetime
from functools import partial
from typing import Any, cast

from msgspec import Raw

from bucketq.client.loop_thread import LoopThread
from bucketq.clock import SystemClock
from bucketq.errors import UnavailableError
from bucketq.model.operations import LeaseRef, Pulse
from bucketq.model.queue_stats import Stats
from bucketq.model.records import JobRecord
from bucketq.model.settings import Settings
from bucketq.queue.job import Job
from bucketq.queue.queue import Queue
from bucketq.worker.context import Context
from bucketq.worker.engine import Engine
from bucketq.worker.handlers import Handler, bind
from bucketq.worker.runners.caller_loop import CallerLoopRunner
from bucketq.worker.runners.processes import ProcessRunner
from bucketq.worker.runners.runner import Begun, Handling, Runner, TaskRunner, call
from bucketq.worker.runners.threads import ThreadRunner

_ABREAST = 100
_NOW = datetime(2026, 1, 1, tzinfo=UTC)
_FEWER = 10
"""Processes are much slower, so fewer jobs are enough."""


async def do_nothing(payload: dict[str, str]) -> None:
    """A handler for the event loop."""
    del payload


def do_nothing_plainly(payload: dict[str, str]) -> None:
    """A handler for threads and processes."""
    del payload


ON_LOOP = bind("worker", do_nothing)
IN_THREAD = bind("worker", do_nothing_plainly)
IN_PROCESS = bind("worker", do_nothing_plainly, run_in="process")


def new_job(number: int) -> Job[Any]:
    """A job that was claimed."""
    record = JobRecord(
        id=f"job-{number}",
        kind="worker",
        status="running",
        seq=number,
        payload=Raw(b'{"text":"%b"}' % (b"x" * 89)),
        pushed_at=_NOW,
        attempt=1,
        lease=f"lease-{number}",
    )
    return Job(record, Any)


class EndlessQueue:
    """The part of a queue that an engine needs, without a queue behind it."""

    def __init__(self, count: int) -> None:
        """Hand out this many jobs."""
        self._left = count

    async def settings(self) -> Settings:
        """The defaults."""
        return Settings()

    async def claim(self, kinds: object, *, limit: int, **_: object) -> list[Job[Any]]:
        """Hand out what is asked for."""
        del kinds
        await asyncio.sleep(0.001)  # So that some are prefetched, as from a real queue.
        first, self._left = self._left, max(0, self._left - limit)
        return [new_job(number) for number in range(self._left, first)]

    async def complete_many(self, jobs: list[Any], **_: object) -> list[bool]:
        """Take completions."""
        await asyncio.sleep(0)
        return [True] * len(jobs)

    async def release_many(self, jobs: list[Any], **_: object) -> list[bool]:
        """Take jobs back."""
        return [True] * len(jobs)

    async def stats(self) -> Stats:
        """There are no counts."""
        message = "no queue"
        raise UnavailableError(message)

    async def jobs(self, **_: object) -> Any:
        """There is no listing."""
        message = "no queue"
        raise UnavailableError(message)

    async def heartbeat(self, jobs: list[LeaseRef]) -> list[Pulse]:
        """All is well."""
        return [Pulse(lease.job, held=True) for lease in jobs]


async def _call(count: int) -> None:
    for number in range(count):
        await call(ON_LOOP, Context(new_job(number)))


async def _run_all(runner: Runner, handler: Handler, count: int) -> None:
    """Run handlers, some at a time."""
    left = count

    async def slot() -> None:
        nonlocal left
        while left > 0:
            left -= 1
            await runner.run(handler, Context(new_job(left)), lambda: None)

    await asyncio.gather(*(slot() for _ in range(_ABREAST)))
    await runner.close()


async def _on_another_loop(visit: Callable[[Runner], Coroutine[Any, Any, None]]) -> None:
    """Do something on another loop, with a runner whose handlers run on this one."""
    caller, loop_thread = asyncio.get_running_loop(), LoopThread()

    async def work() -> None:
        await visit(CallerLoopRunner(caller))

    try:
        await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work(), loop_thread.loop))
    finally:
        await asyncio.to_thread(loop_thread.stop)


async def _across_loops(count: int) -> None:
    await _on_another_loop(lambda runner: _run_all(runner, ON_LOOP, count))


async def _in_threads(count: int) -> None:
    await _run_all(ThreadRunner(), IN_THREAD, count)


async def _in_a_process(count: int) -> None:
    runner = ProcessRunner({"worker": IN_PROCESS})
    for number in range(count // _FEWER):
        await runner.run(IN_PROCESS, Context(new_job(number)), lambda: None)
    await runner.close()


class _Over:
    """A handler that is over: it took no time."""

    def __init__(self) -> None:
        self.on_done: Callable[[Any], object] = lambda _: None

    def add_done_callback(self, function: Callable[[Any], object], /) -> None:
        self.on_done = function

    def cancel(self) -> bool:
        return False

    def done(self) -> bool:
        return True

    def cancelled(self) -> bool:
        return False

    def exception(self) -> None:
        return None

    def result(self) -> None:
        return None


class _InstantRunner(Runner):
    """Runs no handler, and reports that all are over."""

    def __init__(self) -> None:
        self._over: list[_Over] = []

    def start(self, handler: Handler, context: Context, begun: Begun) -> Handling:
        del handler, context, begun
        over = _Over()
        self._over.append(over)
        if len(self._over) == 1:
            asyncio.get_running_loop().call_soon(self._report)
        return over

    async def run(self, handler: Handler, context: Context, begun: Begun) -> None:
        del handler, context, begun

    async def close(self) -> None:
        pass

    def _report(self) -> None:
        over, self._over = self._over, []
        for each in over:
            each.on_done(each)


async def _engine(make: Callable[[], Runner], count: int) -> None:
    queue = cast("Queue[Any]", EndlessQueue(count))
    engine = Engine(
        queue,
        {"worker": ON_LOOP},
        make(),
        SystemClock(),
        name="bench",
        concurrency=_ABREAST,
        burst=True,
    )
    await engine.run()


async def _engine_across_loops(count: int) -> None:
    await _on_another_loop(lambda runner: _engine(lambda: runner, count))


PARTS: dict[str, Callable[[int], Awaitable[None]]] = {
    "decode the payload, call an async handler": _call,
    "the same on another loop and back": _across_loops,
    "the same in a thread and back": _in_threads,
    f"a tenth as many in one process, x{_FEWER}": _in_a_process,
    "the engine alone, handlers that take no time": partial(_engine, _InstantRunner),
    "all of the engine, handlers on its own loop": partial(_engine, TaskRunner),
    "all of the engine, handlers on another loop": _engine_across_loops,
}
