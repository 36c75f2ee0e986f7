"""Simulated processes, which can be killed, frozen and resumed.

A process here is every callback and timer that was created in its context. Killing it is
``kill -9``: what it had scheduled is dropped and never runs, including ``finally`` and
``except CancelledError``, because a real kill runs none of them either, and a simulation must find
code that relies on them.

Python runs the ``finally`` blocks of a suspended coroutine when it is freed, so the coroutines of
dead processes are kept until their loop is closed and the next one opens (or Python exits). Only
then are they unwound, silently: whatever they try to schedule is dropped, and no result of
their simulation can change any more.

This module touches asyncio's private fields and nothing outside the loop it belongs to.
"""
# The loop and its processes are one unit in two files, and asyncio's underscored fields are the
# interface between it and an event loop.
# ruff: noqa: SLF001

from __future__ import annotations

import asyncio
import atexit
import contextlib
import contextvars
import sys
import warnings
import weakref
from collections import deque
from collections.abc import Callable, Coroutine
from types import CoroutineType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bucketq.testing.virtual_loop import VirtualLoop

CURRENT: contextvars.ContextVar[Process] = contextvars.ContextVar("bucketq_simulated_process")

_NEVER = sys.maxsize
_CLOSE_ATTEMPTS_MAX = 100
"""More than any coroutine awaits in its ``finally`` blocks, so that one that never ends is left."""


class SimulationError(Exception):
    """The simulated program used something that is not simulated."""


class SimulatedTask(asyncio.Task[Any]):
    """A task whose hash is its number.

    ``TaskGroup`` and ``asyncio.wait`` keep tasks in sets. With the usual hash, a memory
    address, the order of such a set differs from run to run, and with it the order in which
    a group cancels its tasks: no seed would replay.
    """

    def __init__(self, *args: Any, number: int, **kwargs: Any) -> None:
        """Number the task before asyncio puts it into its first set."""
        self.number = number
        super().__init__(*args, **kwargs)

    def __hash__(self) -> int:
        return self.number


