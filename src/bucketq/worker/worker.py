"""``Worker``: handlers, and the queue whose jobs they run.

::

    worker = bucketq.Worker("s3://bucket/jobs/queue.json", concurrency=20)


    @worker.handler("email", timeout_s=30)
    async def send(email: Email) -> None: ...


    worker.run_sync()  # or: await worker.run(), or: bucketq work module:worker

The code that talks to the queue runs on an event loop in its own thread, so a handler that blocks
its own loop loses no lease.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, AbstractContextManager, contextmanager
from datetime import timedelta
from functools import partial
from typing import Any, TypeVar, Unpack

from bucketq.client.blocking_queue import BlockingQueue
from bucketq.client.connect import Options, connect
from bucketq.client.loop_thread import LoopThread
from bucketq.clock import SystemClock
from bucketq.errors import ClosedError, InvalidRequestError
from bucketq.model import check
from bucketq.model.queue_stats import Stats
from bucketq.model.records import Backoff
from bucketq.queue.arguments import seconds
from bucketq.queue.queue import Queue
from bucketq.worker.announcing import WorkerProcess
from bucketq.worker.counters import WorkerCounters
from bucketq.worker.declared_schedules import ScheduleDeclarations, declare
from bucketq.worker.drain import Drain, close_in_time
from bucketq.worker.engine import Engine
from bucketq.worker.forced_exit import ForcedExit
from bucketq.worker.handler_queue import HandlerQueue, open_for_handlers
from bucketq.worker.handlers import Handler, Handlers, Place, StateValue, bind, check_place
from bucketq.worker.lifespan import Hook, Lifespan
from bucketq.worker.middleware import Middleware, check_middleware
from bucketq.worker.runners.caller_loop import CallerLoopRunner, run_on
from bucketq.worker.runners.runner import Runner, Runners
from bucketq.worker.runners.threads import ThreadRunner, stop_in_thread
from bucketq.worker.signals import stopped_by_signals
from bucketq.worker.typed_push import OpenQueues, Registers, add_pushes

HookT = TypeVar("HookT", bound=Hook)
MiddlewareT = TypeVar("MiddlewareT", bound=Middleware)

_log = logging.getLogger("bucketq.worker")

_ADDRESS_VARIABLE = "BUCKETQ_URL"
_HIGHEST_CONCURRENCY = 10_000
"""Far more threads than a host should run."""


class Worker(ScheduleDeclarations):
    """Handlers, and the queue whose jobs they run."""

    def __init__(
        self,
        url: str | None = None,
        *,
        concurrency: int = 10,
        drain_s: float | timedelta = 30.0,
        **options: Unpack[Options],
    ) -> None:
        """Create a worker without handlers; nothing is opened yet.

        Args:
            url: The address of the queue, as for ``connect``; BUCKETQ_URL if omitted.
            concurrency: How many handlers run at once.
            drain_s: The time limit for a graceful shutdown, in seconds. Shortly before it ends,
                handlers that still run are stopped, and their jobs are released.
            **options: Those of ``connect``; ``worker`` is the name under which jobs are claimed.
        """
        self.url: str | None = None
        self.concurrency = 0
        self.drain_s = 0.0
        self._options: Options = {}
        self._handlers = Handlers()
        self.lifespan = Lifespan()
        """What runs before, after and around the handlers."""
        self.open_queues = OpenQueues()
        """Where ``push`` of a handler goes."""
        self._engine: Engine | None = None
        self._handler_queue: HandlerQueue | None = None
        self._loop_thread: LoopThread | None = None
        self._serving: asyncio.Task[Any] | None = None
        self._forced_exit: ForcedExit | None = None
        self._is_stopped = False
        self.configure(url, concurrency=concurrency, drain_s=drain_s, **options)

    def configure(
        self,
        url: str | None = None,
        *,
        concurrency: int | None = None,
        drain_s: float | timedelta | None = None,
        **options: Unpack[Options],
    ) -> None:
        """Change arguments of the constructor, for the next run; the others stay as they are."""
        if concurrency is not None:
            check.whole_number(concurrency, "concurrency", 1, _HIGHEST_CONCURRENCY)
            self.concurrency = concurrency
        if drain_s is not None:
            self.drain_s = seconds(drain_s, "drain_s")
        self.url = url or self.url
        self._options |= options

    @property
    def handlers(self) -> Mapping[str, Handler]:
        """The handlers, by kind."""
        return self._handlers

    @property
    def options(self) -> Options:
        """The options of ``connect`` that it was created with."""
        return self._options.copy()

    @property
    def slots(self) -> int:
        """How many handlers run at once."""
        return self.concurrency

    @property
    def name(self) -> str:
        """The name under which it claims jobs: the option ``worker``, or host and process id."""
        return self._options.get("worker") or f"{socket.gethostname()}:{os.getpid()}"

    @property
    def is_ready(self) -> bool:
        """Whether it has opened its queue, in this run."""
        return self._engine is not None and self._engine.has_begun

    @property
    def counters(self) -> WorkerCounters:
        """What it has done so far, in this run."""
        return WorkerCounters() if self._engine is None else self._engine.counters

    def handler(
        self,
        kind: str,
        *,
        timeout_s: float | timedelta | None = None,
        max_attempts: int | None = None,
        backoff: Backoff | None = None,
        run_in: Place | None = None,
        priority: int = 0,
        unique: Callable[[Any], str] | None = None,
    ) -> Registers:
        """Register a function for jobs of a kind: ``@worker.handler("email", timeout_s=30)``.

        The payload is decoded into the annotated type; parameters annotated with ``Job`` or
        ``Context`` receive these. The return value becomes the job's result. Once the queue is
        open (``connect``), ``await send.push(email)`` pushes a job for the function ``send``.

        Args:
            kind: The kind of job.
            timeout_s: How long an attempt may take, in seconds, before it fails.
            max_attempts: How often a job may fail or lose its worker before it is dead, if the
                job has no limit of its own.
            backoff: How long a failed job waits, if the job has no backoff of its own.
            run_in: ``loop`` is the event loop, the default for async functions; ``thread`` is the
                default for others; ``process`` is a separate process, for CPU-bound work.
            priority: That of jobs that are pushed by ``send.push``, unless it is given there.
            unique: Returns their unique name for a payload, unless it is given there.
        """
        if callable(kind):
            raise InvalidRequestError('a handler needs a kind: write @worker.handler("kind")')
        check.whole_number(priority, "priority", -check.MAX_PRIORITY, check.MAX_PRIORITY)

        def register(function: Callable[..., Any]) -> Any:
            handler = bind(
                kind,
                function,
                timeout_s=timeout_s,
                max_attempts=max_attempts,
                backoff=backoff,
                run_in=run_in,
            )
            self._handlers.add(handler)
            add_pushes(handler, priority, unique, self.open_queues)
            return function

        return register

    def connect(self) -> AbstractAsyncContextManager[Queue[Any]]:
        """Open the queue of the worker, to push: ``async with worker.connect(): ...``."""
        return self.open_queues.connect(self._address(), self._options)

    def connect_sync(self) -> AbstractContextManager[BlockingQueue[Any]]:
        """Do what ``connect`` does, for code without asyncio."""
        return self.open_queues.connect_sync(self._address(), self._options)

    def on_start(self, function: HookT) -> HookT:
        """Register a function to call before the first job, on the event loop of ``run``.

        It may be async, and may take the state, a dictionary, to put in what handlers share::

            @worker.on_start
            async def open_pool(state: dict[str, Any]) -> None:
                state["db"] = await create_pool()

        If it raises, the worker ends with that error, and claims no job.
        """
        self.lifespan.on_start.append(function)
        return function

    def on_stop(self, function: HookT) -> HookT:
        """Register a function to call after the last job, like ``on_start``; the last one first.

        It is called once all functions of ``on_start`` have succeeded, however the run ends.
        """
        self.lifespan.on_stop.append(function)
        return function

    def state(self, name: str) -> Any:
        """Return the default of a parameter that receives ``state[name]`` of ``on_start``.

        ::

            @worker.handler("email")
            async def send(email: Email, db: Pool = worker.state("db")) -> None: ...
        """
        return StateValue(name)

    def middleware(self, function: MiddlewareT) -> MiddlewareT:
        """Register a generator function to run around every handler; the first is outermost.

        ::

            @worker.middleware
            def timed(context: Context) -> Iterator[None]:
                began = time.perf_counter()
                try:
                    yield  # The handler runs here.
                finally:
                    print(context.job.kind, time.perf_counter() - began)

        What the handler raises is raised at the ``yield``; if it is not raised again, the job is
        done, without a result. An async generator can be around async handlers only.
        """
        check_middleware(function)
        self.lifespan.middleware.append(function)
        return function

    async def run(self, *, burst: bool = False, kinds: Iterable[str] | None = None) -> None:
        """Run jobs until ``stop`` is called, or with ``burst`` until no job is available.

        Cancelling it stops all handlers and releases their jobs.
        """
        state = dict[str, Any]()
        handlers = self._wanted(kinds, state)
        if self._loop_thread is not None:
            raise InvalidRequestError("this worker is already running")
        caller = asyncio.get_running_loop()
        self._engine = None
        self._is_stopped = False
        self._loop_thread = loop_thread = LoopThread()
        serving = self._serve(caller, handlers, state, burst=burst)
        running = asyncio.run_coroutine_threadsafe(serving, loop_thread.loop)
        over = asyncio.wrap_future(running)
        try:
            await asyncio.shield(over)
        except asyncio.CancelledError:
            self.stop(hurry=True)
            await asyncio.wait([over])
            raise
        finally:
            self._loop_thread = None
            await stop_in_thread(loop_thread)

    def run_sync(self, *, burst: bool = False, kinds: Iterable[str] | None = None) -> None:
        """Run jobs from code without asyncio, until Ctrl-C or SIGTERM, or until ``stop``.

        The first signal lets handlers finish, a second stops them, a third kills the process. The
        process also exits at the end of the drain time if a handler blocks the event loop. Only the
        main thread receives signals: in another thread it runs until ``stop``.
        """
        forced_exit = ForcedExit()

        async def main() -> None:
            with self.stopped_by_signals(forced_exit):
                await self.run(burst=burst, kinds=kinds)

        try:
            asyncio.run(main())
        finally:
            forced_exit.call_off()

    def stop(self, *, hurry: bool = False) -> None:
        """Claim no more jobs, and end when all handlers have ended; with ``hurry``, stop them.

        It may be called from any thread, and from a signal handler.
        """
        self._request_stop(hurry=hurry)

    def _request_stop(self, *, hurry: bool, forced_exit: ForcedExit | None = None) -> None:
        loop_thread = self._loop_thread
        if loop_thread is not None:
            stop = partial(self._stop_serving, hurry=hurry, forced_exit=forced_exit)
            loop_thread.loop.call_soon_threadsafe(stop)

    async def stats(self) -> Stats:
        """Count the jobs of its queue, without changing it."""
        loop_thread, engine = self._loop_thread, self._engine
        if loop_thread is None or engine is None or not engine.is_running:
            raise ClosedError("the worker is not running, so it has no open queue")
        looking = asyncio.run_coroutine_threadsafe(engine.stats(), loop_thread.loop)
        return await asyncio.wrap_future(looking)

    @contextmanager
    def stopped_by_signals(self, forced_exit: ForcedExit | None = None) -> Iterator[None]:
        """Let Ctrl-C and SIGTERM stop it; the second one hurries, the third kills the process.

        With ``forced_exit`` the process exits within the drain time, whatever else runs in it.
        """
        if forced_exit is not None:
            forced_exit.loop = asyncio.get_running_loop()
        self._forced_exit = forced_exit
        with stopped_by_signals(partial(self._request_stop, forced_exit=forced_exit)):
            yield

    def _wanted(self, kinds: Iterable[str] | None, state: dict[str, Any]) -> dict[str, Handler]:
        """The handlers of the selected kinds, with what belongs to them in this run."""
        if not self._handlers:
            raise InvalidRequestError(
                'the worker has no handlers: add one with @worker.handler("kind")'
            )
        url = self.url or os.environ.get(_ADDRESS_VARIABLE)
        chosen = self.lifespan.attach(self._handlers.select(kinds), state, url)
        for handler in chosen.values():
            check_place(handler)
        return chosen

    async def _serve(
        self,
        caller: asyncio.AbstractEventLoop,
        handlers: dict[str, Handler],
        state: dict[str, Any],
        *,
        burst: bool,
    ) -> None:
        """Start, run jobs on the thread's loop until stopped, and stop."""
        if self._is_stopped:
            return
        self._serving = asyncio.current_task()
        self._address()  # Raises if there is none.
        runner: Runner | None = None
        try:
            runner = await self._make_runner(caller, handlers)
            await run_on(caller, self.lifespan.start(handlers, state))
            try:
                await self._work(caller, handlers, runner, burst=burst)
            finally:
                await run_on(caller, self.lifespan.stop(state))
        except asyncio.CancelledError:
            return  # It was stopped before the queue was open.
        finally:
            if runner is not None:
                await runner.close()
            self._serving = None

    def _address(self) -> str:
        if url := self.url or os.environ.get(_ADDRESS_VARIABLE):
            return url
        message = f"the worker has no queue: give Worker its address, or set {_ADDRESS_VARIABLE}"
        raise InvalidRequestError(message)

    async def _work(
        self,
        caller: asyncio.AbstractEventLoop,
        handlers: dict[str, Handler],
        runner: Runner,
        *,
        burst: bool,
    ) -> None:
        """Open the queue, run jobs until stopped, and close it."""
        url = self._address()
        options: Options = {"fires_schedules": True, **self._options}
        connection = connect(url, **options)
        queue = await connection.__aenter__()
        try:
            await declare(queue, self.schedules)
            if (thread := self._loop_thread) is not None:
                there = partial(run_on, caller)
                self._handler_queue = await open_for_handlers(queue, thread, there)
            self._engine = self._make_engine(queue, handlers, runner, burst=burst)
            self._engine.counters.on_end = self.lifespan.on_end
            _log.info("working on %s: %s", url, ", ".join(handlers))
            with self.open_queues.opened(queue, asyncio.get_running_loop()):
                await self._engine.run()
        finally:
            await close_in_time(connection, None if self._engine is None else self._engine.drain)

    async def _make_runner(
        self, caller: asyncio.AbstractEventLoop, handlers: Mapping[str, Handler]
    ) -> Runner:
        """Create the runner of the handlers."""
        runners: dict[Place, Runner] = {"loop": CallerLoopRunner(caller), "thread": ThreadRunner()}
        if any(handler.place == "process" for handler in handlers.values()):
            from bucketq.worker.runners.processes import ProcessRunner  # noqa: PLC0415 - few need it

            runners["process"] = ProcessRunner(handlers)
        return Runners(runners)

    def _make_engine(
        self, queue: Queue[Any], handlers: Mapping[str, Handler], runner: Runner, *, burst: bool
    ) -> Engine:
        """Create the engine, once the queue is open."""
        return Engine(
            queue,
            handlers,
            runner,
            SystemClock(),
            name=self.name,
            concurrency=self.slots,
            burst=burst,
            drain_s=self.drain_s,
            known=self._handlers,
            access=self._handler_queue,
            process=WorkerProcess.here(),
            on_drain=partial(self._stop_serving, hurry=False, forced_exit=self._forced_exit),
        )

    def _stop_serving(self, *, hurry: bool, forced_exit: ForcedExit | None) -> None:
        """Stop, on the thread's loop."""
        if self._is_stopped and not hurry:
            return  # It is stopping already.
        self._is_stopped = True
        if forced_exit is not None:
            now_s = asyncio.get_running_loop().time()
            drain = Drain(self.drain_s) if self._engine is None else self._engine.drain
            (drain.hurry if hurry else drain.begin)(now_s)
            forced_exit.within(drain.left_s(now_s))
        if self._engine is not None and self._engine.is_running:
            self._engine.stop(hurry=hurry)
        elif self._serving is not None and (hurry or not self.is_ready):
            self._serving.cancel()  # Otherwise the engine has ended, and the queue is being closed.
