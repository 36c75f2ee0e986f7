"""``HandlerQueue``: how the handlers of a worker reach its queue.

The queue belongs to the loop of the worker's own thread. Async handlers run on another loop, and
get a queue that passes its requests there; handlers in threads get the blocking one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from bucketq.base32 import crockford
from bucketq.client.blocking_queue import BlockingQueue
from bucketq.client.loop_thread import LoopThread
from bucketq.clock import Clock, SystemClock, id_time
from bucketq.commit.base import Committer
from bucketq.errors import InvalidRequestError
from bucketq.model.job_ids import TIME_LENGTH
from bucketq.model.operations import LeaseRef
from bucketq.model.settings import Settings
from bucketq.queue.promised_jobs import FollowUps
from bucketq.queue.push_options import UNLIMITED
from bucketq.queue.queue import Queue
from bucketq.worker.looped_committer import LoopedCommitter

_NOT_HERE = "there is no queue in this context: run the handler by a worker or in a Workbench"


class HandlerQueue:
    """What all handlers of a worker, or of a process that runs handlers for it, share."""

    def __init__(
        self,
        clock: Clock,
        queue: Queue[Any] | None = None,
        blocking: Callable[[], BlockingQueue[Any]] | None = None,
        *,
        relay: LoopedCommitter | None = None,
        reason: str = _NOT_HERE,
    ) -> None:
        """Make one of two faces of a queue; ``reason`` says why there are none, if so."""
        self._clock = clock
        self._queue = queue
        self._blocking = blocking
        self.relay = relay
        """What commits the requests of handlers in other processes."""
        self._reason = reason
        self.settings: Settings = UNLIMITED
        """Those of the queue, as far as they are known."""

    def follow_ups(self, lease: LeaseRef) -> FollowUps:
        """Return an empty list of jobs that are pushed with the completion under a lease."""
        time = crockford(id_time(self._clock), TIME_LENGTH)
        return FollowUps(lease.lease, time, self.settings)

    @property
    def queue(self) -> Queue[Any]:
        """The queue for async handlers."""
        if self._queue is None and self._blocking is None:
            raise InvalidRequestError(self._reason)
        if self._queue is None or not _is_in_a_loop():
            message = "context.queue is for async handlers: use context.queue_sync"
            raise InvalidRequestError(message)
        return self._queue

    @property
    def queue_sync(self) -> BlockingQueue[Any]:
        """The queue for handlers that are not async."""
        if self._blocking is None:
            is_async = self._queue is not None
            message = "context.queue_sync would block the event loop: use context.queue"
            raise InvalidRequestError(message if is_async else self._reason)
        return self._blocking()


async def open_for_handlers(
    queue: Queue[Any],
    loop_thread: LoopThread,
    run_there: Callable[[Any], Any],
) -> HandlerQueue:
    """Open a queue of this loop for handlers; ``run_there`` runs a coroutine on their loop."""
    loop, relays = asyncio.get_running_loop(), list[LoopedCommitter]()

    def wrap(committer: Committer) -> Committer:
        relays.append(LoopedCommitter(committer, loop))
        return relays[0]

    # Not public: it is no verb, and those who use a queue have no committers.
    theirs = queue._through(wrap)  # noqa: SLF001
    blocking = BlockingQueue(loop_thread, queue)

    async def open_theirs() -> None:
        await theirs.__aenter__()

    await run_there(open_theirs())
    return HandlerQueue(SystemClock(), theirs, lambda: blocking, relay=relays[0])


def _is_in_a_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
