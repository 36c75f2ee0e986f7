"""Real worker engines in a simulated cluster, and their handlers.

The kind of a job decides how its handler behaves: it is quick, takes longer than a lease, fails,
asks for a retry, gives up, has a wrong payload, times out, ignores a request to stop, or kills its
process. An engine runs for a while, or until jobs wait in it, or until its process is stopped. It
is drained, sometimes with hurry, and then the next one starts.
"""

from __future__ import annotations

import asyncio
import random  # noqa: TID251  # for the type: streams come from the loop, and so from the seed
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from bucketq.clock import Clock
from bucketq.errors import BucketQError
from bucketq.worker.context import Context
from bucketq.worker.engine import Engine
from bucketq.worker.handler_exceptions import GiveUp, Retry
from bucketq.worker.handlers import Handler, Handlers, bind
from bucketq.worker.runners.runner import TaskRunner
from simulator.actors.queue_actors import KINDS
from simulator.worker_log import EngineRun, HandlerRun, RecordingEngineQueue, WorkerLog

CRASHERS = {"crasher": None, "crasher-once": 1, "crasher-twice": 2}
"""Kinds whose handlers kill their process, and the ``max_attempts`` of each handler."""
NEVER_COMPLETED = ("poison", "hopeless", "unfit", *CRASHERS)
"""Kinds that are never completed."""
NEVER_FAILING = ("quick", "slow", "stubborn", "deaf")
"""Kinds whose handlers never fail."""
BEHAVIOURS = (*NEVER_FAILING, "flaky", "again", "tardy", "poison", "hopeless", "unfit")
"""The kinds that only engines work on, without crashers."""
LIMITS: dict[str, int] = {kind: limit for kind, limit in CRASHERS.items() if limit is not None}
"""The ``max_attempts`` of handlers that set one."""
_DRAINED_S = 20.0  # Some heartbeats; a partition may keep the request away for longer.
_TARDY_S = 2.0  # The timeout of "tardy" handlers; half of them are slower.


@dataclass
class EngineSetup:
    """What engines of one process are made of."""

    name: str
    process: str
    queue: Any
    clock: Clock
    rng: random.Random
    worker_log: WorkerLog
    lease_s: float
    stopped: asyncio.Event
    """Set when the process is asked to stop."""
    faults_ended: Callable[[], bool]
    """Whether the faults are over; from then on handlers are quick and reliable."""
    crash: Callable[[], bool]
    """Kills the process; returns False if it may not be killed now."""


async def run_engines(setup: EngineSetup) -> None:
    """Run one engine after another until the process is asked to stop."""
    number = 0
    while not setup.stopped.is_set():
        number += 1
        await _run_engine(setup, f"{setup.name}.{number}")
        await _first_of([setup.stopped.wait(), asyncio.sleep(setup.rng.uniform(0, 1))])


async def _run_engine(setup: EngineSetup, name: str) -> None:
    loop, rng, faults_ended = asyncio.get_running_loop(), setup.rng, setup.faults_ended()
    concurrency = rng.choice((1, 1, 2, 4, 8))
    # An engine that knows some kinds only must end, or jobs of other kinds would wait for ever.
    kinds = rng.choice((None, None, ("quick",), tuple(rng.sample(BEHAVIOURS, 4)), KINDS))
    ends, longest_s = rng.choice(("late", "soon", "backlog", "drained")), rng.uniform(3, 40)
    drain_s = rng.choice((2.0, 10.0, 30.0))
    if faults_ended:
        kinds, ends = None, "never"
    all_kinds = (*KINDS, *BEHAVIOURS, *CRASHERS)
    engine_run = setup.worker_log.begin_engine(name, setup.process, kinds or all_kinds, concurrency)
    engine_run.is_burst = not faults_ended and rng.random() < 0.2
    full = asyncio.Event()
    watch = _RecordedHandlers(setup, engine_run, full)
    queue = RecordingEngineQueue(setup.worker_log.history, name, setup.queue)

    def stop() -> None:
        engine_run.stopped_s = loop.time()
        engine.stop()

    engine = Engine(
        queue,  # type: ignore[arg-type]  # only what an engine uses
        watch.handlers(),
        TaskRunner(),
        setup.clock,
        name=name,
        concurrency=concurrency,
        burst=engine_run.is_burst,
        drain_s=drain_s,
        on_drain=stop,
    )
    if ends == "backlog":
        watch.waiting = lambda: engine.counters.waiting
    running = loop.create_task(engine.run())
    patience_s = 1e9 if ends == "never" else longest_s if ends != "soon" else longest_s / 8
    await _first_of(
        [asyncio.wait([running]), setup.stopped.wait(), full.wait(), asyncio.sleep(patience_s)]
    )
    if ends == "drained":
        await _ask_to_finish(queue, running, setup.stopped)
    stopped_s = engine_run.stopped_s
    if stopped_s is None:
        stopped_s = loop.time()
        stop()
    if rng.random() < 0.4:
        await asyncio.wait([running], timeout=rng.choice((0.0, rng.uniform(0, 6))))
        if not running.done():
            engine_run.hurried_s = loop.time()
            engine.stop(hurry=True)
    await running
    engine_run.ended_s = loop.time()
    hurry_at = stopped_s + engine.drain.handlers_s
    if engine_run.hurried_s is None and engine_run.ended_s >= hurry_at:
        engine_run.hurried_s = hurry_at


