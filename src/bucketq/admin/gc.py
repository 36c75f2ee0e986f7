"""Deletes segments that a queue no longer needs, when an operator asks for it.

Processes that keep a queue open sweep by themselves, once an hour. This does the same at once, by
the same rules (``commit.objects.segment_sweep``). It also deletes what no process may delete by
itself: the segments of an incarnation that never began, because a restore was killed.
"""

from __future__ import annotations

from dataclasses import dataclass

from bucketq.admin.deletion import incarnation_of
from bucketq.admin.payload_objects import delete_payloads, sweep_payloads
from bucketq.admin.queue_object import ChangedMeanwhileError, QueueObject
from bucketq.admin.segment_reader import SegmentReader
from bucketq.codec.decode import decode
from bucketq.codec.tombstone import read_tombstone
from bucketq.commit.objects.queue_history import QueueHistory
from bucketq.commit.objects.segment_sweep import NamedSegments
from bucketq.errors import InvalidRequestError
from bucketq.model.history import FEATURE
from bucketq.model.operations import Request
from bucketq.model.segments import ForgetFormer
from bucketq.model.state import State
from bucketq.model.transitions import apply

# A conflict means that the queue was changed within one write. If it changes that often, it has a
# broker, which does the same within the hour.
_TRIES = 20


@dataclass(frozen=True)
class Swept:
    """What a sweep deleted."""

    segments: int
    """Segments of the queue that no version can name any more."""
    history: int
    """Objects of the history that the queue has forgotten."""
    former_segments: int
    """Segments of incarnations that have ended."""
    forgotten: tuple[str, ...]
    """Incarnations that have ended, and of which nothing was left."""
    payloads: int = 0
    """Large payloads and results that nothing names."""


async def sweep(target: QueueObject) -> Swept:
    """Delete the segments that no version of the queue can name any more.

    Raises:
        QueueNotFoundError: There is no queue.
        CorruptStateError: It is damaged; nothing was deleted.
        StoreRefusedError: The store does not list or delete.
    """
    state = decode((await target.read()).body, target.url).state
    reader = SegmentReader(target, state)
    history = QueueHistory(target.store, target.key, target.clock)

    async def read_kept() -> NamedSegments:
        return await history.named_by(await reader.read_newest())

    segments = await reader.segments.folder.sweep(read_kept)
    forgotten = await sweep_history(target)
    former, empty = await reader.segments.clear_former(state)
    forgotten_now = empty if await _forget(target, empty) else ()
    payloads = await sweep_payloads(target)
    return Swept(segments, forgotten, former, forgotten_now, payloads)


async def sweep_history(target: QueueObject) -> int:
    """Delete the parts of the history that the queue has forgotten; return how many objects."""
    state = decode((await target.read()).body, target.url).state
    return await target.history_of(state.incarnation).sweep(state) if _has_history(state) else 0


def _has_history(state: State) -> bool:
    """Whether the queue has, or had, a history."""
    return FEATURE in state.requires


async def count_segments(target: QueueObject, incarnation: str) -> int:
    """Count the segments of an incarnation that may be deleted when a person confirms it.

    Raises: as ``clear_incarnation``.
    """
    await _refuse_current(target, incarnation)
    return len([name async for name in target.segments_of(incarnation).names()])


async def clear_incarnation(target: QueueObject, incarnation: str) -> int:
    """Delete all segments of an incarnation that is not the queue's own; return how many.

    Whether it may still begin, because a restore is running, only a person can say.

    Raises:
        InvalidRequestError: It is the queue's own incarnation, or not an incarnation at all.
        StoreRefusedError: The store does not list or delete.
    """
    await _refuse_current(target, incarnation)
    await target.history_of(incarnation).clear()
    await delete_payloads(target, [incarnation], archive=False)
    return await target.segments_of(incarnation).clear()


async def _refuse_current(target: QueueObject, incarnation: str) -> None:
    found = await target.find()
    if found is None or read_tombstone(found.body) is not None:
        return
    current = incarnation_of(found.body)
    if not current:
        raise InvalidRequestError(
            f"{target.url} is damaged, and its incarnation unknown; repair or restore it first"
        )
    if current == incarnation:
        raise InvalidRequestError(
            f"{incarnation} is the present incarnation of {target.url}, which needs its segments; "
            "without --incarnation, those that it no longer needs are deleted"
        )


async def _forget(target: QueueObject, incarnations: tuple[str, ...]) -> bool:
    """Take incarnations off the list of the queue; return whether that was done."""
    for _ in range(_TRIES if incarnations else 0):
        found = await target.read()
        state = decode(found.body, target.url).state
        apply(state, Request(ForgetFormer(incarnations)), target.clock.now()).result()
        if not state.has_changes:
            return True
        try:
            await target.write_state(state, found.etag)
        except ChangedMeanwhileError:
            continue
        return True
    return False
