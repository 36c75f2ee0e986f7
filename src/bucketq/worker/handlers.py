"""Handlers: functions that run jobs, by kind.

Handlers are registered, and never imported by a name from a job. The signature of a function
determines its arguments: the payload, decoded as the annotated type; the ``Job``; a ``Context``;
what the worker has opened at its start (``StateValue``); in any order, or none of them.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar, get_args, get_origin

from bucketq.errors import InvalidRequestError, PayloadError
from bucketq.model import check
from bucketq.model.records import Backoff
from bucketq.model.settings import check_backoff
from bucketq.queue import payload as payloads
from bucketq.queue.arguments import Duration, seconds
from bucketq.queue.job import Job
from bucketq.worker.context import Context
from bucketq.worker.handler_exceptions import UnfitPayload
from bucketq.worker.middleware import Middleware

Place = Literal["loop", "thread", "process"]

_PLACES = get_args(Place)
_NOTHING = inspect.Parameter.empty


@dataclass(frozen=True)
class StateValue:
    """The default of a parameter that receives a value from the state of the worker."""

    name: str


@dataclass(frozen=True)
class Handler:
    """A function, the kind of its jobs, and how to run it."""

    kind: str
    function: Callable[..., Any]
    place: Place
    wants: Mapping[str, str]
    """What each parameter receives: ``payload``, ``job``, ``context`` or ``state``."""
    payload_type: Any = Any
    timeout_s: float | None = None
    max_attempts: int | None = None
    """For jobs that have none of their own."""
    backoff: Backoff | None = None
    """For jobs that have none of their own."""
    state_names: Mapping[str, str] = field(default_factory=dict)
    """Which value of the state each parameter receives that receives one."""
    state: Mapping[str, Any] = field(default_factory=dict, repr=False)
    """The state of the worker, while it runs."""
    middleware: tuple[Middleware, ...] = ()
    """What runs around the function, the first one outermost."""

    def arguments(self, context: Context) -> dict[str, Any]:
        """The arguments of the function. Raises ``UnfitPayload``."""
        if not self.wants:
            return {}
        job = context.job.as_type(self.payload_type)
        found: dict[str, Any] = {}
        try:
            if self.payload_type is not Any:
                job.payload  # noqa: B018 - decodes it, which may raise
            for name, role in self.wants.items():
                if role == "payload":
                    found[name] = job.payload
                elif role == "job":
                    found[name] = job
                elif role == "context":
                    found[name] = context
        except PayloadError as error:
            # The text is recorded in the job, so it need not name it.
            reason = str(error).removeprefix(f"payload of job {job.id}")
            raise UnfitPayload(f"the payload{reason}") from error
        context.job = job
        for name, value in self.state_names.items():
            found[name] = self.state[value]
        return found


class Handlers(dict[str, Handler]):
    """The handlers of a worker, by kind."""

    def add(self, handler: Handler) -> None:
        """Add a handler. Raises ``InvalidRequestError`` if its kind has one already."""
        if handler.kind in self:
            other = self[handler.kind].function
            raise InvalidRequestError(
                f"kind {handler.kind!r} has a handler already, {_name(other)}: "
                f"{_name(handler.function)} needs a kind of its own"
            )
        self[handler.kind] = handler

    def select(self, kinds: str | Iterable[str] | None) -> dict[str, Handler]:
        """The handlers of some kinds, or of all. Raises ``InvalidRequestError``."""
        wanted = list(self) if kinds is None else [kinds] if isinstance(kinds, str) else list(kinds)
        for kind in wanted:
            if kind not in self:
                raise InvalidRequestError(
                    f"the worker has no handler for kind {kind!r}; it has handlers for "
                    f"{', '.join(self)}"
                )
        if not wanted:
            raise InvalidRequestError("kinds is empty: name at least one, or leave it out for all")
        return {kind: self[kind] for kind in wanted}


def bind(
    kind: str,
    function: Callable[..., Any],
    *,
    timeout_s: Duration | None = None,
    max_attempts: int | None = None,
    backoff: Backoff | None = None,
    run_in: Place | None = None,
) -> Handler:
    """Create a handler. Raises ``InvalidRequestError`` if the function cannot be one."""
    check.kind(kind)
    if max_attempts is not None:
        check.max_attempts(max_attempts)
    if backoff is not None:
        check_backoff(backoff)
    limit_s = None if timeout_s is None else seconds(timeout_s, "timeout_s")
    if limit_s == 0:
        raise InvalidRequestError(f"timeout_s of {_name(function)} must be more than 0")
    wants, payload_type = _read_signature(function)
    state_names = _read_state_names(function)
    try:
        payloads.check_type(payload_type)
    except InvalidRequestError as error:
        raise InvalidRequestError(f"{_name(function)}: {error}") from error
    place = _place(function, run_in)
    if place == "process" and state_names:
        raise InvalidRequestError(
            f"{_name(function)} runs in a process, which has no state of the worker: open what it "
            "needs inside it, or run it in a thread"
        )
    return Handler(
        kind=kind,
        function=function,
        place=place,
        wants=wants,
        payload_type=payload_type,
        timeout_s=limit_s,
        max_attempts=max_attempts,
        backoff=backoff,
        state_names=state_names,
    )


def check_place(handler: Handler) -> None:
    """Raise ``InvalidRequestError`` if a handler or its middleware cannot run in its place."""
    for each in handler.middleware:
        if inspect.isasyncgenfunction(each) and not inspect.iscoroutinefunction(handler.function):
            raise InvalidRequestError(
                f"the middleware {_name(each)} is async, but the handler of kind {handler.kind!r} "
                "is not: make the middleware a plain generator, or the handler async"
            )
    if handler.place == "process":
        what = f"the handler of kind {handler.kind!r} runs in a process, which imports"
        _check_reachable(handler.function, f"{what} it as", "@worker.handler")
        for each in handler.middleware:
            function = getattr(each, "func", each)  # A partial is imported as what it calls.
            _check_reachable(function, f"{what} the middleware as", "@worker.middleware")


def _check_reachable(function: Callable[..., Any], what: str, decorator: str) -> None:
    """Raise ``InvalidRequestError`` if another process could not import a function."""
    found: Any = sys.modules.get(function.__module__)
    for name in function.__qualname__.split("."):
        found = getattr(found, name, None)
    if found is not function:
        raise InvalidRequestError(
            f"{what} {function.__module__}.{function.__qualname__}, but that is another object: "
            f"make {decorator} the outermost decorator, on a function at module level"
        )


def _place(function: Callable[..., Any], wanted: Place | None) -> Place:
    """Where to run a function: by default async ones on the loop, others in a thread."""
    is_async = inspect.iscoroutinefunction(function)
    if wanted is None:
        return "loop" if is_async else "thread"
    if wanted not in _PLACES:
        raise InvalidRequestError(f"run_in must be one of {', '.join(_PLACES)}, got {wanted!r}")
    if wanted == "thread" and is_async:
        raise InvalidRequestError(
            f"{_name(function)} is async and runs on the event loop, or in a process"
        )
    if wanted == "process" and not hasattr(function, "__qualname__"):
        raise InvalidRequestError(
            f"{_name(function)} has no name by which another process could import it: define a "
            "function at module level"
        )
    if wanted == "process" and "<locals>" in function.__qualname__:
        raise InvalidRequestError(
            f"{_name(function)} is defined inside a function, so another process cannot import "
            "it: move it to module level"
        )
    return wanted


def _read_signature(function: Callable[..., Any]) -> tuple[dict[str, str], Any]:
    """What each parameter receives, and the type of the payload."""
    if inspect.isasyncgenfunction(function) or inspect.isgeneratorfunction(function):
        raise InvalidRequestError(
            f"{_name(function)} is a generator: a handler must return its result"
        )
    try:
        parameters = inspect.signature(function, eval_str=True).parameters.values()
    except (NameError, TypeError, ValueError) as error:
        raise InvalidRequestError(
            f"the signature of {_name(function)} cannot be read: {error}"
        ) from error
    wants: dict[str, str] = {}
    types: dict[str, Any] = {}
    for parameter in parameters:
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            continue
        role, kind_of_payload = _role(parameter)
        if role == "payload" and role in wants.values():
            if parameter.default is not _NOTHING:
                continue
            raise InvalidRequestError(
                f"{_name(function)} has a parameter {parameter.name!r} besides the payload: a "
                "handler takes one payload, and a Job or a Context by annotation"
            )
        if parameter.kind is parameter.POSITIONAL_ONLY:
            raise InvalidRequestError(
                f"{parameter.name!r} of {_name(function)} must not be positional-only"
            )
        wants[parameter.name] = role
        if kind_of_payload not in (Any, object):
            types[parameter.name] = kind_of_payload
    payload_type = next(iter(types.values()), Any)
    if any(other != payload_type for other in types.values()):
        raise InvalidRequestError(
            f"{', '.join(types)} of {_name(function)} declare different types of payload"
        )
    return wants, payload_type


def _read_state_names(function: Callable[..., Any]) -> dict[str, str]:
    """Which parameters receive which values of the worker's state."""
    return {
        name: parameter.default.name
        for name, parameter in inspect.signature(function).parameters.items()
        if isinstance(parameter.default, StateValue)
    }


def _role(parameter: inspect.Parameter) -> tuple[str, Any]:
    """What a parameter receives, and the type of payload that it declares."""
    wanted = parameter.annotation
    if isinstance(parameter.default, StateValue):
        return "state", Any
    if wanted is Context or (wanted is _NOTHING and parameter.name == "context"):
        return "context", Any
    if wanted is Job or (wanted is _NOTHING and parameter.name == "job"):
        return "job", Any
    if get_origin(wanted) is Job:
        inside = get_args(wanted)[0]
        return "job", Any if isinstance(inside, TypeVar) else inside
    return "payload", Any if wanted is _NOTHING else wanted


def _name(function: Callable[..., Any]) -> str:
    return getattr(function, "__qualname__", repr(function))
