"""Tries whether a queue can keep segments, and warns if its store refuses them."""

from __future__ import annotations

from bucketq.admin import QueueObject
from bucketq.codec.decode import decode
from bucketq.codec.tombstone import read_tombstone
from bucketq.errors import BucketQError, StoreRefusedError
from bucketq.model.settings import DEEP


async def refused_segments(target: QueueObject) -> str | None:
    """Return a warning if the queue may have segments and the store refuses them.

    It puts, reads, lists and deletes an object of a few bytes. Only a refusal is reported: a queue
    that does not exist yet, is damaged or cannot be reached is another matter.
    """
    try:
        found = await target.find()
        if found is None or read_tombstone(found.body) is not None:
            return None
        state = decode(found.body, target.url).state
        if state.settings.max_format >= DEEP.max_format:
            await target.segments_of(state.incarnation).probe()
    except StoreRefusedError as error:
        return (
            f"{error}; until then all jobs stay in the object, and each commit takes longer the "
            "more there are"
        )
    except BucketQError:
        return None
    return None
