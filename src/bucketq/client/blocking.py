"""``connect_sync``: the same verbs for programs that do not use asyncio.

A queue of its own runs on an event loop in a thread of its own; a call hands its work over and
waits. Ctrl-C interrupts the waiting, not the commit: nothing is left half done.
"""

from __future__ import annotations

from typing import Any, Generic, NoReturn, TypeVar, Unpack, overload

from bucketq.client.blocking_queue import BlockingQueue
from bucketq.client.connect import Options, UnopenedQueue, connect
from bucketq.client.portal import Portal
from bucketq.errors import ClosedError

T = TypeVar("T")


class UnopenedBlockingQueue(Generic[T]):
    """A queue that is about to be opened: ``with connect_sync(url) as queue``."""

    def __init__(self, connection: UnopenedQueue[T]) -> None:
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
        """Explain how to open it."""
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
) -> UnopenedBlockingQueue[T]: ...


@overload
def connect_sync(url: str, **options: Unpack[Options]) -> UnopenedBlockingQueue[Any]: ...


def connect_sync(
    url: str, *, payload_type: Any = Any, **options: Unpack[Options]
) -> UnopenedBlockingQueue[Any]:
    """Open a queue without asyncio: ``with bucketq.connect_sync(url) as queue``.

    The arguments are those of ``connect``.
    """
    return UnopenedBlockingQueue(connect(url, payload_type=payload_type, **options))
