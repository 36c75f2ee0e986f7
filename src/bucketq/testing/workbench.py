"""``Workbench``: for users' own tests of what they push, and of their handlers.

::

    with Workbench(worker) as bench:
        signup("ada@example.org", bench.queue)
        assert bench.pushed("email") == [{"to": "ada@example.org"}]
        [ran] = bench.run()
        assert ran.end == "done"

It is a real queue in memory, with a clock that the test moves, and the parts of a real worker that
run one job after another on the thread of the test. So retries, timeouts, dead jobs and idempotency
keys are those of production. What differs: one job runs at a time, nothing is prefetched, nothing
is archived, and no process is started.

The queue has its own event loop in a thread, so that tests and handlers, async or not, can use it
from anywhere.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Coroutine, Iterable, Mapping
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, NamedTuple, Self, cast

from bucketq.client.blocking_queue import BlockingQueue
from bucketq.client.connect import connect
from bucketq.client.loop_thread import LoopThread
from bucketq.clock import SystemClock, new_token
from bucketq.errors import ClosedError, InvalidRequestError
from bucketq.model import check
from bucketq.model.side_objects import refs_of
from bucketq.queue.arguments import seconds
from bucketq.queue.job import Job
from bucketq.queue.large.payload_stream import PayloadStream
from bucketq.queue.queue import Queue
from bucketq.store.memory import forget_memory_store, shared_memory_store
from bucketq.store.url import open_store
from bucketq.testing.inline_worker import InlineWorker, Ran
from bucketq.testing.schedule_stops import ScheduleStops
from bucketq.testing.whole_jobs import whole_job
from bucketq.worker.declared_schedules import DeclaredSchedules
from bucketq.worker.handler_exceptions import GiveUp, Retry, Snooze
from bucketq.worker.handlers import Handler, Handlers
from bucketq.worker.worker import Worker

_NAME = "workbench"
_PAGE_JOBS = 1000
_MOST_JOBS = 10_000
"""After so many attempts, ``run`` assumes that jobs push each other without end."""
_MOST_STOPS = 10_000
"""After so many due times, ``advance`` assumes a mistake in the unit."""
_FOR_EVER_S = 1e9
"""Thirty years."""


class StoppedClock(SystemClock):
    """A ``Clock`` whose time changes only when the test moves it."""

    def __init__(self, at: datetime) -> None:
        """Start at ``at``, a time with a zone."""
        self._now = at.astimezone(UTC)

    def now(self) -> datetime:
        """Return its time, in UTC."""
        return self._now

    def advance(self, by: timedelta) -> None:
        """Move it forward."""
        self._now += by


class Workbench:
    """A queue in memory, with a clock and handlers that the test controls."""

    def __init__(
        self,
        *workers: Worker,
        at: datetime | None = None,
        state: Mapping[str, Any] | None = None,
    ) -> None:
        """Make a workbench; ``with`` opens it, each time with a new and empty queue.

        Args:
            *workers: The workers whose handlers ``run`` calls; none if only pushes are tested.
                Their addresses and options are ignored.
            at: The initial time of the clock; by default the current time.
            state: What handlers get by ``worker.state``, instead of what the functions of
                ``on_start`` would open: they and those of ``on_stop`` are not called then.
        """
        if at is not None and at.utcoffset() is None:
            raise InvalidRequestError(
                f"`at` has no time zone: write {at.replace(tzinfo=UTC)!r}, or your own zone"
            )
        self._handlers = Handlers()
        self._schedules = DeclaredSchedules()
        for worker in workers:
            for handler in worker.handlers.values():
                self._handlers.add(handler)
            for schedule in worker.schedules.values():
                self._schedules.add(schedule)
        self._workers = workers
        self._at = at
        self._state = state
        self._opened: _Opened | None = None
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        """Open a new queue."""
        if self._opened is not None:
            raise InvalidRequestError("this workbench is open already: make one for each use")
        clock = StoppedClock(SystemClock().now() if self._at is None else self._at)
        name = f"{_NAME}-{new_token(clock)[:12]}"
        with ExitStack() as stack:
            store = shared_memory_store(name, clock)
            stack.callback(forget_memory_store, name)
            loop_thread = LoopThread()
            stack.callback(loop_thread.stop)
            connection = connect(store.url, mode="direct", worker=_NAME)
            bridge = _Bridge(loop_thread, loop_thread.call(connection.__aenter__))
            stack.callback(loop_thread.call, connection.__aexit__)
            runner = asyncio.Runner()
            stack.callback(runner.close)
            stops = ScheduleStops(loop_thread, open_store(store.url), clock)
            stack.callback(stops.close)
            opened = _Opened(store.url, clock, bridge, runner, stops)
            for worker in self._workers:
                stack.enter_context(worker.open_queues.opened(bridge.queue, loop_thread.loop))
            # Not by other connections either: a test inspects finished jobs.
            opened.blocking.configure(archive_after_s=_FOR_EVER_S)
            for name, kind, payload, options in self._schedules.values():
                opened.blocking.schedule(name, kind, payload, **options)
            self._stack = stack.pop_all()
        self._opened = opened
        return self

    def __exit__(self, *error: object) -> None:
        """Close the queue and delete it."""
        self._opened = None
        self._stack.close()

    @property
    def url(self) -> str:
        """The address of the queue, for code in this process that connects itself."""
        return self._open().url

    @property
    def queue(self) -> BlockingQueue[Any]:
        """The queue, for code without asyncio."""
        return self._open().blocking

    @property
    def async_queue(self) -> Queue[Any]:
        """The same queue for async code, on any event loop."""
        return cast("Queue[Any]", self._open().bridge)

    @property
    def now(self) -> datetime:
        """The time of the queue's clock."""
        return self._open().clock.now()

    def advance(self, by: float | timedelta) -> None:
        """Move the clock forward: delayed jobs become due, others expire, and schedules fire.

        The clock stops at each due time of a schedule, as if a process were there all the time.
        """
        opened = self._open()
        self._advance_to(opened.clock.now() + timedelta(seconds=seconds(by, "by")))

    def _advance_to(self, end: datetime) -> None:
        opened = self._open()
        for _ in range(_MOST_STOPS):
            due = opened.stops.next_due()
            opened.clock.advance(min(due or end, end) - opened.clock.now())
            if due is None or due > end:
                opened.stops.finish_expired()
                return
            opened.stops.fire_due()
        raise InvalidRequestError(
            f"schedules were due {_MOST_STOPS:,} times: advance the clock in smaller steps"
        )

    def advance_to_next(self) -> bool:
        """Move the clock to the next delayed job or due schedule; return False if there is none."""
        now, due = self._open().clock.now(), self._open().stops.next_due()
        waiting = [job.run_at for job in self.jobs() if job.status == "queued" and job.run_at]
        later = [run_at for run_at in [*waiting, due] if run_at is not None and run_at > now]
        if later:
            self._advance_to(min(later))
        return bool(later)

    def pushed(self, kind: str | None = None) -> list[Any]:
        """Return the payloads that were pushed so far, of one kind or of all, as plain values."""
        return [job.payload for job in self.jobs(kind)]

    def jobs(self, kind: str | None = None) -> list[Job[Any]]:
        """Return the jobs that were pushed so far, of one kind or of all, as they are now."""
        found: list[Job[Any]] = []
        after: int | None = 0
        while after is not None:
            page = self.queue.jobs(kinds=kind, after=after, limit=_PAGE_JOBS)
            found += map(self._whole, page.jobs)
            after = page.next_after
        return found

    def job(self, job_id: str) -> Job[Any]:
        """Return a job as it is now. Raises ``JobNotFoundError``."""
        return self._whole(self.queue.get(job_id))

    def _whole(self, job: Job[Any]) -> Job[Any]:
        if not refs_of(job.record):
            return job
        bridge = self._open().bridge
        return bridge.loop_thread.call(whole_job, bridge.queue, job)

    def run(
        self,
        kinds: str | Iterable[str] | None = None,
        *,
        limit: int | None = None,
        timeout_s: float | None = None,
        raise_errors: bool = False,
    ) -> list[Ran]:
        """Work on all jobs that are due, one after another, and on those that they push.

        Args:
            kinds: The kinds to work on; by default all that have handlers.
            limit: Stop after so many attempts.
            timeout_s: An upper limit for the timeouts of handlers that have one.
            raise_errors: Raise the first error of a handler, once its job is settled. ``Retry``,
                ``Snooze`` and ``GiveUp`` are not errors.

        Returns:
            Every attempt and how it ended, in order.
        """
        runner = self._open().runner
        if _is_in_a_loop():
            raise InvalidRequestError(
                "run() would block the event loop that runs here: await bench.run_async()"
            )
        return runner.run(
            self.run_async(kinds, limit=limit, timeout_s=timeout_s, raise_errors=raise_errors)
        )

    async def run_async(
        self,
        kinds: str | Iterable[str] | None = None,
        *,
        limit: int | None = None,
        timeout_s: float | None = None,
        raise_errors: bool = False,
    ) -> list[Ran]:
        """Do what ``run`` does, on the running event loop."""
        most = _MOST_JOBS if limit is None else limit
        check.whole_number(most, "limit", 1, _MOST_JOBS)
        wanted = _shortened(self._wanted(kinds), timeout_s)
        ran: list[Ran] = []
        async with (
            self._started(wanted) as handlers,
            InlineWorker(self.async_queue, self.queue, handlers, self._open().clock) as hands,
        ):
            while len(ran) < most and (attempt := await hands.work_on_next()) is not None:
                ran.append(attempt)
                _raise_error(attempt, also_plain=raise_errors)
        if limit is None and len(ran) == _MOST_JOBS:
            raise InvalidRequestError(
                f"{_MOST_JOBS:,} attempts were made, the last at kind {ran[-1].job.kind!r}: jobs "
                "seem to push each other without end; pass run() a limit"
            )
        return ran

    def _open(self) -> _Opened:
        if self._opened is None:
            raise ClosedError("the workbench is not open: write `with Workbench(...) as bench:`")
        return self._opened

    @asynccontextmanager
    async def _started(self, wanted: Mapping[str, Handler]) -> AsyncIterator[dict[str, Handler]]:
        """Start the workers of some handlers; stop them at the end."""
        handlers: dict[str, Handler] = {}
        async with AsyncExitStack() as stack:
            for worker in self._workers:
                own = {kind: each for kind, each in wanted.items() if kind in worker.handlers}
                if own:
                    running = worker.lifespan.running(own, self._state)
                    handlers |= await stack.enter_async_context(running)
            yield handlers

    def _wanted(self, kinds: str | Iterable[str] | None) -> dict[str, Handler]:
        """Return the handlers of the kinds to work on."""
        if not self._handlers:
            raise InvalidRequestError(
                "there are no handlers to run: pass Workbench a worker that has some"
            )
        return self._handlers.select(kinds)


