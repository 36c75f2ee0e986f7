"""``LoopThread``: an event loop in a thread of its own.

It runs what must not stop while other code blocks: a queue that is used without asyncio, and a
worker's requests while handlers run.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from typing import Any, ParamSpec, TypeVar

from bucketq.errors import ClosedError
from bucketq.loop_calls import call_on

A = TypeVar("A")
P = ParamSpec("P")

_CANCEL_S = 1.0
"""How long tasks that were left behind may take to end; one that ignores it is destroyed."""


class LoopThread:
    """An event loop in a thread, which starts at once."""

    def __init__(self) -> None:
        self._process = os.getpid()
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, name="bucketq", daemon=True)
        self._thread.start()
        self._stopped = False

    @property
    def is_inherited(self) -> bool:
        """Whether this is a forked child, which has the loop but not its thread."""
        return os.getpid() != self._process

    def call(
        self, make: Callable[P, Coroutine[Any, Any, A]], *args: P.args, **kwargs: P.kwargs
    ) -> A:
        """Run a coroutine on the loop and wait for it."""
        if self.is_inherited:
            message = (
                f"the queue was opened by process {self._process} and is used in {os.getpid()}: "
                "connect again after a fork"
            )
            raise ClosedError(message)
        if self._stopped:
            message = "the queue is closed: connect again"
            raise ClosedError(message)
        if threading.current_thread() is self._thread:
            message = "a blocking call from the queue's own thread would never return"
            raise ClosedError(message)
        return call_on(self.loop, make, *args, **kwargs)

    def iterate(self, items: AsyncIterator[A]) -> Iterator[A]:
        """Yield the items of an asynchronous iterator, each of which is waited for."""
        iterator = aiter(items)

        async def step() -> list[A]:
            try:
                return [await anext(iterator)]
            except StopAsyncIteration:
                return []

        while item := self.call(step):
            yield item[0]

    def stop(self) -> None:
        """End the loop and the thread."""
        if not self.is_inherited:
            self.call(_cancel_others)
            self.call(self.loop.shutdown_default_executor)
            self.loop.call_soon_threadsafe(self.loop.stop)
            self._thread.join()
            self.loop.close()
        self._stopped = True


async def _cancel_others() -> None:
    """Cancel the tasks left on this loop, so that none is destroyed while it waits."""
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    if others:
        await asyncio.wait(others, timeout=_CANCEL_S)
