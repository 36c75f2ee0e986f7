"""Functions that work on jobs, by the kind of job.

A handler is found in a registry and never imported by a name from a job. Its signature says what
it wants: the payload, read as its annotated type; the ``Job``; a ``Context``; in any order, or
nothing at all.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Literal, TypeVar, get_args, get_origin

from bucketq.errors import InvalidRequestError, PayloadError
from bucketq.model import check
from bucketq.model.job import Backoff
from bucketq.model.settings import check_backoff
from bucketq.queue import payload as payloads
from bucketq.queue.job import Job
from bucketq.worker.context import Context
from bucketq.worker.handler_exceptions import UnfitPayload

Place = Literal["loop", "thread", "process"]
Function = TypeVar("Function", bound=Callable[..., Any])

_PLACES = ("loop", "thread", "process")
_NOTHING = inspect.Parameter.empty


@dataclass(frozen=True)
class Handler:
    """A function, the kind of job that it is for, and how it is to be run."""

    kind: str
    function: Callable[..., Any]
    place: Place
    wants: Mapping[str, str]
    """Each parameter, and what it is given: ``payload``, ``job`` or ``context``."""
    payload_type: Any = Any
    timeout_s: float | None = None
    max_attempts: int | None = None
    """For jobs that do not say themselves."""
    backoff: Backoff | None = None
    """For jobs that do not say themselves."""

    def arguments(self, context: Context) -> dict[str, Any]:
        """What the function is called with. Raises ``UnfitPayload``."""
        job = Job[Any](context.job.record, self.payload_type)
        if not self.wants:
            return {}
        try:
            if self.payload_type is not Any or "payload" in self.wants.values():
                job.payload  # noqa: B018 - it is decoded here, so that it fails here
        except PayloadError as error:
            # Whoever reads it looks at the job.
            reason = str(error).removeprefix(f"payload of job {job.id}")
            raise UnfitPayload(f"the payload{reason}") from error
        context.job = job
        given = {"job": job, "context": context}
        return {
            name: job.payload if role == "payload" else given[role]
            for name, role in self.wants.items()
        }


class Handlers(Mapping[str, Handler]):
    """The handlers of a worker, by kind."""

    def __init__(self) -> None:
        """Begin with none."""
        self._by_kind: dict[str, Handler] = {}

    def __getitem__(self, kind: str) -> Handler:
        """The handler of a kind."""
        return self._by_kind[kind]

    def __iter__(self) -> Iterator[str]:
        """The kinds, in the order in which they were added."""
        return iter(self._by_kind)

    def __len__(self) -> int:
        """How many kinds there are."""
        return len(self._by_kind)

    def add(self, handler: Handler) -> None:
        """Add a handler. Raises ``InvalidRequestError`` where its kind has one."""
        if handler.kind in self._by_kind:
            other = self._by_kind[handler.kind].function
            message = (
                f"kind {handler.kind!r} has a handler already, {_name(other)}: "
                f"{_name(handler.function)} needs a kind of its own"
            )
            raise InvalidRequestError(message)
        self._by_kind[handler.kind] = handler


def bind(
    kind: str,
    function: Callable[..., Any],
    *,
    timeout: float | timedelta | None = None,
    max_attempts: int | None = None,
    backoff: Backoff | None = None,
    run_in: Place | None = None,
) -> Handler:
    """Make a handler of a function. Raises ``InvalidRequestError`` on what cannot work."""
    check.kind(kind)
    if max_attempts is not None:
        check.max_attempts(max_attempts)
    if backoff is not None:
        check_backoff(backoff)
    timeout_s = timeout.total_seconds() if isinstance(timeout, timedelta) else timeout
    if timeout_s is not None:
        check.delay(timeout_s, "timeout")
        if not timeout_s:
            message = f"the timeout of {_name(function)} must be more than 0 seconds"
            raise InvalidRequestError(message)
    wants, payload_type = _read_signature(function)
    return Handler(
        kind=kind,
        function=function,
        place=_place(function, run_in),
        wants=wants,
        payload_type=payload_type,
        timeout_s=timeout_s,
        max_attempts=max_attempts,
        backoff=backoff,
    )


def check_reachable(handler: Handler) -> None:
    """Raise ``InvalidRequestError`` where another process would not find a handler's function."""
    function = handler.function
    found: Any = sys.modules.get(function.__module__)
    for name in function.__qualname__.split("."):
        found = getattr(found, name, None)
    if found is not function:
        message = (
            f"the handler of kind {handler.kind!r} runs in a process, which has to find it as "
            f"{function.__module__}.{function.__qualname__}, and something else is there: let "
            "@worker.handler be its outermost decorator"
        )
        raise InvalidRequestError(message)


