"""Which row comes first by time: unused for longest, died first, due next?

The order follows from the rows alone, their times and then their numbers, so a state that was
reloaded expires the same rows. Finding the first costs the same at any size: entries of rows
that have changed since are dropped when they come to the front, or when there are too many.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from heapq import heapify, heappop, heappush
from typing import Any, Generic, TypeVar

from bucketq.model.indexes.table import Row

_SWEEP_ABOVE = 64  # So few entries are not worth a sweep.

R = TypeVar("R", bound=Row)


class AgeIndex(Generic[R]):
    """Rows in the order of a time, or of anything else that can be compared."""

    __slots__ = ("_entries", "_rows", "_sweep_at", "_when")

    def __init__(
        self, rows: Mapping[str, R], when: Callable[[R], Any], first: Iterable[R] | None = None
    ) -> None:
        """Index rows by ``when``: all of them, or ``first`` and those that are added later.

        A row for which ``when`` returns None is left out.
        """
        self._rows = rows
        self._when = when
        known = rows.values() if first is None else first
        self._entries = [(at, row.seq, row.id) for row in known if (at := when(row)) is not None]
        self.sweep()

    def __len__(self) -> int:
        """How many entries there are, counting those of rows that have changed since."""
        return len(self._entries)

    def add(self, row: R) -> None:
        """Add a row that is new or has changed."""
        at = self._when(row)
        if at is None:
            return
        heappush(self._entries, (at, row.seq, row.id))
        if len(self._entries) > self._sweep_at:
            self.sweep()

    def first(self) -> R | None:
        """The row with the earliest time, or None."""
        while self._entries:
            row = self._row(self._entries[0])
            if row is not None:
                return row
            heappop(self._entries)
        return None

    def pop(self) -> None:
        """Drop the entry of the row that ``first`` has just returned."""
        heappop(self._entries)

    def before(self, at: Any, count: int) -> list[R]:
        """The rows with an earlier time than ``at``, in order, and ``count`` at most."""
        found: dict[str, R] = {}
        entries = []
        while len(found) < count and (row := self.first()) is not None and self._when(row) < at:
            found[row.id] = row
            entries.append(heappop(self._entries))
        for entry in entries:
            heappush(self._entries, entry)
        return list(found.values())

    def rows(self) -> list[R]:
        """All rows, in no order; it looks at every entry."""
        found = {entry[2]: row for entry in self._entries if (row := self._row(entry)) is not None}
        return list(found.values())

    def sweep(self) -> None:
        """Drop the entries of rows that have changed or left."""
        current = {entry[2]: entry for entry in self._entries if self._row(entry) is not None}
        self._entries = list(current.values())
        self._sweep_at = 2 * len(self._entries) + _SWEEP_ABOVE
        heapify(self._entries)

    def _row(self, entry: tuple[Any, int, str]) -> R | None:
        """The row of an entry, unless it has changed; its id may belong to a later row by now."""
        at, seq, row_id = entry
        row = self._rows.get(row_id)
        return row if row is not None and row.seq == seq and self._when(row) == at else None
