"""Tasks that outlive the call that started them. Closing waits for them."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any


class Background:
    """The background tasks of one queue."""

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
