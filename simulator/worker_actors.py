"""Workers of the real sort in a simulated world: engines that work in shifts, and their handlers.

What becomes of a job is the fate of its kind: some are quick, some outlast a lease, some fail, want
another try or give up, do not fit, take too long, do not listen when they are told to stop, or take
their whole process with them. A shift ends after a while, or when jobs wait in the engine, or with
its process; it is drained, and now and then hurried; and then the next one begins.
"""

from __future__ import annotations

import asyncio
import random  # noqa: TID251  # for the type: streams come from the loop, and so from the seed
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from bucketq.clock import Clock
from bucketq.worker.context import Context
from bucketq.worker.engine import Engine
from bucketq.worker.handler_exceptions import GiveUp, Retry
from bucketq.worker.handlers import Handler, Handlers, bind
from bucketq.worker.runner import TaskRunner
from simulator.actors import KINDS
from simulator.worker_history import Logbook, Run, Shift, WatchedQueue

CRASHERS = {"crasher": None, "crasher-once": 1, "crasher-twice": 2}
"""Kinds whose handlers kill their process, each with the attempts that its handler allows."""
DOOMED = ("poison", "hopeless", "unfit", *CRASHERS)
"""Kinds that are never completed."""
GENTLE = ("quick", "slow", "stubborn", "deaf")
"""Kinds whose handlers never fail."""
FATES = (*GENTLE, "flaky", "again", "tardy", "poison", "hopeless", "unfit")
"""The kinds that only engines work on, without crashers."""
LIMITS: dict[str, int] = {kind: limit for kind, limit in CRASHERS.items() if limit is not None}
"""How many attempts the handlers of some kinds allow; for the others the queue says."""
_TARDY_S = 2.0


@dataclass
class Post:
    """Where engines work: one place in one process."""

    name: str
    process: str
    queue: Any
    clock: Clock
    rng: random.Random
    book: Logbook
    lease_s: float
    stopped: asyncio.Event
    """Set when the process is to end."""
    is_calm: Callable[[], bool]
    """Tells whether the end has come, in which everybody is quick and reliable."""
    crash: Callable[[], bool]
    """Kills the process, unless that may not be; then it says so."""


async def work_in_shifts(post: Post) -> None:
    """Work until the process is to end."""
    number = 0
    while not post.stopped.is_set():
        number += 1
        await _work_shift(post, f"{post.name}.{number}")
        await _first_of([post.stopped.wait(), asyncio.sleep(post.rng.uniform(0, 1))])


async def _work_shift(post: Post, name: str) -> None:
    loop, rng, is_calm = asyncio.get_running_loop(), post.rng, post.is_calm()
    concurrency = rng.choice((1, 1, 2, 4, 8))
    # Those who know but a part must make room, or the rest would wait for ever.
    kinds = rng.choice((None, None, ("quick",), tuple(rng.sample(FATES, 4)), KINDS))
    ends, longest_s = rng.choice(("late", "soon", "backlog")), rng.uniform(3, 40)
    drain_s = rng.choice((2.0, 10.0, 30.0))
    if is_calm:
        kinds, ends = None, "never"
    all_kinds = (*KINDS, *FATES, *CRASHERS)
    shift = post.book.begin_shift(name, post.process, kinds or all_kinds, concurrency)
    shift.is_burst = not is_calm and rng.random() < 0.2
    full = asyncio.Event()
    watch = _Watch(post, shift, full)
    engine = Engine(
        WatchedQueue(post.book.history, name, post.queue),  # type: ignore[arg-type]  # only what an engine uses
        watch.handlers(),
        TaskRunner(),
        post.clock,
        name=name,
        concurrency=concurrency,
        burst=shift.is_burst,
        drain_s=drain_s,
    )
    if ends == "backlog":
        watch.waiting = lambda: engine.counters.waiting
    running = loop.create_task(engine.run())
    patience_s = 1e9 if ends == "never" else longest_s if ends != "soon" else longest_s / 8
    await _first_of(
        [asyncio.wait([running]), post.stopped.wait(), full.wait(), asyncio.sleep(patience_s)]
    )
    shift.stopped_s = loop.time()
    engine.stop()
    if rng.random() < 0.4:
        await asyncio.wait([running], timeout=rng.choice((0.0, rng.uniform(0, 6))))
        if not running.done():
            shift.hurried_s = loop.time()
            engine.stop(hurry=True)
    await running
    shift.ended_s = loop.time()
    hurry_at = shift.stopped_s + engine.drain.handlers_s
    if shift.hurried_s is None and shift.ended_s >= hurry_at:
        shift.hurried_s = hurry_at


