"""Acknowledges micro-batches: the queue then counts their jobs as done.

A running stream acknowledges a micro-batch when Spark asks for the next one, which Spark does once
it has committed the batch to the checkpoint. So the last micro-batch of a query that was stopped
stays open until the query is started again, or until ``finish`` is called.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

from bucketq.errors import InvalidRequestError
from bucketq.queue.queue import Queue
from bucketq.spark.queue_access import QueueAccess
from bucketq.spark.stream.checkpoint import last_committed

_log = logging.getLogger(__name__)


async def acknowledge_micro_batch(queue: Queue[Any], consumer: str, epoch: int, batch: int) -> None:
    """Complete the jobs of a micro-batch that Spark has committed.

    Raises ``ConsumerFencedError`` if another driver has opened the consumer since. Safe to retry:
    a batch that is acknowledged already is left as it is.
    """
    state = await queue.ack_batch(consumer, epoch, batch)
    warn_of_lost(consumer, batch, state.lost)


def warn_of_lost(consumer: str, batch: int, lost: Sequence[str]) -> None:
    """Log that jobs of a micro-batch that is done were not completed with it, if some were not."""
    if lost:
        _log.warning(
            "batch %d of consumer %r is done, but %d of its jobs were claimed by others before "
            "that, and run again: set a longer leaseSeconds",
            batch,
            consumer,
            len(lost),
        )


def finish(
    url: str,
    consumer: str,
    checkpoint: str | None = None,
    *,
    token: str | None = None,
    timeout_s: float = 60.0,
) -> int:
    """Acknowledge the last micro-batch of a stream that has stopped; return how many jobs it had.

    With ``checkpoint``, the folder of the query on a local disk, it raises ``InvalidRequestError``
    if Spark has not committed that micro-batch. Without it, the caller must know that the query
    ended without an error.
    """
    committed = None if checkpoint is None else last_committed(checkpoint, consumer)
    with QueueAccess(url, timeout_s, token).open() as queue:
        known = {each.name: each for each in queue.consumers()}
        if consumer not in known:
            names = ", ".join(known) or "none"
            message = f"no consumer {consumer!r} in the queue; there are: {names}"
            raise InvalidRequestError(message)
        found = known[consumer]
        if not found.pending:
            return 0
        if committed is not None and committed < found.batch:
            message = (
                f"batch {found.batch} of consumer {consumer!r} is not done: Spark has committed up "
                f"to batch {committed}; start the query again, and it repeats that batch"
            )
            raise InvalidRequestError(message)
        state = queue.open_consumer(consumer)
        if state.prepared:  # By a driver that was killed.
            queue.release_batch(consumer, state.epoch, state.batch + 1)
        return queue.ack_batch(consumer, state.epoch, found.batch).jobs
