"""How much a queue may hold: whether there is room for more jobs."""

from __future__ import annotations

from collections.abc import Iterable

from bucketq.errors import QueueFullError
from bucketq.model.settings import MIB
from bucketq.model.state import State

_LEAST_OUTBOX_BYTES = 64 * MIB
_MOST_OUTBOX_BYTES = 256 * MIB
"""How much room finished jobs have at least, however small the queue is, and at most, however deep
it is: they are in the object, which every commit writes. Between these they have as much as all
others together, and no push is refused for them before: an archiver that works keeps them far
below this, but one that fails must not let the object grow without end."""


def check_room(state: State, count: int, added_bytes: int, kinds: Iterable[str]) -> None:
    """Raise ``QueueFullError`` unless there is room for jobs of some kinds."""
    settings, done = state.settings, state.done
    unfinished = state.jobs_count - len(done)
    if count and unfinished + count > settings.max_jobs:
        raise QueueFullError(
            f"queue full: it holds {unfinished:,} jobs that are not finished, "
            f"{settings.max_jobs:,} are allowed (max_jobs); try again when some are finished"
        )
    size_bytes = max(0, state.size_bytes + state.added_bytes - done.size_bytes)
    size_bytes += state.cold.rows.live_bytes
    if size_bytes + added_bytes > settings.max_bytes:
        raise QueueFullError(
            f"queue full: it has about {size_bytes:,} bytes without finished jobs, "
            f"{settings.max_bytes:,} are allowed (max_bytes); try again when some jobs are finished"
        )
    outbox_bytes = min(max(settings.max_bytes, _LEAST_OUTBOX_BYTES), _MOST_OUTBOX_BYTES)
    if done.size_bytes > outbox_bytes:
        trouble = state.archive_trouble
        raise QueueFullError(
            f"queue full: {len(done):,} finished jobs ({done.size_bytes:,} bytes, at most "
            f"{outbox_bytes:,} are allowed) wait for the archive"
            + (f", and archiving fails: {trouble}; " if trouble else "; ")
            + "run `bucketq archive flush`, or keep a broker or a worker running that archives them"
        )
    if count + len(state.counts) <= settings.max_kinds:
        return  # A kind has one count or more, so there cannot be too many.
    present = {kind for kind, status in state.counts if status != "done"}
    if len(present.union(kinds)) > settings.max_kinds:
        raise QueueFullError(
            f"too many kinds: the queue holds {len(present):,}, {settings.max_kinds:,} are "
            "allowed (max_kinds); put what varies in the payload or a tag"
        )