class Process:
    """One simulated process. Made by ``VirtualLoop.spawn``.

    Attributes:
        number: Counts up from 0 in the order of spawning; 0 is the driver, 1 the environment.
        name: For histories and messages.
        context: The context that marks a callback as belonging to this process.
        steps: How many of its callbacks have run; a kill can come after any of them.
        killed: Whether it was killed, rather than having returned or raised.
    """

    def __init__(
        self, loop: VirtualLoop, number: int, name: str, base: contextvars.Context
    ) -> None:
        self._loop = loop
        self.number = number
        self.name = name
        self.context = base.copy()
        self.context.run(CURRENT.set, self)
        self.steps = 0
        self.killed = False
        # The scheduler's fields. A process is in the loop's list of runnable ones exactly
        # while _listed; _idle says that the next callback must put it there.
        self._ready: deque[asyncio.Handle] = deque()
        self._alive = True
        self._frozen = False
        self._listed = False
        self._idle = True
        self._trap = _NEVER
        self._trap_action: Callable[[], None] | None = None
        self._tasks: weakref.WeakValueDictionary[int, SimulatedTask] = weakref.WeakValueDictionary()
        self._task: asyncio.Task[Any] | None = None
        self._waiters: list[asyncio.Future[None]] = []
        self._listeners: list[Callable[[Process], None]] = []
        self._thaw_timer: asyncio.TimerHandle | None = None
        self._suspended: list[SimulatedTask] = []

    def __repr__(self) -> str:
        state = "frozen" if self._frozen else "alive" if self._alive else "dead"
        return f"<Process {self.number} {self.name} {state} steps={self.steps}>"

    @property
    def alive(self) -> bool:
        """Whether it may ever run again. A frozen process is alive."""
        return self._alive

    @property
    def frozen(self) -> bool:
        """Whether it is frozen until ``thaw``."""
        return self._frozen

    @property
    def task(self) -> asyncio.Task[Any]:
        """The task of its main coroutine."""
        if self._task is None:
            raise SimulationError(f"process {self.name} has no main task")
        return self._task

    @property
    def error(self) -> BaseException | None:
        """The exception that its main coroutine raised, or None."""
        if self._task is None or not self._task.done() or self._task.cancelled():
            return None
        return self._task.exception()

    async def wait(self) -> Any:
        """Wait for its end; return or raise what its main coroutine did.

        None means that it was killed, or that its main coroutine was cancelled.
        """
        if self._alive:
            waiter: asyncio.Future[None] = self._loop.create_future()
            self._waiters.append(waiter)
            await waiter
        task = self.task
        return task.result() if task.done() and not task.cancelled() else None

    def on_end(self, listener: Callable[[Process], None]) -> None:
        """Call ``listener`` when the process ends, for any reason.

        It is for what the operating system would do, such as resetting its connections. It runs
        inside the code that killed the process, so it must not raise.
        """
        self._listeners.append(listener)

    def kill(self) -> None:
        """Kill it like ``kill -9``: nothing it scheduled runs any more. A second call does nothing.

        A process that kills itself runs on to its next ``await``.
        """
        if self._alive:
            if self.number == 0:
                raise SimulationError("the driver cannot be killed: it is the test itself")
            self.killed = True
            self._end()

    def freeze(self, for_s: float | None = None) -> None:
        """Stop it like SIGSTOP, for ``for_s`` or until ``thaw``.

        Timers that come due meanwhile fire after the thaw, in the order they came due.
        """
        if not self._alive:
            return
        self._frozen = True
        self._idle = False
        self._leave_list()
        self._drop_thaw_timer()
        if for_s is not None:
            self._thaw_timer = self._loop.call_in_environment(for_s, self.thaw)

    def thaw(self) -> None:
        """Resume it like SIGCONT. Does nothing if it is not frozen."""
        if not self._frozen:
            return
        self._drop_thaw_timer()
        self._frozen = False
        self._idle = True
        if self._ready:
            self._join_list()

    def kill_after(self, steps: int) -> None:
        """Kill it once it has run ``steps`` more callbacks, so that a kill can hit any await."""
        self._set_trap(steps, self.kill)

    def freeze_after(self, steps: int, for_s: float | None = None) -> None:
        """Freeze it once it has run ``steps`` more callbacks."""
        self._set_trap(steps, lambda: self.freeze(for_s))

    def _set_trap(self, steps: int, action: Callable[[], None]) -> None:
        """Arm the one trap that a process has; a later one replaces an earlier one."""
        if steps <= 0:
            self._trap = _NEVER
            action()
            return
        self._trap = self.steps + steps
        self._trap_action = action

    def _spring(self) -> None:
        """Spring the trap. Called by the scheduler, between two steps."""
        action, self._trap_action, self._trap = self._trap_action, None, _NEVER
        if action is not None:
            action()

    def _join_list(self) -> None:
        self._idle = False
        self._listed = True
        self._loop._runnable.append(self)

    def _leave_list(self) -> None:
        if self._listed:
            self._listed = False
            self._loop._runnable.remove(self)

    def _drop_thaw_timer(self) -> None:
        if self._thaw_timer is not None:
            self._thaw_timer.cancel()
            self._thaw_timer = None

    async def _main(self, factory: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
        """Run the main coroutine, then cancel what it left behind, as ``asyncio.run`` does."""
        try:
            return await factory()
        finally:
            # A dead process gets here when its coroutines are freed, and does nothing.
            if self._alive:
                rest = [task for task in self._tasks.values() if not task.done()]
                rest.remove(asyncio.current_task())  # type: ignore[arg-type]
                for task in rest:
                    task.cancel()
                if rest:
                    await asyncio.gather(*rest, return_exceptions=True)

    def _exited(self, _task: asyncio.Task[Any]) -> None:
        """Note that the main coroutine is done; log its exception if no task waits for it."""
        if not self._alive:
            return
        if self.error is not None and not self._waiters:
            self._loop.call_exception_handler(
                {"message": f"simulated process {self.name} crashed", "exception": self.error}
            )
        self._end()

    def _end(self) -> None:
        """Drop everything that was scheduled, keep the coroutines, and call the listeners."""
        self._alive = False
        self._frozen = False
        self._idle = False
        self._leave_list()
        self._drop_thaw_timer()
        for task in list(self._tasks.values()):
            if not task.done():
                self._keep_suspended(task)
            elif self.killed:
                task._log_traceback = False
        _dead.append(self)
        # Timers stay in the loop's heap and are skipped there.
        self._ready.clear()
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)
        listeners, self._listeners = self._listeners, []
        for listener in listeners:
            listener(self)

    def _keep_suspended(self, task: SimulatedTask) -> None:
        """Keep a task that will never run again, and silence asyncio's warning about it."""
        task._log_destroy_pending = False  # type: ignore[attr-defined]
        self._suspended.append(task)

    def _unwind_all(self) -> None:
        """Unwind the coroutines of a dead process, inside its context, so without effect."""
        # They find the loop that they ran on, which is closed and rejects them. Otherwise asyncio
        # would create a real one for a gather in a finally block, and leave it open.
        outer = asyncio._get_running_loop()
        asyncio._set_running_loop(self._loop)
        try:
            for task in self._suspended:  # It grows if a finally block creates tasks.
                self.context.run(_unwind, task.get_coro())
        finally:
            asyncio._set_running_loop(outer)
        self._suspended.clear()


def _unwind(coroutine: object) -> None:
    """Close a coroutine, and before that those it waits for, whatever they do.

    One that awaits in its ``finally`` answers ``close`` with a RuntimeError and is suspended
    again, while the one that waits for it is gone. So the innermost comes first, and each is
    closed until it ends.
    """
    if not isinstance(coroutine, CoroutineType):
        return
    for _ in range(_CLOSE_ATTEMPTS_MAX):
        if coroutine.cr_frame is None:
            return
        _unwind(coroutine.cr_await)
        # The process had died long before, so its errors do not matter.
        with contextlib.suppress(BaseException):
            coroutine.close()


# Dead processes whose coroutines have not been unwound yet. It belongs to no loop, because they
# must outlive theirs: see the module docstring.
_dead: list[Process] = []


@atexit.register
def unwind_dead_processes() -> None:
    """Unwind the coroutines of dead processes whose loops are closed."""
    ready = [process for process in _dead if process._loop.is_closed()]
    if not ready:
        return
    _dead[:] = [process for process in _dead if not process._loop.is_closed()]
    with contextlib.suppress(Exception), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        while ready:
            ready.pop()._unwind_all()
