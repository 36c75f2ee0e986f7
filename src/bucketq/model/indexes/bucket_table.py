"""``BucketTable``: the token buckets that are not full, and bounds on when they are full.

Every start of a job with a rate changes a bucket, and hardly any is ever to be forgotten or mended.
So only bounds are kept, and all rows are looked at once a bound says that there may be one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime, timedelta

from bucketq.model.indexes.table import Table
from bucketq.model.limits import BucketRecord


class BucketTable(Table[BucketRecord]):
    """The buckets of one state."""

    __slots__ = ("_empty_until", "_first_full")

    def __init__(self, rows: Iterable[BucketRecord] = ()) -> None:
        """Take rows that are in order of their numbers. Raises ``ValueError`` if they are not."""
        super().__init__(rows)
        self._first_full = min(map(_full_at, self), default=None)
        """No bucket is full before this."""
        self._empty_until: datetime | None = None
        """No bucket has been empty at a later time, with the period of its limit. None: it has to
        be looked for."""

    def add(self, row: BucketRecord, period: timedelta) -> None:
        """Add a bucket, or replace the record of one; ``period`` is that of its limit."""
        self.put(row)
        full_at = row.full_at
        if self._first_full is None or full_at < self._first_full:
            self._first_full = full_at
        if self._empty_until is not None and (empty_at := full_at - period) > self._empty_until:
            self._empty_until = empty_at

    def forget_periods(self) -> None:
        """Note that limits were changed."""
        self._empty_until = None

    def full_before(self, at: datetime) -> list[BucketRecord]:
        """Return the buckets that are full before a time; it is cheap if there are none."""
        if self._first_full is None or self._first_full >= at:
            return []
        self._first_full = min(map(_full_at, self), default=None)
        return [row for row in self if row.full_at < at]

    def empty_after(self, at: datetime, period: Callable[[str], timedelta]) -> list[BucketRecord]:
        """Return the buckets that would be empty after a time; it is cheap if there are none."""
        if self._empty_until is not None and self._empty_until <= at:
            return []
        starts = [(row.full_at - period(row.id), row) for row in self]
        self._empty_until = max((start for start, _ in starts), default=at)
        return [row for start, row in starts if start > at]

    def first_full(self) -> BucketRecord | None:
        """The bucket that is full first, or None; it looks at all."""
        return min(self, key=_full_at, default=None)


def _full_at(row: BucketRecord) -> datetime:
    return row.full_at
