"""Middleware: code around every handler of a worker, for timing, tracing or error reports.

A middleware is a generator function with one ``yield``, at which the handler runs, on the same
thread or event loop, or in the same process. What the handler raises is raised at the ``yield``.
An async one can be around async handlers only.
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, contextmanager
from typing import Any, cast

from bucketq.errors import InvalidRequestError
from bucketq.worker.context import Context

Middleware = Callable[[Context], Iterator[None]] | Callable[[Context], AsyncIterator[None]]


def check_middleware(function: Callable[..., Any]) -> None:
    """Raise ``InvalidRequestError`` if a function cannot be a middleware."""
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        return
    name = getattr(function, "__qualname__", repr(function))
    raise InvalidRequestError(
        f"{name} is no middleware: it must be a generator function, which takes a Context and has "
        "one `yield`, at which the handler runs"
    )


def enter_plain(
    stack: ExitStack | AsyncExitStack, middleware: Sequence[Middleware], context: Context
) -> None:
    """Enter the middleware of a handler, the first one outermost."""
    for each in middleware:
        plain = cast("Callable[[Context], Iterator[None]]", each)
        stack.enter_context(contextmanager(plain)(context))


async def enter(stack: AsyncExitStack, middleware: Sequence[Middleware], context: Context) -> None:
    """Enter the middleware of an async handler, the first one outermost."""
    for each in middleware:
        if inspect.isasyncgenfunction(each):
            await stack.enter_async_context(asynccontextmanager(each)(context))
        else:
            enter_plain(stack, [each], context)
