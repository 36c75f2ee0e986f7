"""Workers and the audit table as their rules define them, for the reference."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from msgspec import structs

from bucketq.errors import WorkerNotFoundError
from bucketq.model.base import Operation
from bucketq.model.settings import Settings
from bucketq.model.worker_records import Announce, DrainWorker, WorkerRecord
from tests.unit.model.reference_bulk import BulkReference

OPERATORS = frozenset(
    {
        *("cancel", "canceljobs", "redrive", "purge", "pause", "resume", "configure", "granttoken"),
        *("revoketoken", "removeconsumer", "drain", "setlimit", "removelimit", "setpriority"),
    }
)
"""The actions that are audited, of those that the machine does."""


class WorkerReference(BulkReference):
    """Which workers there are, and what operators did."""

    settings: Settings

    def __init__(self) -> None:
        """Begin with none."""
        super().__init__()
        self.workers: dict[str, dict[str, Any]] = {}
        self.actions: list[str] = []
        """All of them, the latest last."""

    def _announce(self, operation: Announce, now: datetime, _seen: object) -> bool:
        row = self.workers.get(operation.id)
        if operation.leaving:
            self.workers.pop(operation.id, None)
            return False
        if row is None:
            if len(self.workers) < self.settings.max_workers:
                self.workers[operation.id] = self._row(operation, now)
            return False
        was_draining = row["draining"]
        age_s = (now - row["at"]).total_seconds()
        is_new = operation.draining and not was_draining
        if is_new or not 0 <= age_s < self.settings.worker_retention_s / 5:
            row.update(self._row(operation, now) | {"since": row["since"]})
            row["draining"] = was_draining or operation.draining
        return bool(was_draining)

    def _drainworker(self, operation: DrainWorker, _now: datetime, _seen: object) -> int:
        count = 0
        for row in self.workers.values():
            if operation.worker in (row["name"], row["id"]):
                row["draining"] = True
                count += 1
        if not count:
            raise WorkerNotFoundError
        return count

    def _row(self, operation: Announce, now: datetime) -> dict[str, Any]:
        names = set(WorkerRecord.__struct_fields__) & set(Announce.__struct_fields__)
        row = {name: value for name, value in structs.asdict(operation).items() if name in names}
        return row | {"since": now - timedelta(seconds=operation.up_s), "at": now}

    def forget_workers(self, now: datetime) -> int:
        """Forget those that were not heard for long; return how many."""
        limit = timedelta(seconds=self.settings.worker_retention_s)
        silent = [name for name, row in self.workers.items() if now - row["at"] > limit]
        for name in silent:
            del self.workers[name]
        return len(silent)

    def note_action(self, operation: Operation) -> None:
        """Note what an operator did."""
        action = str(operation.__struct_config__.tag)
        if action in OPERATORS:
            self.actions.append(action)

    def worker_content(self) -> object:
        """All that is known of workers."""
        return {name: dict(row) for name, row in self.workers.items()}
