"""``Runner``: the interface between the engine and the ways to run a handler.

The engine runs on one loop and uses no threads. It starts a handler, is called back when that is
over, and cancels it if it should stop.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Coroutine, Mapping
from contextlib import AsyncExitStack, ExitStack
from typing import Any, Protocol

from bucketq.queue.promised_jobs import PromisedJobId
from bucketq.worker.context import Context
from bucketq.worker.handlers import Handler, Place
from bucketq.worker.middleware import enter, enter_plain

Begun = Callable[[], None]
"""A runner calls it, on the engine's loop, when a handler starts: its timeout counts from then."""


class HandlerExit(Exception):  # noqa: N818 - for an exception that is not an error
    """A handler raised ``SystemExit`` or ``KeyboardInterrupt``, which would end the process."""


class Handling(Protocol):
    """A handler that was started. ``asyncio.Task`` is one, and its methods mean the same."""

    def add_done_callback(self, function: Callable[[Any], object], /) -> None:
        """Call a function, on the engine's loop, when the handler is over."""
        ...

    def cancel(self) -> bool:
        """Ask the handler to stop."""
        ...

    def done(self) -> bool:
        """Whether the handler is over."""
        ...

    def cancelled(self) -> bool:
        """Whether it is over because it was cancelled."""
        ...

    def exception(self) -> BaseException | None:
        """What it raised."""
        ...

    def result(self) -> Any:
        """What it returned."""
        ...


class Runner(Protocol):
    """A way to run handlers."""

    def start(self, handler: Handler, context: Context, begun: Begun) -> Handling:
        """Start a handler: in a task, unless a runner has a cheaper way."""
        return asyncio.get_running_loop().create_task(self.run(handler, context, begun))

    def run(self, handler: Handler, context: Context, begun: Begun) -> Coroutine[Any, Any, Any]:
        """Run a handler, call ``begun`` when it starts, and return or raise what it does.

        Raises ``UnfitPayload`` if the payload does not have the type that the handler declares. It
        returns when the handler is over and never before. Cancelling it asks the handler to stop;
        if the handler returns a result anyway, ``run`` returns it.
        """
        ...

    async def close(self) -> None:
        """Release idle threads or processes."""
        ...


class TaskRunner(Runner):
    """Runs handlers on the engine's loop, without threads."""

    async def run(self, handler: Handler, context: Context, begun: Begun) -> Any:
        """Call the handler in this task."""
        begun()
        return await call(handler, context)

    async def close(self) -> None:
        """Do nothing: there are no resources."""


class Runners(Runner):
    """Selects the runner for each handler."""

    def __init__(self, by_place: Mapping[Place, Runner]) -> None:
        self._by_place = by_place

    def start(self, handler: Handler, context: Context, begun: Begun) -> Handling:
        """Start a handler with the runner of its place."""
        return self._by_place[handler.place].start(handler, context, begun)

    async def run(self, handler: Handler, context: Context, begun: Begun) -> Any:
        """Run a handler with the runner of its place."""
        return await self._by_place[handler.place].run(handler, context, begun)

    async def close(self) -> None:
        """Close them all."""
        for runner in self._by_place.values():
            await runner.close()


def call(handler: Handler, context: Context) -> Coroutine[Any, Any, Any]:
    """Call a handler, async or not, within its middleware."""
    return (_call_within if handler.middleware else _call)(handler, context)


async def _call_within(handler: Handler, context: Context) -> Any:
    async with AsyncExitStack() as stack:
        await enter(stack, handler.middleware, context)
        return await _call(handler, context)
    return None  # A middleware has suppressed what the handler raised.


async def _call(handler: Handler, context: Context) -> Any:
    """Call a handler; ``SystemExit`` becomes an error of the handler."""
    arguments = handler.arguments(context)
    try:
        answer = handler.function(**arguments)
        return await answer if inspect.isawaitable(answer) else answer
    except (SystemExit, KeyboardInterrupt) as error:
        raise HandlerExit(_describe_exit(error)) from error


def call_plain(handler: Handler, context: Context) -> Any:
    """Call a handler that is not async, within its middleware."""
    if not handler.middleware:
        return _call_plain(handler, context)
    with ExitStack() as stack:
        enter_plain(stack, handler.middleware, context)
        return _call_plain(handler, context)
    return None  # A middleware has suppressed what the handler raised.


def _call_plain(handler: Handler, context: Context) -> Any:
    """Call a handler that is not async; ``SystemExit`` becomes an error of the handler."""
    arguments = handler.arguments(context)
    try:
        answer = handler.function(**arguments)
    except (SystemExit, KeyboardInterrupt) as error:
        raise HandlerExit(_describe_exit(error)) from error
    if inspect.isawaitable(answer) and not isinstance(answer, PromisedJobId):
        if inspect.iscoroutine(answer):
            answer.close()
        raise TypeError(
            f"the handler of kind {handler.kind!r} is not async, but returned something to be "
            'awaited: pass run_in="loop"'
        )
    return answer


def _describe_exit(error: BaseException) -> str:
    return f"the handler raised {type(error).__name__}({error})"
