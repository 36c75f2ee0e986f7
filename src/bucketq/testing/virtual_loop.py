"""An asyncio event loop on virtual time, with a seeded scheduler.

Nothing here sleeps, opens a socket or starts a thread. ``time()`` does not change while any
callback can run, and then jumps to the next timer, so five minutes of virtual time take a fraction
of a second.

What it promises:

* **A seed replays exactly**, under any ``PYTHONHASHSEED``. Order comes from counters
  and from the seed, never from an address, a set of objects, or the garbage collector (which
  is off while the loop runs, and called at fixed steps).
* **Within a simulated process callbacks run first in, first out**, as asyncio promises.
  Which process runs next is drawn from the seed, at every single callback.
* **A deadlock is reported**: ``DeadlockError`` names every task that waits, and where.

It touches the running thread's event loop and garbage collector, and asyncio's private
fields: those that CPython 3.11 to 3.13 share.
"""
# The loop and its processes are one unit in two files, and asyncio's underscored fields are the
# interface between it and an event loop.
# ruff: noqa: SLF001

from __future__ import annotations

import asyncio
import contextvars
import gc
import random  # noqa: TID251  # every stream of random numbers is made here, from the seed
import threading
from asyncio.base_events import BaseEventLoop
from collections.abc import Callable, Coroutine, Generator
from contextvars import Context
from heapq import heapify, heappop, heappush
from typing import Any, NoReturn, TypeVar, TypeVarTuple, Unpack

from bucketq.testing.simulated_process import (
    CURRENT,
    Process,
    SimulatedTask,
    SimulationError,
    unwind_dead_processes,
)

T = TypeVar("T")
Ts = TypeVarTuple("Ts")
Timer = tuple[float, int, asyncio.TimerHandle, Process]

_STEPS_BETWEEN_COLLECTIONS = 250_000
"""Often enough to bound memory, and rarely enough to cost little."""
_STEPS_PER_INSTANT_MAX = 1_000_000
"""Far more callbacks than a program runs between two waits."""
_CANCELLED_TIMERS_KEPT = 100
"""As in asyncio."""
_LIMIT_S = 7 * 24 * 3600.0
"""A week is longer than any timeout of a queue, so a simulation that gets there waits in vain."""


class DeadlockError(SimulationError):
    """Nothing can run, no timer is left, and the main coroutine is not done."""


class LivelockError(SimulationError):
    """Callbacks run without end while time stands still, or time passes its limit."""


