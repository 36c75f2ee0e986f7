"""``connect_sync``: the same verbs for programs that do not use asyncio.

A queue of its own runs on an event loop in a thread of its own; a call hands its work over and
waits. Ctrl-C interrupts the waiting, not the commit: nothing is left half done.
"""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable
from typing import (
    Any,
    Concatenate,
    Generic,
    NoReturn,
    ParamSpec,
    TypeVar,
    Unpack,
    cast,
    overload,
)

from bucketq.client.connect import Connection, Options, connect
from bucketq.client.portal import Portal
from bucketq.errors import ClosedError
from bucketq.queue.queue import Queue

T = TypeVar("T")
A = TypeVar("A")
P = ParamSpec("P")


def _blocking(
    verb: Callable[Concatenate[Any, P], Awaitable[A]],
) -> Callable[Concatenate[BlockingQueue[Any], P], A]:
    """Make the blocking form of a verb."""

    @functools.wraps(verb)
    def call(self: BlockingQueue[Any], /, *args: P.args, **kwargs: P.kwargs) -> A:
        return cast("A", self._call(verb.__name__, *args, **kwargs))

    return call


class BlockingQueue(Generic[T]):
    """A queue whose verbs block until they are done; see ``Queue`` for what each does."""

    def __init__(self, portal: Portal, queue: Queue[T]) -> None:
        """Wrap a queue that lives on the portal's loop."""
        self._portal = portal
        self._queue = queue

    def _call(self, name: str, *args: Any, **kwargs: Any) -> Any:
        return self._portal.call(lambda: getattr(self._queue, name)(*args, **kwargs))

    push = _blocking(Queue.push)
    push_many = _blocking(Queue.push_many)
    claim = _blocking(Queue.claim)
    heartbeat = _blocking(Queue.heartbeat)
    complete = _blocking(Queue.complete)
    complete_many = _blocking(Queue.complete_many)
    fail = _blocking(Queue.fail)
    release = _blocking(Queue.release)
    release_many = _blocking(Queue.release_many)
    cancel = _blocking(Queue.cancel)
    redrive = _blocking(Queue.redrive)
    purge = _blocking(Queue.purge)
    pause = _blocking(Queue.pause)
    resume = _blocking(Queue.resume)
    settings = _blocking(Queue.settings)
    configure = _blocking(Queue.configure)
    create_token = _blocking(Queue.create_token)
    tokens = _blocking(Queue.tokens)
    revoke_token = _blocking(Queue.revoke_token)
    open_consumer = _blocking(Queue.open_consumer)
    claim_batch = _blocking(Queue.claim_batch)
    read_batch = _blocking(Queue.read_batch)
    ack_batch = _blocking(Queue.ack_batch)
    release_batch = _blocking(Queue.release_batch)
    consumers = _blocking(Queue.consumers)
    remove_consumer = _blocking(Queue.remove_consumer)
    publish = _blocking(Queue.publish)
    get = _blocking(Queue.get)
    jobs = _blocking(Queue.jobs)
    stats = _blocking(Queue.stats)
    snapshot = _blocking(Queue.snapshot)
    flush_archive = _blocking(Queue.flush_archive)


class BlockingConnection(Generic[T]):
    """A queue that is about to be opened: ``with connect_sync(url) as queue``."""

    def __init__(self, connection: Connection[T]) -> None:
        """Keep the connection until it is entered."""
        self._connection = connection
        self._portal: Portal | None = None

    def __enter__(self) -> BlockingQueue[T]:
        """Open the queue."""
        portal = Portal()
        try:
            queue = portal.call(self._connection.__aenter__)
        except BaseException:
            portal.stop()
            raise
        self._portal = portal
        return BlockingQueue(portal, queue)

    def __exit__(self, *error: object) -> None:
        """Commit what is under way, and close."""
        portal, self._portal = self._portal, None
        if portal is None or portal.is_inherited:
            return
        try:
            portal.call(self._connection.__aexit__)
        finally:
            portal.stop()

    def __getattr__(self, name: str) -> NoReturn:
        """Tell whoever forgot to open it."""
        if name.startswith("_") or not hasattr(BlockingQueue, name):
            raise AttributeError(name)
        message = (
            f"the queue is not open yet, so {name!r} cannot be used: write "
            "`with bucketq.connect_sync(...) as queue:` and use `queue` inside"
        )
        raise ClosedError(message)


@overload
def connect_sync(
    url: str, *, payload_type: type[T], **options: Unpack[Options]
) -> BlockingConnection[T]: ...


@overload
def connect_sync(url: str, **options: Unpack[Options]) -> BlockingConnection[Any]: ...


def connect_sync(
    url: str, *, payload_type: Any = Any, **options: Unpack[Options]
) -> BlockingConnection[Any]:
    """Open a queue without asyncio: ``with bucketq.connect_sync(url) as queue``.

    The arguments are those of ``connect``.
    """
    return BlockingConnection(connect(url, payload_type=payload_type, **options))