def _place(function: Callable[..., Any], wanted: Place | None) -> Place:
    """Where to run a function: async ones on the loop, others in a thread, unless told."""
    is_async = inspect.iscoroutinefunction(function)
    if wanted is None:
        return "loop" if is_async else "thread"
    if wanted not in _PLACES:
        message = f"run_in must be one of {', '.join(_PLACES)}, got {wanted!r}"
        raise InvalidRequestError(message)
    if wanted == "thread" and is_async:
        message = f"{_name(function)} is async and runs on the event loop, or in a process"
        raise InvalidRequestError(message)
    if wanted == "process" and not hasattr(function, "__qualname__"):
        message = (
            f"{_name(function)} has no name under which another process could find it: define a "
            "function at the top of its module"
        )
        raise InvalidRequestError(message)
    if wanted == "process" and "<locals>" in function.__qualname__:
        message = (
            f"{_name(function)} is defined inside a function, where another process cannot find "
            "it: move it to the top of its module"
        )
        raise InvalidRequestError(message)
    return wanted


def _read_signature(function: Callable[..., Any]) -> tuple[dict[str, str], Any]:
    """What each parameter is to be given, and the type of the payload."""
    if inspect.isasyncgenfunction(function) or inspect.isgeneratorfunction(function):
        message = f"{_name(function)} is a generator: a handler returns its result"
        raise InvalidRequestError(message)
    try:
        parameters = inspect.signature(function, eval_str=True).parameters.values()
    except (NameError, TypeError, ValueError) as error:
        message = f"the signature of {_name(function)} cannot be read: {error}"
        raise InvalidRequestError(message) from error
    wants: dict[str, str] = {}
    types: dict[str, Any] = {}
    for parameter in parameters:
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            continue
        role, kind_of_payload = _role(parameter)
        if role == "payload" and role in wants.values():
            if parameter.default is not _NOTHING:
                continue
            message = (
                f"{_name(function)} wants {parameter.name!r} beside a payload: a handler takes "
                "one payload, and a Job or a Context if it asks for them by annotation"
            )
            raise InvalidRequestError(message)
        if parameter.kind is parameter.POSITIONAL_ONLY:
            message = f"{parameter.name!r} of {_name(function)} must not be positional-only"
            raise InvalidRequestError(message)
        wants[parameter.name] = role
        if kind_of_payload not in (Any, object):
            types[parameter.name] = kind_of_payload
    payload_type = next(iter(types.values()), Any)
    if any(other != payload_type for other in types.values()):
        message = f"{', '.join(types)} of {_name(function)} tell of payloads of different types"
        raise InvalidRequestError(message)
    _check_payload(function, payload_type)
    return wants, payload_type


def _check_payload(function: Callable[..., Any], payload_type: Any) -> None:
    try:
        payloads.check_type(payload_type)
    except InvalidRequestError as error:
        message = f"{_name(function)}: {error}"
        raise InvalidRequestError(message) from error


def _role(parameter: inspect.Parameter) -> tuple[str, Any]:
    """What a parameter is given, and the type of payload that it tells of."""
    wanted = parameter.annotation
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
