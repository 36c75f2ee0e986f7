"""Tasks beside the requests of a queue: ones that outlive a call, and work that never ends."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from typing import Any, TypeVar

from bucketq.clock import Clock, fraction
from bucketq.commit.upkeep.transient_faults import TransientFault
from bucketq.errors import ClosedError, SupersededError, UnavailableError

T = TypeVar("T")

_LONGEST_STEP_S = 2.0
"""How long a writer that commits by itself waits for upkeep before its own commit. A put takes a
tenth of that; if it takes longer, a larger commit is the smaller evil."""


async def before_commit(step: Awaitable[T]) -> T:
    """Return the result of a step of upkeep that a writer does before its own commit.

    Raises:
        UnavailableError: It takes so long that the commit goes out without it.
    """
    try:
        async with asyncio.timeout(_LONGEST_STEP_S):
            return await step
    except TimeoutError as error:
        message = f"it takes longer than {_LONGEST_STEP_S:g} s"
        raise UnavailableError(message) from error


class Background:
    """Tasks that outlive the call that started them. Closing waits for them."""

    def __init__(self) -> None:
        # By id: the order of tasks in a set would differ between two runs of a simulation.
        self._tasks: dict[int, asyncio.Task[Any]] = {}

    def start(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Run a coroutine as a task."""
        task = asyncio.get_running_loop().create_task(work)
        number = id(task)
        self._tasks[number] = task

        def done(task: asyncio.Task[Any]) -> None:
            self._tasks.pop(number, None)
            if not task.cancelled():
                task.exception()  # Or the loop would log that it was never retrieved.

        task.add_done_callback(done)
        return task

    async def finish(self, timeout_s: float) -> None:
        """Wait for all tasks, and cancel those that take longer than ``timeout_s``."""
        left = set(self._tasks.values())
        if left:
            _, left = await asyncio.wait(left, timeout=timeout_s)
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)


class BackgroundLoop:
    """Work that is done again and again beside the commits, until it is stopped.

    If it fails, that is logged once, and it is retried after growing pauses.
    """

    def __init__(self, clock: Clock, fault: TransientFault) -> None:
        """Begin with nothing to do; failures are logged as ``fault``."""
        self._clock = clock
        self._fault = fault
        self._is_due = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def start(self, work: Callable[[], Awaitable[float | None]], first_s: float | None) -> None:
        """Call ``work`` in ``first_s``; it returns in how many seconds it is due again.

        None: not before ``wake``. A pause may take twice as long, so that processes that were
        started together do not work together.
        """
        self._task = asyncio.get_running_loop().create_task(self._run(work, first_s))

    def wake(self) -> None:
        """Let the work begin at once, unless it has just failed."""
        self._is_due.set()

    async def stop(self) -> None:
        """Stop, also in the middle of the work."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def _run(
        self, work: Callable[[], Awaitable[float | None]], pause_s: float | None
    ) -> None:
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(None if pause_s is None else self._jittered(pause_s)):
                    await self._is_due.wait()
            self._is_due.clear()
            try:
                pause_s = await work()
            except (ClosedError, SupersededError):
                continue  # The queue is closing, and this task ends with it.
            except Exception as error:  # noqa: BLE001 - whatever it is, the work continues
                await asyncio.sleep(self._jittered(self._fault.strike(error)))
                self._is_due.set()
            else:
                self._fault.passed()

    def _jittered(self, pause_s: float) -> float:
        return pause_s * (1 + fraction(self._clock))
