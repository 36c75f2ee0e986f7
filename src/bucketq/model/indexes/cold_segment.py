"""``Segment``: a segment that a state names, and what has left it.

Most of what has left stands in the entry of the queue object, as ranges. If there are very many
ranges, an object of its own holds them: the vector that the entry names. Until it was read, only
the number of rows that are left is known, and not which they are.
"""

from __future__ import annotations

from datetime import datetime

from msgspec.structs import replace

from bucketq.model.segments import Gone, SegmentIndex, SegmentRecord


class Segment:
    """A segment that a state names, and what is known of it."""

    __slots__ = ("_is_touched", "gone", "has_vector", "index", "live", "record", "since")

    def __init__(self, record: SegmentRecord) -> None:
        """Begin with the entry of the queue object."""
        self.record = record
        self.live = record.live
        """How many of its rows have not left."""
        self.since = Gone(record.gone)
        """The positions that have left and stand in the entry."""
        self.gone = self.since
        """All positions that have left, once the vector was read."""
        self.has_vector = not record.vector
        """Whether the vector was read, if there is one."""
        self.index: SegmentIndex | None = None
        self._is_touched = False

    def take_vector(self, vector: Gone) -> None:
        """Take what the vector of the entry holds. Raises ``ValueError`` if it does not fit."""
        gone = vector.joined(self.since)
        if self.record.rows - gone.count != self.live:
            message = (
                f"vector {self.record.vector} does not fit segment {self.record.id}: "
                f"{gone.count} of {self.record.rows} rows have left, and {self.live} have not"
            )
            raise ValueError(message)
        self.gone, self.has_vector = gone, True

    def name_vector(self, vector_id: str, size_bytes: int, vector: Gone) -> None:
        """Leave positions that have left to a vector; ``gone`` contains all of them."""
        since = Gone()
        for first, last in self.gone.ranges:
            for position in range(first, last + 1):
                if position not in vector:
                    since.add(position)
        self.since = since
        self.record = replace(
            self.record, vector=vector_id, vector_bytes=size_bytes, gone=since.ranges
        )

    def expire_next(self, at: datetime | None) -> None:
        """Note that no job of it expires before a time; None: none does."""
        self.record = replace(self.record, expires_at=at)

    def leave(self, first: int, last: int) -> None:
        """Note that the rows from a position to another have left."""
        self.gone.add(first, last)
        if self.since is not self.gone:
            self.since.add(first, last)
        self.live -= last - first + 1
        self._is_touched = True

    def leave_below(self, stop: int) -> int:
        """Note that all rows before a position have left; return how many were still there."""
        before = self.gone.count
        self.gone.add_below(stop)
        if self.since is not self.gone:
            self.since.add_below(stop)
        left = self.gone.count - before
        self.live -= left
        self._is_touched = self._is_touched or left > 0
        return left

    def entry(self) -> SegmentRecord:
        """Return the entry for the queue object, as it is now."""
        if self._is_touched:
            self.record = replace(self.record, live=self.live, gone=self.since.ranges)
            self._is_touched = False
        return self.record
