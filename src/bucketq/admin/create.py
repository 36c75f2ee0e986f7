"""Creates an empty queue."""

from __future__ import annotations

from bucketq.admin.deletion import delete_archive
from bucketq.admin.queue_object import QueueObject, Summary, summarize
from bucketq.clock import new_id
from bucketq.codec.tombstone import read_tombstone
from bucketq.errors import RejectedError
from bucketq.model.partitions import Partition, new_partition
from bucketq.model.settings import DEEP, changed
from bucketq.model.state import State


async def create(
    target: QueueObject,
    settings: dict[str, object] | None = None,
    partition: Partition | None = None,
) -> Summary:
    """Create an empty queue, also in the place of one whose deletion was interrupted.

    What is left of that one is deleted: its archive now, if that was asked for, and its segments
    later, because the new queue lists its incarnations. With a ``partition``, it is that one of a
    queue, whose first partition must be created before.

    Raises:
        RejectedError: There is an object already.
        InvalidRequestError: A setting is unknown or invalid.
    """
    chosen = changed(DEEP, settings or {})
    found = await target.find()
    stone = None if found is None else read_tombstone(found.body)
    if found is not None:
        if stone is None:
            raise RejectedError(f"there is a queue at {target.url} already; it is left as it is")
        await delete_archive(target, found.body)
    state = State(incarnation=new_id(target.clock), created_at=target.clock.now())
    state.settings = chosen
    state.partition = new_partition(partition, state.incarnation, state.requires)
    if stone is not None:
        state.former = dict.fromkeys(stone.incarnations)
    await target.write_state(state, None if found is None else found.etag)
    return summarize(state)
