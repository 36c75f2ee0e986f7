"""``BucketTable``: the token buckets that are not full, and which are full first and last."""

from __future__ import annotations

from collections.abc import Iterable

from bucketq.model.indexes.age_index import AgeIndex
from bucketq.model.indexes.table import Table
from bucketq.model.limits import BucketRecord


class BucketTable(Table[BucketRecord]):
    """The buckets of one state."""

    __slots__ = ("_first", "_last")

    def __init__(self, rows: Iterable[BucketRecord] = ()) -> None:
        """Take rows that are in order of their numbers. Raises ``ValueError`` if they are not."""
        super().__init__(rows)
        self._first = AgeIndex(self.by_id, _full_at)
        self._last = AgeIndex(self.by_id, _not_full_for)

    def put(self, row: BucketRecord) -> None:
        """Add a bucket, or replace the record of one."""
        super().put(row)
        self._first.add(row)
        self._last.add(row)

    def first_full(self) -> BucketRecord | None:
        """The bucket that is full first, or None."""
        return self._first.first()

    def last_full(self) -> BucketRecord | None:
        """The bucket that is full last, or None."""
        return self._last.first()


def _full_at(row: BucketRecord) -> float:
    return row.full_at.timestamp()


def _not_full_for(row: BucketRecord) -> float:
    return -row.full_at.timestamp()
