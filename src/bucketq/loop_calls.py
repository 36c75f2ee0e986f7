"""``call_on``: runs a coroutine on the event loop of another thread, and blocks until it has ended.

It is for code without asyncio, which Ctrl-C may interrupt at any step. What
``asyncio.run_coroutine_threadsafe`` returns has a lock that both threads take in Python code: an
interrupt at the wrong step leaves it locked, and then the loop stops for ever. Here the thread that
waits takes nothing that the loop needs.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import CancelledError
from contextlib import suppress
from functools import partial
from typing import Generic, ParamSpec, TypeVar

A = TypeVar("A")
P = ParamSpec("P")


def call_on(
    loop: asyncio.AbstractEventLoop,
    make: Callable[P, Awaitable[A]],
    *args: P.args,
    **kwargs: P.kwargs,
) -> A:
    """Run ``make(...)`` on a loop and wait for it; an exception of this thread cancels it.

    Raises:
        CancelledError: It was cancelled; that of ``concurrent.futures``.
    """
    call = _Call(partial(make, *args, **kwargs))
    try:
        loop.call_soon_threadsafe(call.start)
        call.wait()
    except BaseException:
        with suppress(RuntimeError):  # The loop is closed.
            loop.call_soon_threadsafe(call.cancel)
        raise
    try:
        return call.result()
    finally:
        del call  # A frame that references its own error is a reference cycle.


class _Call(Generic[A]):
    """A coroutine that one thread runs and another waits for."""

    def __init__(self, make: Callable[[], Awaitable[A]]) -> None:
        self._make = make
        self._task: asyncio.Task[A] | None = None
        self._answer: list[A] = []
        self._error: BaseException | None = None
        self._pending = threading.Lock()
        self._pending.acquire()

    def start(self) -> None:
        """Begin to run it. Called on the loop."""
        self._task = asyncio.get_running_loop().create_task(self._run())
        self._task.add_done_callback(self._finish)

    def cancel(self) -> None:
        """Cancel it, if it runs. Called on the loop."""
        if self._task is not None:
            self._task.cancel()

    def wait(self) -> None:
        """Wait until it has ended."""
        self._pending.acquire()

    def result(self) -> A:
        """Return what it returned, or raise what it raised."""
        error, self._error = self._error, None
        if error is None:
            return self._answer[0]
        try:
            raise error
        finally:
            del error

    async def _run(self) -> A:
        return await self._make()

    def _finish(self, task: asyncio.Task[A]) -> None:
        # The task ends with this thread: the callbacks of its end would swallow an interrupt.
        self._task = None
        if task.cancelled():
            self._error = CancelledError()
        else:
            self._error = task.exception()
            if self._error is None:
                self._answer.append(task.result())
        self._pending.release()
