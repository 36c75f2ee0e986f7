"""``Worker``: what users of job queues write their handlers for.

::

    worker = bucketq.Worker("s3://bucket/jobs/queue.json", concurrency=20)


    @worker.handler("email", timeout=30)
    async def send(email: Email) -> None: ...


    worker.run_sync()  # or: await worker.run(), or: bucketq work module:worker

The queue is spoken to on a loop in a thread of its own, so a handler that blocks its own loop costs
nobody a lease.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from functools import partial
from typing import Any, Unpack

from bucketq.client.connect import Connection, Options, connect
from bucketq.client.portal import Portal
from bucketq.clock import SystemClock
from bucketq.errors import ClosedError, InvalidRequestError
from bucketq.model import check
from bucketq.model.job import Backoff
from bucketq.model.operations import Stats
from bucketq.queue.base import Queue
from bucketq.worker.caller_loop import CallerLoopRunner
from bucketq.worker.counters import WorkerCounters
from bucketq.worker.drain import Drain
from bucketq.worker.engine import Engine
from bucketq.worker.forced_exit import ForcedExit
from bucketq.worker.handlers import Function, Handler, Handlers, Place, bind, check_reachable
from bucketq.worker.runner import Runner, Runners
from bucketq.worker.signals import watched
from bucketq.worker.threads import ThreadRunner

_log = logging.getLogger("bucketq.worker")

_ADDRESS_VARIABLE = "BUCKETQ_URL"
_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_ECHO_S = 0.25
"""For so long after a SIGTERM another one is taken for its echo."""
_MEANINGS = (
    "no more jobs are claimed, and handlers may finish; once more stops them",
    "handlers are told to stop, and their jobs are given back; once more ends the process",
)
_HIGHEST_CONCURRENCY = 10_000


class Worker:
    """Handlers, and the queue whose jobs they are for."""

    def __init__(
        self,
        url: str | None = None,
        *,
        concurrency: int = 10,
        drain: float | timedelta = 30.0,
        **options: Unpack[Options],
    ) -> None:
        """Make a worker without handlers; nothing is opened yet.

        Args:
            url: The address of the queue, as for ``connect``; left out, BUCKETQ_URL when it runs.
            concurrency: How many handlers run at once.
            drain: How long the worker may take to end when it is stopped, in seconds. Shortly
                before that, handlers that still run are told to stop, and their jobs are given
                back.
            **options: Those of ``connect``; ``worker`` is the name under which jobs are claimed.
        """
        self.url: str | None = None
        self.concurrency = 0
        self.drain_s = 0.0
        self._options: Options = {}
        self._handlers = Handlers()
        self._engine: Engine | None = None
        self._portal: Portal | None = None
        self._serving: asyncio.Task[Any] | None = None
        self._is_stopped = False
        self.configure(url, concurrency=concurrency, drain=drain, **options)

    def configure(
        self,
        url: str | None = None,
        *,
        concurrency: int | None = None,
        drain: float | timedelta | None = None,
        **options: Unpack[Options],
    ) -> None:
        """Change what it was made with, for its next run; what is left out stays as it is."""
        if concurrency is not None:
            check.whole_number(concurrency, "concurrency", 1, _HIGHEST_CONCURRENCY)
            self.concurrency = concurrency
        if drain is not None:
            drain_s = drain.total_seconds() if isinstance(drain, timedelta) else drain
            check.delay(drain_s, "drain")
            self.drain_s = drain_s
        self.url = url or self.url
        self._options |= options

    @property
    def handlers(self) -> Mapping[str, Handler]:
        """The handlers, by kind."""
        return self._handlers

    @property
    def options(self) -> Options:
        """Those of ``connect`` that it was made with."""
        return self._options.copy()

    @property
    def slots(self) -> int:
        """How many handlers run at once."""
        return self.concurrency

    @property
    def name(self) -> str:
        """The name under which it claims jobs: that of the option ``worker``, or this process."""
        return self._options.get("worker") or f"{socket.gethostname()}:{os.getpid()}"

    @property
    def is_ready(self) -> bool:
        """Whether it has found its queue, in this run."""
        return self._engine is not None and self._engine.has_begun

    @property
    def counters(self) -> WorkerCounters:
        """What it has done so far, in this run."""
        return WorkerCounters() if self._engine is None else self._engine.counters

    def handler(
        self,
        kind: str,
        *,
        timeout: float | timedelta | None = None,
        max_attempts: int | None = None,
        backoff: Backoff | None = None,
        run_in: Place | None = None,
    ) -> Callable[[Function], Function]:
        """Let a function work on jobs of a kind: ``@worker.handler("email", timeout=30)``.

        The function takes the payload, read as its annotated type, and where it asks for them by
        annotation the ``Job`` and a ``Context``. What it returns is the job's result.

        Args:
            kind: The kind of job.
            timeout: How long an attempt may take, in seconds; then it has failed.
            max_attempts: How often a job may fail or be lost before it is dead, where the job
                does not say itself.
            backoff: How long a failed job waits, where the job does not say itself.
            run_in: ``loop``: the event loop, the default for async functions; ``thread``: the
                default for others; ``process``: a process of its own, for work that needs a core.
        """
        if callable(kind):
            message = 'a handler needs the kind of job it is for: write @worker.handler("kind")'
            raise InvalidRequestError(message)

        def register(function: Function) -> Function:
            self._handlers.add(
                bind(
                    kind,
                    function,
                    timeout=timeout,
                    max_attempts=max_attempts,
                    backoff=backoff,
                    run_in=run_in,
                )
            )
            return function

        return register

    async def run(self, *, burst: bool = False, kinds: Iterable[str] | None = None) -> None:
        """Work until ``stop`` is called, or in a ``burst`` until there is nothing to do.

        Cancelling it tells all handlers to stop and gives their jobs back.
        """
        handlers = self._wanted(kinds)
        if self._portal is not None:
            message = "this worker is running already"
            raise InvalidRequestError(message)
        home = asyncio.get_running_loop()
        self._engine = None
        self._is_stopped = False
        self._portal = portal = Portal()
        serving = self._serve(home, handlers, burst=burst)
        running = asyncio.run_coroutine_threadsafe(serving, portal.loop)
        over = asyncio.wrap_future(running)
        try:
            await asyncio.shield(over)
        except asyncio.CancelledError:
            self.stop(hurry=True)
            await asyncio.wait([over])
            raise
        finally:
            self._portal = None
            await _stop(portal)

    def run_sync(self, *, burst: bool = False, kinds: Iterable[str] | None = None) -> None:
        """Work without asyncio, in the main thread, until Ctrl-C or SIGTERM.

        The first lets handlers finish, a second tells them to stop, a third ends the process. So
        does the end of the drain time if a handler blocks the event loop until then.
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
        """Claim no more and end when all handlers have; with ``hurry``, tell them to stop.

        It may be called from any thread, and from a signal handler.
        """
        self._tell_to_stop(hurry=hurry)

    def _tell_to_stop(self, *, hurry: bool, forced_exit: ForcedExit | None = None) -> None:
        portal = self._portal
        if portal is not None:
            stop = partial(self._stop_serving, hurry=hurry, forced_exit=forced_exit)
            portal.loop.call_soon_threadsafe(stop)

    async def stats(self) -> Stats:
        """Count the jobs of the queue that it works on; it writes nothing."""
        portal, engine = self._portal, self._engine
        if portal is None or engine is None or not engine.is_running:
            message = "the worker is not running, so it has no queue to look at"
            raise ClosedError(message)
        looking = asyncio.run_coroutine_threadsafe(engine.stats(), portal.loop)
        return await asyncio.wrap_future(looking)

    @contextmanager
    def stopped_by_signals(self, forced_exit: ForcedExit | None = None) -> Iterator[None]:
        """Let Ctrl-C and SIGTERM stop it; the second one hurries, the third ends the process.

        With ``forced_exit`` the process ends within the drain time, whatever else goes on in it.

        Not through the event loop: a handler may be blocking that. A signal that this process
        was started to ignore, as shells do for Ctrl-C behind ``&``, stays ignored. A SIGTERM
        right after another is the same one: ``timeout`` sends it to a process and to its group.
        """
        if forced_exit is not None:
            forced_exit.loop = asyncio.get_running_loop()
        found = {number: signal.getsignal(number) for number in _SIGNALS}
        before = {number: how for number, how in found.items() if how is not signal.SIG_IGN}
        told, echo_until_s = 0, 0.0

        def tell(number: int, _frame: object) -> None:
            nonlocal told, echo_until_s
            if number == signal.SIGTERM:
                now_s = _loop_time_s()
                if now_s is not None and now_s < echo_until_s:
                    return
                echo_until_s = (now_s or 0.0) + _ECHO_S
            told += 1
            if told > 1:
                # What was there before may only ask the event loop to end, which may be blocked.
                _restore(dict.fromkeys(before, signal.SIG_DFL))
            _log.info(
                "%s: %s", signal.Signals(number).name, _MEANINGS[min(told, len(_MEANINGS)) - 1]
            )
            self._tell_to_stop(hurry=told > 1, forced_exit=forced_exit)

        # It is stopped by any of them, also if the main thread never gets to handle it.
        stop = partial(self._tell_to_stop, hurry=False, forced_exit=forced_exit)
        for number in before:
            signal.signal(number, tell)
        try:
            with watched(before, stop):
                yield
        finally:
            _restore(before)

    def _wanted(self, kinds: Iterable[str] | None) -> dict[str, Handler]:
        """The handlers of the kinds that are to be worked on."""
        if not self._handlers:
            message = 'the worker has no handlers: add one with @worker.handler("kind")'
            raise InvalidRequestError(message)
        wanted = list(self._handlers) if kinds is None else list(kinds)
        for kind in wanted:
            if kind not in self._handlers:
                known = ", ".join(self._handlers)
                message = f"the worker has no handler for kind {kind!r}; it has some for {known}"
                raise InvalidRequestError(message)
        if not wanted:
            message = "kinds is empty: name at least one, or leave it out for all"
            raise InvalidRequestError(message)
        chosen = {kind: self._handlers[kind] for kind in wanted}
        for handler in chosen.values():
            if handler.place == "process":
                check_reachable(handler)
        return chosen

    async def _serve(
        self, home: asyncio.AbstractEventLoop, handlers: dict[str, Handler], *, burst: bool
    ) -> None:
        """Open the queue and work, on the portal's loop, until it is told to stop."""
        if self._is_stopped:
            return
        self._serving = asyncio.current_task()
        url = self.url or os.environ.get(_ADDRESS_VARIABLE)
        if not url:
            message = (
                f"the worker has no queue: pass its address to Worker, or set {_ADDRESS_VARIABLE}"
            )
            raise InvalidRequestError(message)
        runner: Runner | None = None
        try:
            runner = await self._make_runner(home, handlers)
            connection = connect(url, **self._options)
            queue = await connection.__aenter__()
            try:
                self._engine = self._make_engine(queue, handlers, runner, burst=burst)
                _log.info("working on %s: %s", url, ", ".join(handlers))
                await self._engine.run()
            finally:
                await self._hang_up(connection)
        except asyncio.CancelledError:
            return  # It was stopped while it was still looking for the queue.
        finally:
            if runner is not None:
                await runner.close()
            self._serving = None

    async def _hang_up(self, connection: Connection[Any]) -> None:
        """Close the queue, for as long as the drain allows."""
        loop = asyncio.get_running_loop()
        closing = loop.create_task(connection.__aexit__(None, None, None))
        left_s = None if self._engine is None else self._engine.drain.close_left_s(loop.time())
        await asyncio.wait([closing], timeout=left_s)
        if closing.done():
            closing.result()
        else:
            _log.warning("the queue did not close in time: requests without an answer are left")
            closing.cancel()

    async def _make_runner(
        self, home: asyncio.AbstractEventLoop, handlers: Mapping[str, Handler]
    ) -> Runner:
        """How its handlers are run."""
        return Runners(_runners(home, handlers))

    def _make_engine(
        self, queue: Queue[Any], handlers: Mapping[str, Handler], runner: Runner, *, burst: bool
    ) -> Engine:
        """What does the work, once there is a queue."""
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
        )

    def _stop_serving(self, *, hurry: bool, forced_exit: ForcedExit | None) -> None:
        """Stop, on the portal's loop."""
        if self._is_stopped and not hurry:
            return  # Nothing that goes on since then is to be disturbed.
        self._is_stopped = True
        if forced_exit is not None:
            now_s = asyncio.get_running_loop().time()
            drain = Drain(self.drain_s) if self._engine is None else self._engine.drain
            (drain.hurry if hurry else drain.begin)(now_s)
            forced_exit.within(drain.left_s(now_s))
        if self._engine is not None and self._engine.is_running:
            self._engine.stop(hurry=hurry)
        elif self._serving is not None and (hurry or not self.is_ready):
            self._serving.cancel()  # Otherwise it has ended, and closes the queue.


def _runners(
    home: asyncio.AbstractEventLoop, handlers: Mapping[str, Handler]
) -> dict[Place, Runner]:
    runners: dict[Place, Runner] = {"loop": CallerLoopRunner(home), "thread": ThreadRunner()}
    if any(handler.place == "process" for handler in handlers.values()):
        from bucketq.worker.processes import ProcessRunner  # noqa: PLC0415 - few need it

        runners["process"] = ProcessRunner(handlers)
    return runners


async def _stop(portal: Portal) -> None:
    """Stop a portal, in a thread of its own: handlers may keep all those of the loop busy."""
    threads = ThreadRunner()
    try:
        await threads.call(portal.stop)
    finally:
        await threads.close()


def _loop_time_s() -> float | None:
    """The time of the loop that a signal has come upon, if there is one."""
    try:
        return asyncio.get_running_loop().time()
    except RuntimeError:
        return None


def _restore(handlers: dict[signal.Signals, Any]) -> None:
    for number, handler in handlers.items():
        signal.signal(number, handler)