async def _ask_to_finish(
    queue: RecordingEngineQueue, running: asyncio.Task[None], stopped: asyncio.Event
) -> None:
    """Drain an engine, and give it some time to end by itself."""
    try:
        await queue.drain()
    except BucketQError:
        return
    await _first_of([asyncio.wait([running]), stopped.wait(), asyncio.sleep(_DRAINED_S)])


async def _first_of(waits: list[Any]) -> None:
    """Wait for the first of several, and cancel the others."""
    loop = asyncio.get_running_loop()
    tasks = [loop.create_task(wait) for wait in waits]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()


Behaviour = Callable[[HandlerRun, Context], Awaitable[Any]]


class _RecordedHandlers:
    """The handlers of one engine; each run is recorded."""

    def __init__(self, setup: EngineSetup, engine_run: EngineRun, full: asyncio.Event) -> None:
        self._setup = setup
        self._shift = engine_run
        self._full = full
        self.waiting: Callable[[], int] = lambda: 0
        """Returns how many jobs wait in the engine; the engine is stopped when there are some."""

    def handlers(self) -> Handlers:
        """Return a handler for each kind of the engine."""
        handlers = Handlers()
        for kind in self._shift.kinds:
            handlers.add(self._handler(kind))
        return handlers

    def _handler(self, kind: str) -> Handler:
        behaviours: dict[str, Behaviour] = {
            "slow": self._slow,
            "stubborn": self._stubborn,
            "deaf": self._deaf,
            "flaky": self._flaky,
            "again": self._again,
            "tardy": self._tardy,
            "poison": self._poison,
            "hopeless": self._hopeless,
            **dict.fromkeys(CRASHERS, self._crash),
        }
        behaviour = behaviours.get(kind, self._quick)

        async def handle(payload: str, context: Context) -> Any:
            del payload
            return await self._watched(behaviour, context)

        async def handle_number(payload: int, context: Context) -> Any:
            del payload
            return await self._watched(behaviour, context)

        return bind(
            kind,
            handle_number if kind == "unfit" else handle,
            timeout_s=_TARDY_S if kind == "tardy" else None,
            max_attempts=LIMITS.get(kind),
        )

    async def _watched(self, behaviour: Behaviour, context: Context) -> Any:
        worker_log, engine_run = self._setup.worker_log, self._shift
        run = worker_log.begin_run(engine_run, context.job)
        if self.waiting():
            self._full.set()
        try:
            result = await behaviour(run, context)
        except asyncio.CancelledError:
            self._note_asked(run)
            worker_log.end_run(engine_run, run, "stopped")
            raise
        except Exception:
            worker_log.end_run(engine_run, run, "raised")
            raise
        worker_log.end_run(engine_run, run, "returned")
        return result

    def _note_asked(self, run: HandlerRun) -> None:
        if run.asked_to_stop_s is None:
            run.asked_to_stop_s = asyncio.get_running_loop().time()

    async def _sleep(self, least_s: float, most_s: float) -> None:
        if self._setup.faults_ended():
            least_s, most_s = min(least_s, 0.5), min(most_s, 1.0)
        await asyncio.sleep(self._setup.rng.uniform(least_s, most_s))

    async def _quick(self, _run: HandlerRun, _context: Context) -> str:
        await self._sleep(0, self._setup.rng.choice((0.0, 0.01, 0.01, 0.5)))
        return "result"

    async def _slow(self, _run: HandlerRun, _context: Context) -> None:
        await self._sleep(1.1 * self._setup.lease_s, 2.0 * self._setup.lease_s)

    async def _stubborn(self, run: HandlerRun, _context: Context) -> None:
        """Finish something first when asked to stop."""
        try:
            await self._sleep(0, 15)
        except asyncio.CancelledError:
            self._note_asked(run)
            await self._sleep(0, 4)
            raise

    async def _deaf(self, run: HandlerRun, _context: Context) -> str:
        """Ignore requests to stop."""
        over = asyncio.Event()
        longest_s = 1.0 if self._setup.faults_ended() else 12.0
        wait_s = self._setup.rng.uniform(0, longest_s)
        asyncio.get_running_loop().call_later(wait_s, over.set)
        while not over.is_set():
            try:
                await over.wait()
            except asyncio.CancelledError:
                self._note_asked(run)
        return "result"

    async def _flaky(self, _run: HandlerRun, context: Context) -> None:
        await self._sleep(0, 1)
        if context.job.failures < 2:
            message = "the first times go wrong"
            raise RuntimeError(message)

    async def _again(self, _run: HandlerRun, context: Context) -> None:
        await self._sleep(0, 1)
        if not context.job.failures:
            message = "not yet"
            raise Retry(message, delay_s=self._setup.rng.choice((0.0, 2.0)))

    async def _tardy(self, _run: HandlerRun, _context: Context) -> None:
        await self._sleep(0, self._setup.rng.choice((0.5 * _TARDY_S, 20 * _TARDY_S)))

    async def _poison(self, _run: HandlerRun, _context: Context) -> None:
        await self._sleep(0, 1)
        message = "it never works"
        raise RuntimeError(message)

    async def _hopeless(self, _run: HandlerRun, _context: Context) -> None:
        await self._sleep(0, 1)
        message = "it never will"
        raise GiveUp(message)

    async def _crash(self, _run: HandlerRun, _context: Context) -> None:
        await self._sleep(0, 1)
        if self._setup.crash():
            await asyncio.Event().wait()
        message = "it may not kill its process any more"
        raise RuntimeError(message)
