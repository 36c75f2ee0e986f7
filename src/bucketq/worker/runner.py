"""``Runner``: how a handler is run. The seam between the engine and tasks, threads and processes.

The engine runs on one loop and knows no threads. It awaits ``run`` in a task of its own, and
cancels that task where the handler is to stop.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from bucketq.worker.context import Context
from bucketq.worker.handlers import Handler, Place

Begun = Callable[[], None]
"""What a runner calls, on the engine's loop, when a handler begins: its time counts from then."""


class HandlerExit(Exception):  # noqa: N818 - it tells of one that is no error
    """A handler raised what would have ended the process, like ``SystemExit``."""


class Runner(Protocol):
    """A way to run handlers."""

    async def run(self, handler: Handler, context: Context, begun: Begun) -> Any:
        """Run a handler, call ``begun`` when it begins, and return or raise what it does.

        Raises ``UnfitPayload`` where the payload is not what the handler declares. It returns
        when the handler is over and never before. Cancelling it asks the handler to stop; a
        handler that ends all the same is heard.
        """
        ...

    async def close(self) -> None:
        """Let go of what is kept for later runs."""
        ...


class TaskRunner:
    """Runs handlers where the engine runs: the simplest runner, without threads."""

    async def run(self, handler: Handler, context: Context, begun: Begun) -> Any:
        """Call the handler, in this task."""
        begun()
        return await call(handler, context)

    async def close(self) -> None:
        """Nothing is kept."""


class Runners:
    """Sends each handler to the runner of its place."""

    def __init__(self, by_place: Mapping[Place, Runner]) -> None:
        """Take a runner for each place that handlers name."""
        self._by_place = by_place

    async def run(self, handler: Handler, context: Context, begun: Begun) -> Any:
        """Run a handler in its place."""
        return await self._by_place[handler.place].run(handler, context, begun)

    async def close(self) -> None:
        """Close them all."""
        for runner in self._by_place.values():
            await runner.close()


async def call(handler: Handler, context: Context) -> Any:
    """Call a handler, async or not, such that its end is never that of the process."""
    arguments = handler.arguments(context)
    try:
        answer = handler.function(**arguments)
        return await answer if inspect.isawaitable(answer) else answer
    except (SystemExit, KeyboardInterrupt) as error:
        raise HandlerExit(_told(error)) from error


def call_plain(handler: Handler, context: Context) -> Any:
    """Call a handler that is not async, such that its end is never that of the thread."""
    arguments = handler.arguments(context)
    try:
        answer = handler.function(**arguments)
    except (SystemExit, KeyboardInterrupt) as error:
        raise HandlerExit(_told(error)) from error
    if inspect.isawaitable(answer):
        if inspect.iscoroutine(answer):
            answer.close()
        message = (
            f"the handler of kind {handler.kind!r} is not async, but returned something to be "
            'awaited: pass run_in="loop"'
        )
        raise TypeError(message)
    return answer


def _told(error: BaseException) -> str:
    return f"the handler raised {type(error).__name__}({error})"
