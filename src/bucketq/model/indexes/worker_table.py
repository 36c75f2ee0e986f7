"""``WorkerTable``: the workers that the object lists, and which was heard longest ago."""

from __future__ import annotations

from collections.abc import Iterable
from operator import attrgetter

from bucketq.model.indexes.age_index import AgeIndex
from bucketq.model.indexes.table import Table
from bucketq.model.worker_records import WorkerRecord


class WorkerTable(Table[WorkerRecord]):
    """Workers by id and by number, and in the order in which they were last heard."""

    __slots__ = ("_ages",)

    def __init__(self, rows: Iterable[WorkerRecord] = ()) -> None:
        super().__init__(rows)
        self._ages = AgeIndex(self.by_id, attrgetter("at"))

    def put(self, row: WorkerRecord) -> None:
        """Add a worker, or replace the record of one."""
        super().put(row)
        self._ages.add(row)

    def oldest(self) -> WorkerRecord | None:
        """The worker that was heard longest ago, or None."""
        return self._ages.first()
