"""What the model asks of the parts of segments that were read: the ``SegmentCache`` protocol.

``commit.objects.segment_parts`` implements it. A state that was just decoded has ``NothingRead``.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping
from typing import Protocol

from bucketq.model.records import JobRecord, KeyRecord, Unknown
from bucketq.model.segments import Block, Gone, SegmentIds, SegmentIndex, SegmentRecord

DecodedJobs = tuple[list[JobRecord], Mapping[int, Unknown]]
"""Jobs in a row, and by their positions the unknown fields of those that have some."""


class SegmentCache(Protocol):
    """What was read of segments. A part that is not there returns None."""

    def index(self, segment: SegmentRecord) -> SegmentIndex | None:
        """Return the index of a segment."""
        ...

    def seqs(self, segment: SegmentRecord) -> array[int] | None:
        """Return the number of each row of a segment."""
        ...

    def ids(self, segment: SegmentRecord) -> SegmentIds | None:
        """Return the hashes of a segment's ids."""
        ...

    def is_damaged(self, segment: SegmentRecord) -> bool:
        """Whether a segment is missing or damaged, so that its rows cannot be read."""
        ...

    def vector(self, segment: SegmentRecord) -> Gone | None:
        """Return the positions of a segment that are in its vector."""
        ...

    def has_block(self, segment: SegmentRecord, block: Block) -> bool:
        """Whether a block was read."""
        ...

    def jobs(
        self, segment: SegmentRecord, block: Block, start: int, stop: int
    ) -> DecodedJobs | None:
        """Return the jobs of a block from a position to before another."""
        ...

    def keys(
        self, segment: SegmentRecord, block: Block, start: int, stop: int
    ) -> list[KeyRecord] | None:
        """Return the idempotency keys of a block from a position to before another."""
        ...


class NothingRead:
    """The cache of a state whose segments were never read."""

    def index(self, segment: SegmentRecord) -> None:
        """Return None."""

    def seqs(self, segment: SegmentRecord) -> None:
        """Return None."""

    def ids(self, segment: SegmentRecord) -> None:
        """Return None."""

    def is_damaged(self, segment: SegmentRecord) -> bool:
        """Return False."""
        return False

    def vector(self, segment: SegmentRecord) -> None:
        """Return None."""

    def has_block(self, segment: SegmentRecord, block: Block) -> bool:
        """Return False."""
        return False

    def jobs(self, segment: SegmentRecord, block: Block, start: int, stop: int) -> None:
        """Return None."""

    def keys(self, segment: SegmentRecord, block: Block, start: int, stop: int) -> None:
        """Return None."""
