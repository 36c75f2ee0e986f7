"""``finish``: acknowledges the last batch of a stream that has ended well.

Spark tells a source that a batch is committed only when it asks for the next one. So the last batch
of a query that was stopped stays open until the query is started again, or until this is called.
"""

from __future__ import annotations

from bucketq.client.blocking import connect_sync
from bucketq.errors import InvalidRequestError
from bucketq.spark.stream.checkpoint import last_committed


def finish(
    url: str,
    consumer: str,
    checkpoint: str | None = None,
    *,
    token: str | None = None,
    timeout_s: float = 60.0,
) -> int:
    """Acknowledge the last batch of a stream that does not run any more; return how many jobs.

    With ``checkpoint``, the folder of the query on a local disk, it is refused where Spark has not
    committed that batch. Without it the caller knows that the query has ended well.
    """
    committed = None if checkpoint is None else last_committed(checkpoint, consumer)
    with connect_sync(url, launch="never", create=False, timeout_s=timeout_s, token=token) as queue:
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
                f"to batch {committed}; start the query again, it goes on with that batch"
            )
            raise InvalidRequestError(message)
        state = queue.open_consumer(consumer)
        return queue.ack_batch(consumer, state.epoch, found.batch).jobs
