"""``connect_sync``: the verbs of a queue for programs that do not use asyncio.

The queue runs on an event loop in a thread of its own, and a call waits for it. Ctrl-C interrupts
the waiting, not the commit.
"""

from __future__ import annotations

from typing import Any, Generic, NoReturn, TypeVar, Unpack, overload

from bucketq.client.blocking_queue import BlockingQueue
from bucketq.client.connect import Options, UnopenedQueue, connect
from bucketq.client.loop_thread import LoopThread
from bucketq.errors import ClosedError

T = TypeVar("T")


class UnopenedBlockingQueue(Generic[T]):
    """A queue that is about to be opened: ``with connect_sync(url) as queue``."""

    def __init__(self, connection: UnopenedQueue[T]) -> None:
        self._connection = connection
        self._loop_thread: LoopThread | None = None

    def __enter__(self) -> BlockingQueue[T]:
        """Open the queue."""
        loop_thread = LoopThread()
        try:
            queue = loop_thread.call(self._connection.__aenter__)
        except BaseException:
            loop_thread.stop()
            raise
        self._loop_thread = loop_thread
        return BlockingQueue(loop_thread, queue)

    def __exit__(self, *error: object) -> None:
        """Commit pending requests, and close."""
        loop_thread, self._loop_thread = self._loop_thread, None
        if loop_thread is None or loop_thread.is_inherited:
            return
        try:
            loop_thread.call(self._connection.__aexit__)
        finally:
            loop_thread.stop()

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