class VirtualLoop(BaseEventLoop):
    """The event loop of a simulation.

    Attributes:
        seed: The source of every random choice of the simulation.
        driver: The process of the caller of ``run``: the test itself.
        environment: The process of what belongs to no other: packets, storage, power cuts.
        processes: Every process ever spawned, in order, driver and environment first.
        steps: How many callbacks have run.
        fingerprint: A hash of which process ran when. Equal fingerprints mean equal runs.
    """

    def __init__(self, seed: int | str = 0, *, limit_s: float = _LIMIT_S) -> None:
        """Make a loop at time 0; after ``limit_s`` of virtual time it raises ``LivelockError``."""
        unwind_dead_processes()
        super().__init__()
        self.seed = seed
        self.steps = 0
        self.fingerprint = 0
        self._limit_s = limit_s
        self._streams = 0
        self._choice = self.stream("scheduler")
        self._now_s = 0.0
        self._instant_ends = _STEPS_PER_INSTANT_MAX
        self._next_collection = _STEPS_BETWEEN_COLLECTIONS
        self._timers: list[Timer] = []
        self._timer_count = 0
        self._cancelled_count = 0
        self._task_count = 0
        self._runnable: list[Process] = []
        self._base_context = contextvars.copy_context()
        self.processes: list[Process] = []
        self.driver = self._new_process("driver")
        self.environment = self._new_process("environment")

    # For simulations.

    def stream(self, name: str) -> random.Random:
        """Make a new stream of random numbers from the seed; no two calls give the same one."""
        self._streams += 1
        return random.Random(f"{self.seed}/{self._streams}/{name}")  # noqa: S311

    def spawn(self, name: str, factory: Callable[[], Coroutine[Any, Any, Any]]) -> Process:
        """Start a process whose main coroutine is what ``factory`` returns.

        The factory is called inside the process. When the coroutine ends, the tasks that it
        left are cancelled, as ``asyncio.run`` does, and then the process is gone.
        """
        process = self._new_process(name)
        coroutine = process._main(factory)
        process._task = self.create_task(coroutine, name=name, context=process.context)
        process._task.add_done_callback(process._exited, context=process.context)
        return process

    def current_process(self) -> Process:
        """Return the process to which the running code belongs."""
        return CURRENT.get(self.driver)

    def call_in_environment(
        self, delay_s: float, callback: Callable[[Unpack[Ts]], object], *args: *Ts
    ) -> asyncio.TimerHandle:
        """Schedule a callback that runs whatever happens to processes, like a packet's arrival."""
        return self.call_at(
            self._now_s + delay_s, callback, *args, context=self.environment.context
        )

    # For asyncio.

    def time(self) -> float:
        """Return the virtual time in seconds since the loop was made."""
        return self._now_s

    def create_task(
        self,
        coro: Generator[Any, None, T] | Coroutine[Any, Any, T],
        *,
        name: object = None,
        context: Context | None = None,
        **options: Any,
    ) -> asyncio.Task[T]:
        """Make a task of the process that the context belongs to."""
        process = self._process_of(context)
        if process._alive:
            self._check_closed()  # type: ignore[attr-defined]
        self._task_count = number = self._task_count + 1
        label = f"{process.name}-{number}" if name is None else name
        task = SimulatedTask(coro, number=number, loop=self, name=label, context=context, **options)
        process._tasks[number] = task
        if not process._alive:
            process._keep_suspended(task)
        return task

    def call_soon(
        self,
        callback: Callable[[Unpack[Ts]], object],
        *args: *Ts,
        context: Context | None = None,
    ) -> asyncio.Handle:
        """Queue a callback behind the others of its process; drop it if that is dead."""
        process = CURRENT.get(self.driver) if context is None else context.get(CURRENT, self.driver)
        handle = asyncio.Handle(callback, args, self, context)
        if not process._alive:
            handle.cancel()
            return handle
        if self._closed:  # type: ignore[attr-defined]
            raise RuntimeError("Event loop is closed")
        process._ready.append(handle)
        if process._idle:
            process._join_list()
        return handle

    def call_soon_threadsafe(
        self,
        callback: Callable[[Unpack[Ts]], object],
        *args: *Ts,
        context: Context | None = None,
    ) -> asyncio.Handle:
        """Queue a callback, from this thread only; asyncio itself uses this call, too."""
        if self._thread_id not in {None, threading.get_ident()}:  # type: ignore[attr-defined]
            raise SimulationError("threads are not simulated: one called into the virtual loop")
        return self.call_soon(callback, *args, context=context)

    def call_at(
        self,
        when: float,
        callback: Callable[[Unpack[Ts]], object],
        *args: *Ts,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        """Schedule a callback; one that is already due joins the queue of its process."""
        process = self._process_of(context)
        timer = asyncio.TimerHandle(when, callback, args, self, context)
        if not process._alive:
            timer.cancel()
            return timer
        self._check_closed()  # type: ignore[attr-defined]
        if when <= self._now_s:
            process._ready.append(timer)
            if process._idle:
                process._join_list()
            return timer
        timer._scheduled = True  # type: ignore[attr-defined]
        self._timer_count += 1
        heappush(self._timers, (when, self._timer_count, timer, process))
        return timer

    def run_in_executor(self, *_args: Any) -> NoReturn:  # type: ignore[override]
        """Raise: threads run in an order that no seed could replay."""
        raise SimulationError("threads are not simulated: use no executor, no to_thread, no DNS")

    def set_task_factory(self, factory: Any) -> None:
        """Raise: tasks must be known to their process."""
        if factory is not None:
            raise SimulationError("a virtual loop makes its own tasks: set no task factory")

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Log an unhandled error, unless it comes from a dead process."""
        if not self._closed and CURRENT.get(self.driver)._alive:  # type: ignore[attr-defined]
            super().call_exception_handler(context)

    def run_forever(self) -> None:
        """Run until ``stop``, with the garbage collector off: it would run finalizers anywhere."""
        enabled = gc.isenabled()
        gc.disable()
        try:
            super().run_forever()
        finally:
            if enabled:
                gc.enable()

    def close(self) -> None:
        """Kill every process and close. A second call does nothing."""
        if self.is_running():
            raise RuntimeError("Cannot close a running event loop")
        if self.is_closed():
            return
        for process in reversed(self.processes):
            if process._alive:
                process.killed = True
                process._end()
        self._timers.clear()
        super().close()

    # The scheduler.

    def _new_process(self, name: str) -> Process:
        process = Process(self, len(self.processes), name, self._base_context)
        self.processes.append(process)
        return process

    def _process_of(self, context: Context | None) -> Process:
        if context is None:
            return CURRENT.get(self.driver)
        return context.get(CURRENT, self.driver)

    def _run_once(self) -> None:
        """Run callbacks until the loop is stopped. This is the hot path."""
        runnable = self._runnable
        draw = self._choice.random
        while not self._stopping:  # type: ignore[attr-defined]
            count = len(runnable)
            if count == 0:
                self._advance()
                continue
            process = runnable[int(draw() * count)] if count > 1 else runnable[0]
            ready = process._ready
            handle = ready.popleft()
            if not handle._cancelled:
                self.fingerprint = hash((self.fingerprint, process.number, self._now_s))
                self.steps += 1
                process.steps += 1
                handle._run()
                if process.steps >= process._trap:
                    process._spring()
                if self.steps >= self._instant_ends or self.steps >= self._next_collection:
                    self._pause()
            if not ready and process._listed:
                process._leave_list()
                process._idle = True

    def _pause(self) -> None:
        """Collect garbage and detect livelocks, at steps that are the same in every replay."""
        if self.steps >= self._instant_ends:
            raise LivelockError(
                f"{_STEPS_PER_INSTANT_MAX} callbacks ran at {self._now_s} s and time stood still:"
                f" something never waits\n{self._describe()}"
            )
        self._next_collection = self.steps + _STEPS_BETWEEN_COLLECTIONS
        gc.collect()

    def _advance(self) -> None:
        """Jump to the next timer that can still fire, and make ready all that are due then."""
        if self._cancelled_count > _CANCELLED_TIMERS_KEPT:
            self._sweep_timers()
        timers = self._timers
        due_s: float | None = None
        while timers and (due_s is None or timers[0][0] <= due_s):
            when_s, _, timer, process = heappop(timers)
            timer._scheduled = False  # type: ignore[attr-defined]
            if timer._cancelled:
                self._cancelled_count -= 1
            elif process._alive:
                due_s = when_s
                process._ready.append(timer)
                if process._idle:
                    process._join_list()
        if due_s is None:
            raise DeadlockError(
                f"nothing can run any more and no timer is left at {self._now_s} s;"
                f" waiting for ever:\n{self._describe()}"
            )
        if due_s > self._limit_s:
            raise LivelockError(
                f"virtual time ran past its limit of {self._limit_s} s\n{self._describe()}"
            )
        self._now_s = due_s
        self._instant_ends = self.steps + _STEPS_PER_INSTANT_MAX

    def _sweep_timers(self) -> None:
        """Drop cancelled timers if they are most of the heap: every timeout leaves one."""
        if self._cancelled_count * 2 <= len(self._timers):
            return
        self._timers = [entry for entry in self._timers if not entry[2]._cancelled]
        heapify(self._timers)
        self._cancelled_count = 0

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """Count a timer that was cancelled while in the heap."""
        if handle._scheduled:  # type: ignore[attr-defined]
            self._cancelled_count += 1

    def _write_to_self(self) -> None:
        """Do nothing: the loop never sleeps."""

    def _process_events(self, event_list: object) -> None:
        """Do nothing: there are no sockets."""

    def _describe(self) -> str:
        """Return every task that waits, in order, and where."""
        lines = []
        for process in self.processes:
            for task in process._tasks.values():
                if not task.done() and process._alive:
                    frames = task.get_stack(limit=1)
                    place = (
                        f"{frames[-1].f_code.co_qualname}:{frames[-1].f_lineno}" if frames else "?"
                    )
                    state = " (frozen)" if process._frozen else ""
                    lines.append(f"  {process.name}{state}: task {task.get_name()} at {place}")
        return "\n".join(lines) or "  no task at all"


def current_loop() -> VirtualLoop:
    """Return the running virtual loop."""
    loop = asyncio.get_running_loop()
    if not isinstance(loop, VirtualLoop):
        raise SimulationError("this runs inside a simulation only: start it with run()")
    return loop


def run(
    main: Callable[[VirtualLoop], Coroutine[Any, Any, T]],
    *,
    seed: int | str = 0,
    limit_s: float = _LIMIT_S,
) -> T:
    """Run ``main(loop)`` in a fresh virtual loop and return its result.

    Afterwards the processes that still live are killed, and the driver's own tasks are cancelled.
    An exception carries a note that names the seed.
    """
    loop = VirtualLoop(seed, limit_s=limit_s)
    try:
        loop.driver._task = task = loop.create_task(main(loop), name="main")
        result = loop.run_until_complete(task)
        for process in loop.processes:
            if process is not loop.driver and process is not loop.environment:
                process.kill()
        rest = [task for task in loop.driver._tasks.values() if not task.done()]
        for task in rest:
            task.cancel()
        if rest:
            loop.run_until_complete(asyncio.wait(rest))
    except BaseException as error:
        error.add_note(f"simulation seed: {seed!r}, at {loop.time()} virtual seconds")
        raise
    finally:
        loop.close()
    return result
