"""Runs async handlers on the event loop that called ``Worker.run``.

The engine runs on another loop, in another thread. Calls between the two loops are sent in
batches, because waking a loop from another thread costs more than a short handler.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any

from bucketq.worker.context import Context
from bucketq.worker.forced_exit import JOB_TASK
from bucketq.worker.handlers import Handler
from bucketq.worker.runners.runner import Begun, call


class _Mailbox:
    """Calls for another loop, handed over together."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._calls: deque[Callable[[], None]] = deque()

    def post(self, what: Callable[[], None]) -> None:
        """Schedule a call on the loop."""
        self._calls.append(what)
        # _empty checks again after the last call, so one wake-up serves many calls.
        if len(self._calls) == 1:
            # The loop may be closed, and then nothing waits for the call.
            with suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._empty)

    def _empty(self) -> None:
        while self._calls:
            what = self._calls[0]
            what()
            # Removed only now: while it is in the queue, post need not wake this loop.
            self._calls.popleft()


class _HandlerCall:
    """One handler that runs on the other loop."""

    def __init__(self, over: asyncio.Future[None]) -> None:
        self.over = over
        self.task: asyncio.Task[Any] | None = None
        self.is_cancelled = False


class CallerLoopRunner:
    """Runs handlers on another loop. Created and used on the engine's loop."""

    def __init__(self, caller: asyncio.AbstractEventLoop) -> None:
        self._engine = asyncio.get_running_loop()
        self._caller = caller
        self._to_caller = _Mailbox(caller)
        self._to_engine = _Mailbox(self._engine)
        self._calls: dict[int, _HandlerCall] = {}

    async def run(self, handler: Handler, context: Context, begun: Begun) -> Any:
        """Run a handler on the other loop, and return when it is over."""
        call_ = _HandlerCall(self._engine.create_future())
        self._calls[id(call_)] = call_
        self._to_caller.post(lambda: self._begin(call_, handler, context, begun))
        while not call_.over.done():
            try:
                await asyncio.shield(call_.over)
            except asyncio.CancelledError:
                call_.is_cancelled = True
                self._to_caller.post(lambda: _cancel(call_))
        del self._calls[id(call_)]
        if call_.task is None or not call_.task.done() or call_.task.cancelled():
            raise asyncio.CancelledError
        return call_.task.result()

    async def close(self) -> None:
        """Stop waiting for handlers that still run."""
        for call_ in list(self._calls.values()):
            _finish(call_)
        await asyncio.sleep(0)  # Let the tasks that waited see it.

    def _begin(self, call_: _HandlerCall, handler: Handler, context: Context, begun: Begun) -> None:
        if call_.is_cancelled:
            self._to_engine.post(lambda: _finish(call_))
            return
        if handler.timeout_s is not None:
            self._to_engine.post(begun)
        call_.task = self._caller.create_task(
            call(handler, context), name=f"{JOB_TASK}{context.job.id}"
        )
        call_.task.add_done_callback(lambda _: self._to_engine.post(lambda: _finish(call_)))


async def run_on(loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, None]) -> None:
    """Do something on another loop; if this is cancelled, so is that."""
    await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, loop))


def _cancel(call_: _HandlerCall) -> None:
    if call_.task is not None:
        call_.task.cancel()


def _finish(call_: _HandlerCall) -> None:
    if not call_.over.done():
        call_.over.set_result(None)
