"""``Lifespan``: what a worker opens before its first job, and closes after its last.

Functions of ``on_start`` open what handlers share, such as a pool of connections, and put it into
the state, a dictionary. A handler takes it from there by a parameter (``db: Pool =
worker.state("db")``). Functions of ``on_stop`` close it.
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

from bucketq.errors import InvalidRequestError
from bucketq.worker.counters import OnEnd
from bucketq.worker.handlers import Handler, check_place
from bucketq.worker.middleware import Middleware
from bucketq.worker.runners.handler_spans import span_middleware

Hook = Callable[..., Awaitable[None] | None]
"""A function of ``on_start`` or ``on_stop``; it takes the state, or nothing."""


class Lifespan:
    """What runs before, after and around the handlers of a worker."""

    def __init__(self) -> None:
        self.on_start: list[Hook] = []
        self.on_stop: list[Hook] = []
        self.middleware: list[Middleware] = []
        self.on_end: OnEnd | None = None
        """Receives the attempts that have ended, for metrics."""

    def attach(
        self, handlers: Mapping[str, Handler], state: dict[str, Any], url: str | None = None
    ) -> dict[str, Handler]:
        """Return the handlers with the middleware, and with the state if they take part of it.

        Their spans name the queue ``url``, if the program traces.
        """
        spans = span_middleware(url, may_come=bool(self.on_start))
        around = (*spans, *self.middleware)
        return {
            kind: replace(handler, middleware=around, state=state if handler.state_names else {})
            for kind, handler in handlers.items()
        }

    async def start(self, handlers: Mapping[str, Handler], state: dict[str, Any]) -> None:
        """Call the functions of ``on_start``, in the order of their registration.

        Raises:
            InvalidRequestError: A handler takes something that no function has put into the state.
        """
        for hook in self.on_start:
            await _call(hook, state)
        _check_state(handlers, state)

    @asynccontextmanager
    async def running(
        self, handlers: Mapping[str, Handler], given: Mapping[str, Any] | None
    ) -> AsyncIterator[dict[str, Handler]]:
        """Start, yield the handlers of a run, and stop; with a ``given`` state neither."""
        state = dict(given or {})
        attached = self.attach(handlers, state)
        for handler in attached.values():
            check_place(handler)
        if given is not None:
            _check_state(attached, state)
            yield attached
            return
        await self.start(attached, state)
        try:
            yield attached
        finally:
            await self.stop(state)

    async def stop(self, state: dict[str, Any]) -> None:
        """Call the functions of ``on_stop``, the last one first, even if one of them raises."""
        errors: list[Exception] = []
        for hook in reversed(self.on_stop):
            try:
                await _call(hook, state)
            except Exception as error:  # noqa: BLE001 - raised below, when all were called
                errors.append(error)
        if len(errors) > 1:
            raise ExceptionGroup("functions of @worker.on_stop failed", errors)
        if errors:
            raise errors[0]


def _check_state(handlers: Mapping[str, Handler], state: Mapping[str, Any]) -> None:
    for handler in handlers.values():
        for name in handler.state_names.values():
            if name not in state:
                raise InvalidRequestError(
                    f"the handler of kind {handler.kind!r} takes worker.state({name!r}), but "
                    f"state[{name!r}] was not set: set it in a function of @worker.on_start"
                )


async def _call(hook: Hook, state: dict[str, Any]) -> None:
    waiting = hook(state) if inspect.signature(hook).parameters else hook()
    if inspect.isawaitable(waiting):
        await waiting
