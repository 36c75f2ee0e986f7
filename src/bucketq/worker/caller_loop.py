"""Runs async handlers at home: on the event loop of whoever called ``Worker.run``.

The engine lives on another loop, in another thread. Handlers go to the home loop and what came of
them goes back in batches, for waking a loop from another thread costs more than a short handler.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from bucketq.worker.context import Context
from bucketq.worker.forced_exit import JOB_TASK
from bucketq.worker.handlers import Handler
from bucketq.worker.runner import Begun, call


class _Mailbox:
    """Calls that another loop is to make, handed over together."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._calls: deque[Callable[[], None]] = deque()

    def post(self, what: Callable[[], None]) -> None:
        """Let the loop call something soon."""
        self._calls.append(what)
        # Whoever empties it looks once more after the last call, so one wake-up serves many.
        if len(self._calls) == 1:
            # A loop that is closed has no use for it.
            with suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._empty)

    def _empty(self) -> None:
        while self._calls:
            what = self._calls[0]
            what()
            # It is taken out only now: while it is there, others need not wake this loop.
            self._calls.popleft()


class _Visit:
    """One handler on its way home and back."""

    def __init__(self, over: asyncio.Future[None]) -> None:
        self.over = over
        self.task: asyncio.Task[Any] | None = None
        self.is_cancelled = False


class CallerLoopRunner:
    """Runs handlers on another loop. Made and used on the engine's."""

    def __init__(self, home: asyncio.AbstractEventLoop) -> None:
        """Run handlers on ``home``."""
        self._engine = asyncio.get_running_loop()
        self._home = home
        self._to_home = _Mailbox(home)
        self._to_engine = _Mailbox(self._engine)
        self._visits: dict[int, _Visit] = {}

    async def run(self, handler: Handler, context: Context, begun: Begun) -> Any:
        """Run a handler at home, and return when it is over there."""
        visit = _Visit(self._engine.create_future())
        self._visits[id(visit)] = visit
        self._to_home.post(lambda: self._begin(visit, handler, context, begun))
        while not visit.over.done():
            try:
                await asyncio.shield(visit.over)
            except asyncio.CancelledError:
                visit.is_cancelled = True
                self._to_home.post(lambda: _cancel(visit))
        del self._visits[id(visit)]
        if visit.task is None or not visit.task.done() or visit.task.cancelled():
            raise asyncio.CancelledError
        return visit.task.result()

    async def close(self) -> None:
        """Wait for nobody any more."""
        for visit in list(self._visits.values()):
            _arrive(visit)
        await asyncio.sleep(0)  # So that whoever waited has heard of it.

    def _begin(self, visit: _Visit, handler: Handler, context: Context, begun: Begun) -> None:
        if visit.is_cancelled:
            self._to_engine.post(lambda: _arrive(visit))
            return
        if handler.timeout_s is not None:
            self._to_engine.post(begun)
        visit.task = self._home.create_task(
            call(handler, context), name=f"{JOB_TASK}{context.job.id}"
        )
        visit.task.add_done_callback(lambda _: self._to_engine.post(lambda: _arrive(visit)))


def _cancel(visit: _Visit) -> None:
    if visit.task is not None:
        visit.task.cancel()


def _arrive(visit: _Visit) -> None:
    if not visit.over.done():
        visit.over.set_result(None)
