"""Pushes through a handler: ``await send.push(Email(to="ada"))``, checked by type checkers.

``@worker.handler`` gives a function the methods ``push``, ``push_sync`` and ``job``, which know its
kind, the type of its payload, and its defaults. The function itself stays what it is. Its jobs go
to the queue of the worker, which must be open in this process: by ``worker.connect``, or because
the worker runs.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar, Unpack, cast, overload

from bucketq.client.blocking_queue import BlockingQueue
from bucketq.client.connect import Options, connect
from bucketq.client.loop_thread import LoopThread
from bucketq.errors import InvalidRequestError
from bucketq.loop_calls import call_on
from bucketq.model.job_ids import JobId
from bucketq.queue import payload as payloads
from bucketq.queue.job import Job
from bucketq.queue.push_options import JobSpec, PushOptions
from bucketq.queue.queue import Queue
from bucketq.worker.context import Context
from bucketq.worker.handlers import Handler

P = ParamSpec("P")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)
T = TypeVar("T")
T_contra = TypeVar("T_contra", contravariant=True)


class PushableHandler(Protocol[P, R_co, T_contra]):
    """A handler whose payload is of a type."""

    __name__: str

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R_co:
        """Call the function, here and now."""
        ...

    async def push(self, payload: T_contra, **options: Unpack[PushOptions]) -> JobId:
        """Push a job for this handler; the options are those of ``Queue.push``."""
        ...

    def push_sync(self, payload: T_contra, **options: Unpack[PushOptions]) -> JobId:
        """Push a job from code without asyncio."""
        ...

    def job(self, payload: T_contra, **options: Unpack[PushOptions]) -> JobSpec[Any]:
        """Return a job for ``push_many``."""
        ...


class PushableWithoutPayload(Protocol[P, R_co]):
    """A handler that takes no payload."""

    __name__: str

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R_co:
        """Call the function, here and now."""
        ...

    async def push(self, **options: Unpack[PushOptions]) -> JobId:
        """Push a job for this handler; the options are those of ``Queue.push``."""
        ...

    def push_sync(self, **options: Unpack[PushOptions]) -> JobId:
        """Push a job from code without asyncio."""
        ...

    def job(self, **options: Unpack[PushOptions]) -> JobSpec[Any]:
        """Return a job for ``push_many``."""
        ...


class Registers(Protocol):
    """The decorator that ``@worker.handler`` returns."""

    @overload
    def __call__(self, function: Callable[[], R], /) -> PushableWithoutPayload[[], R]: ...

    @overload
    def __call__(
        self, function: Callable[Concatenate[Job[T], P], R], /
    ) -> PushableHandler[Concatenate[Job[T], P], R, T]: ...

    @overload
    def __call__(
        self, function: Callable[Concatenate[Context, P], R], /
    ) -> PushableHandler[Concatenate[Context, P], R, Any]: ...

    @overload
    def __call__(
        self, function: Callable[Concatenate[T, P], R], /
    ) -> PushableHandler[Concatenate[T, P], R, T]: ...


class OpenQueues:
    """The queues to which the handlers of a worker are pushed: the one that was opened last."""

    def __init__(self) -> None:
        self._opened: list[tuple[asyncio.AbstractEventLoop, Queue[Any]]] = []

    def __reduce__(self) -> tuple[type[OpenQueues], tuple[()]]:
        """Leave the open queues here, if a function is sent to another process with its code."""
        return OpenQueues, ()

    @contextmanager
    def opened(self, queue: Queue[Any], loop: asyncio.AbstractEventLoop) -> Iterator[None]:
        """Push to a queue that is open on a loop."""
        entry = (loop, queue)
        self._opened.append(entry)
        try:
            yield
        finally:
            self._opened.remove(entry)

    @asynccontextmanager
    async def connect(self, url: str, options: Options) -> AsyncIterator[Queue[Any]]:
        """Open a queue on this loop, and push to it."""
        async with connect(url, **options) as queue:
            with self.opened(queue, asyncio.get_running_loop()):
                yield queue

    @contextmanager
    def connect_sync(self, url: str, options: Options) -> Iterator[BlockingQueue[Any]]:
        """Open a queue on the loop of a new thread, and push to it."""
        loop_thread = LoopThread()
        try:
            connection = connect(url, **options)
            queue = loop_thread.call(connection.__aenter__)
            try:
                with self.opened(queue, loop_thread.loop):
                    yield BlockingQueue(loop_thread, queue)
            finally:
                loop_thread.call(connection.__aexit__)
        finally:
            loop_thread.stop()

    async def push(self, job: JobSpec[Any]) -> JobId:
        """Push a job, from any loop."""
        loop, queue = self._newest()
        if loop is asyncio.get_running_loop():
            [job_id] = await queue.push_many([job])
            return job_id
        pushing = asyncio.run_coroutine_threadsafe(queue.push_many([job]), loop)
        [job_id] = await asyncio.wrap_future(pushing)
        return job_id

    def push_sync(self, job: JobSpec[Any]) -> JobId:
        """Push a job, and block until it is durable."""
        loop, queue = self._newest()
        with suppress(RuntimeError):
            if loop is asyncio.get_running_loop():
                raise InvalidRequestError(
                    "push_sync would block the event loop of the queue: `await handler.push(...)`"
                )
        [job_id] = call_on(loop, queue.push_many, [job])
        return job_id

    def _newest(self) -> tuple[asyncio.AbstractEventLoop, Queue[Any]]:
        if not self._opened:
            raise InvalidRequestError(
                "the queue of the worker is not open in this process: push inside `async with "
                "worker.connect():` or `with worker.connect_sync():`"
            )
        return self._opened[-1]


def add_pushes(
    handler: Handler, priority: int, unique: Callable[[Any], str] | None, queues: OpenQueues
) -> None:
    """Give the function of a handler the methods of ``PushableHandler``."""
    if unique is not None and not callable(unique):
        raise InvalidRequestError(
            "unique of a handler is a function that returns the name for a payload, like "
            f"unique=lambda user: str(user['id']); got {unique!r}"
        )
    kind, payload_type = handler.kind, handler.payload_type

    def job(payload: Any = None, **options: Unpack[PushOptions]) -> JobSpec[Any]:
        payloads.encode(payload, "payload", payload_type)  # Raises if it does not fit.
        given: PushOptions = {"priority": priority, **options}
        if unique is not None and "unique" not in options:
            given["unique"] = unique(payload)
        return JobSpec[Any](kind=kind, payload=payload, **given)

    async def push(payload: Any = None, **options: Unpack[PushOptions]) -> JobId:
        return await queues.push(job(payload, **options))

    def push_sync(payload: Any = None, **options: Unpack[PushOptions]) -> JobId:
        return queues.push_sync(job(payload, **options))

    function = cast("Any", handler.function)
    # A bound method, for example, takes no attributes: it is a handler without these methods.
    with suppress(AttributeError):
        function.job, function.push, function.push_sync = job, push, push_sync