async def _first_of(waits: list[Any]) -> None:
    """Wait for the first of several, and let go of the others."""
    loop = asyncio.get_running_loop()
    tasks = [loop.create_task(wait) for wait in waits]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()


Fate = Callable[[Run, Context], Awaitable[Any]]


class _Watch:
    """The handlers of one shift, each of which writes down what it does."""

    def __init__(self, post: Post, shift: Shift, full: asyncio.Event) -> None:
        self._post = post
        self._shift = shift
        self._full = full
        self.waiting: Callable[[], int] = lambda: 0
        """How many jobs wait in the engine; it is to be told when there are some."""

    def handlers(self) -> Handlers:
        """One for each kind of the shift."""
        handlers = Handlers()
        for kind in self._shift.kinds:
            handlers.add(self._handler(kind))
        return handlers

    def _handler(self, kind: str) -> Handler:
        fates: dict[str, Fate] = {
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
        fate = fates.get(kind, self._quick)

        async def handle(payload: str, context: Context) -> Any:
            del payload
            return await self._watched(fate, context)

        async def handle_number(payload: int, context: Context) -> Any:
            del payload
            return await self._watched(fate, context)

        return bind(
            kind,
            handle_number if kind == "unfit" else handle,
            timeout=_TARDY_S if kind == "tardy" else None,
            max_attempts=LIMITS.get(kind),
        )

    async def _watched(self, fate: Fate, context: Context) -> Any:
        book, shift = self._post.book, self._shift
        run = book.begin_run(shift, context.job)
        if self.waiting():
            self._full.set()
        try:
            result = await fate(run, context)
        except asyncio.CancelledError:
            self._note_told(run)
            book.end_run(shift, run, "stopped")
            raise
        except Exception:
            book.end_run(shift, run, "raised")
            raise
        book.end_run(shift, run, "returned")
        return result

    def _note_told(self, run: Run) -> None:
        if run.told_s is None:
            run.told_s = asyncio.get_running_loop().time()

    async def _sleep(self, least_s: float, most_s: float) -> None:
        if self._post.is_calm():
            least_s, most_s = min(least_s, 0.5), min(most_s, 1.0)
        await asyncio.sleep(self._post.rng.uniform(least_s, most_s))

    async def _quick(self, _run: Run, _context: Context) -> str:
        await self._sleep(0, self._post.rng.choice((0.0, 0.01, 0.01, 0.5)))
        return "result"

    async def _slow(self, _run: Run, _context: Context) -> None:
        await self._sleep(1.1 * self._post.lease_s, 2.0 * self._post.lease_s)

    async def _stubborn(self, run: Run, _context: Context) -> None:
        """Finish something first when it is told to stop."""
        try:
            await self._sleep(0, 15)
        except asyncio.CancelledError:
            self._note_told(run)
            await self._sleep(0, 4)
            raise

    async def _deaf(self, run: Run, _context: Context) -> str:
        """Finish in any case."""
        over = asyncio.Event()
        longest_s = 1.0 if self._post.is_calm() else 12.0
        wait_s = self._post.rng.uniform(0, longest_s)
        asyncio.get_running_loop().call_later(wait_s, over.set)
        while not over.is_set():
            try:
                await over.wait()
            except asyncio.CancelledError:
                self._note_told(run)
        return "result"

    async def _flaky(self, _run: Run, context: Context) -> None:
        await self._sleep(0, 1)
        if context.job.failures < 2:
            message = "the first times go wrong"
            raise RuntimeError(message)

    async def _again(self, _run: Run, context: Context) -> None:
        await self._sleep(0, 1)
        if not context.job.failures:
            message = "not yet"
            raise Retry(message, delay=self._post.rng.choice((0.0, 2.0)))

    async def _tardy(self, _run: Run, _context: Context) -> None:
        await self._sleep(0, self._post.rng.choice((0.5 * _TARDY_S, 20 * _TARDY_S)))

    async def _poison(self, _run: Run, _context: Context) -> None:
        await self._sleep(0, 1)
        message = "it never works"
        raise RuntimeError(message)

    async def _hopeless(self, _run: Run, _context: Context) -> None:
        await self._sleep(0, 1)
        message = "it never will"
        raise GiveUp(message)

    async def _crash(self, _run: Run, _context: Context) -> None:
        await self._sleep(0, 1)
        if self._post.crash():
            await asyncio.Event().wait()
        message = "it may not take its process with it any more"
        raise RuntimeError(message)
