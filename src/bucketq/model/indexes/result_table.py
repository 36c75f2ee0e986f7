"""``ResultTable``: where the results of archived jobs are, and how many there are."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from bucketq.model.indexes.table import Table
from bucketq.model.results import ResultRow


class ResultTable(Table[ResultRow]):
    """Rows in the order in which jobs left."""

    __slots__ = ("count", "row_bytes")

    def __init__(self, rows: Iterable[ResultRow] = ()) -> None:
        super().__init__(rows)
        self.count = sum(row.count for row in self)
        """How many results are known."""
        self.row_bytes = sum(row.size_bytes for row in self if not row.has_moved)
        """About how many bytes the rows take that have not moved to an object."""

    def put(self, row: ResultRow) -> None:
        """Add a row behind all others."""
        super().put(row)
        self.count += row.count
        self.row_bytes += row.size_bytes

    def remove(self, row_id: str) -> None:
        """Take a row out."""
        row = self.by_id[row_id]
        super().remove(row_id)
        self.count -= row.count
        self.row_bytes -= 0 if row.has_moved else row.size_bytes

    def move(self, rows: Sequence[ResultRow], name: str) -> None:
        """Let the name of an object stand for rows that are here."""
        for row in rows:
            self.remove(row.id)
        last, count = rows[-1], sum(row.count for row in rows)
        latest = max(row.at for row in rows)
        self.insert([ResultRow(id=name, seq=last.seq, at=latest, count=count)])
        self.count += count

    def oldest(self) -> ResultRow | None:
        """The row of the jobs that left first, or None."""
        return next(iter(self), None)

    def names(self) -> set[str]:
        """The objects to which rows have moved."""
        return {row.id for row in self if row.has_moved}
