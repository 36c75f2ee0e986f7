"""Runs handlers that are not async in threads.

A thread cannot be stopped from outside: a handler that should stop sees that in its context, and
keeps its slot until it ends. The threads are daemons, so that a worker that has to exit does not
wait for a handler that does not end.
"""

from __future__ import annotations

import asyncio
import contextvars
import queue
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

from bucketq.client.loop_thread import LoopThread
from bucketq.worker.context import Context
from bucketq.worker.handlers import Handler
from bucketq.worker.runners.runner import Begun, Runner, call_plain

Work = Callable[[], None]


class ThreadRunner(Runner):
    """A pool of threads, as many as were ever needed at once."""

    def __init__(self) -> None:
        self._works: queue.SimpleQueue[Work | None] = queue.SimpleQueue()
        self._pending: dict[int, asyncio.Future[tuple[Any, BaseException | None]]] = {}
        self._idle = 0
        self._count = 0
        self._is_closed = False

    async def run(self, handler: Handler, context: Context, begun: Begun) -> Any:
        """Run a handler in a thread, and return when it is over."""
        begun()  # Every running handler has a thread, so it starts at once.
        return await self.call(partial(call_plain, handler, context))

    async def call(self, function: Callable[[], Any]) -> Any:
        """Call a function in a thread, and return when it is over, even if cancelled."""
        if self._is_closed:
            raise asyncio.CancelledError  # No thread would run it.
        loop = asyncio.get_running_loop()
        over: asyncio.Future[tuple[Any, BaseException | None]] = loop.create_future()
        within = contextvars.copy_context()

        def work() -> None:
            result, error = None, None
            try:
                result = within.run(function)
            except BaseException as raised:  # noqa: BLE001 - raised again in the caller
                error = raised
            # The loop is closed if the worker did not wait for this thread.
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(_set_outcome, over, result, error)

        if self._idle == 0:
            self._start()
        self._idle -= 1
        self._pending[id(over)] = over
        self._works.put(work)
        while not over.done():
            with suppress(asyncio.CancelledError):
                await asyncio.shield(over)
        del self._pending[id(over)]
        self._idle += 1
        result, error = over.result()
        if error is not None:
            raise error
        return result

    async def close(self) -> None:
        """Stop waiting for handlers, and let idle threads end."""
        self._is_closed = True
        for over in list(self._pending.values()):
            _set_outcome(over, None, asyncio.CancelledError())
        for _ in range(self._count):
            self._works.put(None)
        await asyncio.sleep(0)  # Let the tasks that waited see it.

    def _start(self) -> None:
        self._idle += 1
        self._count += 1
        name = f"bucketq handler {self._count}"
        threading.Thread(target=self._live, name=name, daemon=True).start()

    def _live(self) -> None:
        while (work := self._works.get()) is not None:
            work()


async def stop_in_thread(loop_thread: LoopThread) -> None:
    """Stop a thread's loop from a new thread: handlers may keep all threads of the loop busy."""
    threads = ThreadRunner()
    try:
        await threads.call(loop_thread.stop)
    finally:
        await threads.close()


def _set_outcome(
    over: asyncio.Future[tuple[Any, BaseException | None]],
    result: Any,
    error: BaseException | None,
) -> None:
    if not over.done():
        over.set_result((result, error))