class _Bridge:
    """A queue on the loop of a thread, which can be awaited on any other loop."""

    def __init__(self, loop_thread: LoopThread, queue: Queue[Any]) -> None:
        self.loop_thread = loop_thread
        self.queue = queue

    def __getattr__(self, name: str) -> Any:
        """Return the verb of this name."""
        if not hasattr(Queue, name):
            raise AttributeError(name)
        verb = getattr(self.queue, name)
        if inspect.isasyncgenfunction(verb):
            return lambda *args, **kwargs: PayloadStream(
                verb(*args, **kwargs), self.loop_thread.loop
            )
        if not inspect.iscoroutinefunction(verb):
            return partial(getattr(Queue, name), self)  # What it returns asks this bridge.

        async def call(*args: Any, **kwargs: Any) -> Any:
            if self.loop_thread.loop.is_closed():
                raise ClosedError("the workbench is closed, and its queue with it")
            there: Coroutine[Any, Any, Any] = verb(*args, **kwargs)
            return await asyncio.wrap_future(
                asyncio.run_coroutine_threadsafe(there, self.loop_thread.loop)
            )

        return call


class _Opened(NamedTuple):
    """The parts of an open workbench."""

    url: str
    clock: StoppedClock
    bridge: _Bridge
    runner: asyncio.Runner
    stops: ScheduleStops

    @property
    def blocking(self) -> BlockingQueue[Any]:
        return BlockingQueue(self.bridge.loop_thread, self.bridge.queue)


def _shortened(handlers: dict[str, Handler], limit_s: float | None) -> dict[str, Handler]:
    """Return the handlers, with timeouts of at most ``limit_s``."""
    if limit_s is None:
        return handlers
    check.delay(limit_s, "timeout_s")
    return {
        kind: handler
        if handler.timeout_s is None
        else replace(handler, timeout_s=min(handler.timeout_s, limit_s))
        for kind, handler in handlers.items()
    }


def _raise_error(ran: Ran, *, also_plain: bool) -> None:
    """Raise what a handler raised, unless it is ``Retry``, ``Snooze`` or ``GiveUp``.

    An exception that is not an ``Exception`` is always raised, because it is meant for the test:
    ``pytest.fail``, a timeout of the test, Ctrl-C.
    """
    if ran.error is None or isinstance(ran.error, Retry | Snooze | GiveUp):
        return
    if also_plain or not isinstance(ran.error, Exception):
        raise ran.error


def _is_in_a_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
