"""Which segments may be deleted: those that no version of the queue can ever name again.

A segment may be deleted if a version was read from the store that

* is of the segment's incarnation,
* is not older than the last version that may introduce the segment (or, if it was put under a
  reservation, the first version that may list the reservation), and
* neither names the segment nor lists its reservation.

No later version may begin to. This stays true, however long the deletion takes, so no lock is
needed, and the order of listing and reading does not matter for safety. Without the second
condition the rule would be wrong in either order: a segment is put before the commit that names it,
so one that is not named may be named next.

A state in memory is not a proof: its last commit may be lost to one that names the segment. Another
incarnation in the queue object proves nothing about this one, which may be about to begin: a
restore puts its segments before the first version that names them.

``SegmentFolder.sweep`` deletes by this rule. Processes that keep a queue open call it once an hour,
and ``bucketq gc`` at once.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from collections.abc import Set as AbstractSet
from typing import NamedTuple

from bucketq.model.reservations import reservation_of
from bucketq.model.state import State


class NamedSegments(NamedTuple):
    """What a version of the queue that was read from the store says about segments."""

    incarnation: str
    version: int
    ids: AbstractSet[str]
    """Every segment that it names."""
    reservations: AbstractSet[str]
    """Every reservation that it lists."""


ReadNamed = Callable[[], Awaitable[NamedSegments]]
"""Reads the queue object now, and not from memory."""


def named_by(state: State) -> NamedSegments:
    """Return what a version that was just read says about segments."""
    listed = frozenset(state.reservations.by_id)
    named = state.cold.rows.names() | state.results.names()
    return NamedSegments(state.incarnation, state.version, named, listed)


def may_delete(segment_id: str, queue: NamedSegments) -> bool:
    """Whether neither this version of the segment's incarnation nor a later one can name it."""
    return segment_id not in queue.ids and _is_settled(segment_id, queue)


def _is_settled(segment_id: str, queue: NamedSegments) -> bool:
    """Whether no version after this one may introduce a segment."""
    if (reserved := reservation_of(segment_id)) is not None:
        # It is listed from this version on, until the commit that may name its segments.
        reservation, version = reserved
        return queue.version >= version and reservation not in queue.reservations
    until, _, _ = segment_id.partition("-")
    return queue.version >= int(until)
