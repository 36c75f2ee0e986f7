"""Which row of a table has not been used for longest?

The order follows from the rows alone, their times and then their numbers, so that a state forgets
alike before and after a reload. Finding the oldest costs next to nothing at any size: entries of
rows that were used since are dropped when they come to the front, or when they are too many.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from heapq import heapify, heappop, heappush
from typing import Generic, Protocol, TypeVar

from bucketq.model.table import Row, Table

_SWEEP_ABOVE = 64


class Aging(Row, Protocol):
    """A row that says when it was last used."""

    @property
    def at(self) -> datetime:
        """When it was last used."""
        ...


R = TypeVar("R", bound=Aging)


class AgeIndex(Generic[R]):
    """The rows of one table that may be forgotten, by age."""

    __slots__ = ("_entries", "_may_go", "_table")

    def __init__(self, table: Table[R], may_go: Callable[[R], bool]) -> None:
        """Take all rows of a table for which ``may_go`` holds."""
        self._table = table
        self._may_go = may_go
        self._entries: list[tuple[datetime, int, str]] = []
        self._sort()

    def note(self, row: R) -> None:
        """Take a row that was just put into the table."""
        if not self._may_go(row):
            return
        heappush(self._entries, (row.at, row.seq, row.id))
        if len(self._entries) > 2 * len(self._table) + _SWEEP_ABOVE:
            self._sort()

    def oldest(self) -> R | None:
        """The row that has not been used for longest, of those that may be forgotten."""
        while self._entries:
            at, seq, row_id = self._entries[0]
            row = self._table.get(row_id)
            if row is not None and (row.at, row.seq) == (at, seq) and self._may_go(row):
                return row
            heappop(self._entries)
        return None

    def before(self, at: datetime, count: int) -> list[R]:
        """The rows that were not used since ``at``, the oldest first, and ``count`` at most."""
        found: dict[str, R] = {}
        entries = []
        while len(found) < count and (row := self.oldest()) is not None and row.at < at:
            found[row.id] = row
            entries.append(heappop(self._entries))
        for entry in entries:
            heappush(self._entries, entry)
        return list(found.values())

    def _sort(self) -> None:
        self._entries = [(row.at, row.seq, row.id) for row in self._table if self._may_go(row)]
        heapify(self._entries)
