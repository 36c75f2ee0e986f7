"""``list_queues``: the queues under a folder of a store."""

from __future__ import annotations

from bucketq.store.queue_search import FoundQueue, QueueFolder


async def list_queues(url: str) -> list[FoundQueue]:
    """List the queues under an address that ends in a slash, like ``s3://bucket/jobs/``.

    Each has a ``name`` and a ``url`` for ``connect``. They are found by their names, which end in
    ``.json``, and by their first bytes, in all folders but those of queues themselves.

    Raises:
        InvalidRequestError: The address does not end in a slash.
        UnavailableError: The storage did not answer.
    """
    folder = QueueFolder(url)
    try:
        return await folder.find()
    finally:
        await folder.close()
