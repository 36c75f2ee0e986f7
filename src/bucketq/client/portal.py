"""``Portal``: an event loop in a thread of its own, and the ways to it.

Code that must run while other code blocks runs on such a loop: a queue that is used without
asyncio, and what a worker says to its queue while handlers run.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from bucketq.errors import ClosedError

A = TypeVar("A")


_CANCEL_S = 1.0
"""How long tasks that were left behind may take to end."""


class Portal:
    """An event loop in a thread."""

    def __init__(self) -> None:
        """Start the thread."""
        self._process = os.getpid()
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, name="bucketq", daemon=True)
        self._thread.start()
        self._stopped = False

    @property
    def is_inherited(self) -> bool:
        """Whether this is a forked child, which has the loop but not its thread."""
        return os.getpid() != self._process

    def call(self, make: Callable[[], Coroutine[Any, Any, A]]) -> A:
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
        running = asyncio.run_coroutine_threadsafe(make(), self.loop)
        try:
            return running.result()
        except BaseException:
            running.cancel()
            raise

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
    """Cancel what was left behind on this loop, so that nothing is destroyed while it waits."""
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    if others:
        await asyncio.wait(others, timeout=_CANCEL_S)
