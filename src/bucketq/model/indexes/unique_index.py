"""The jobs of the object that have a unique name, by kind and name.

It is built when a unique job is first pushed to a state, so that other queues pay nothing for it.
Entries of jobs that have left are skipped, and dropped once they outnumber the others.
"""

from __future__ import annotations

from bucketq.model.id_hashes import unique_name
from bucketq.model.indexes.table import Table
from bucketq.model.records import JobRecord

_SWEEP_ABOVE = 64  # So few entries are not worth a sweep.


class UniqueIndex:
    """Finds jobs by their unique names; those in segments are found by ``ColdRows``."""

    def __init__(self, jobs: Table[JobRecord]) -> None:
        """Index the rows of a table once a name is looked for."""
        self._jobs = jobs
        self._ids: dict[str, dict[str, None]] | None = None
        """The ids of the jobs of each name, which are several only after a redrive."""
        self._count = 0
        self._sweep_at = _SWEEP_ABOVE

    def find(self, name: str) -> list[JobRecord]:
        """Return the jobs with a kind and a unique name (``unique_name``) that are not done."""
        if self._ids is None:
            self._ids = {}
            for job in self._jobs:
                self.add(job)
        holders = (self._holder(name, job_id) for job_id in self._ids.get(name, ()))
        return [job for job in holders if job is not None]

    def add(self, job: JobRecord) -> None:
        """Add a job that has come to the object."""
        if self._ids is None or job.unique is None or job.status == "done":
            return
        ids = self._ids.setdefault(unique_name(job.kind, job.unique), {})
        self._count += job.id not in ids
        ids[job.id] = None
        if self._count > self._sweep_at:
            self._sweep()

    def _sweep(self) -> None:
        kept: dict[str, dict[str, None]] = {}
        for name, ids in (self._ids or {}).items():
            if held := {each: None for each in ids if self._holder(name, each) is not None}:
                kept[name] = held
        self._ids = kept
        self._count = sum(map(len, kept.values()))
        self._sweep_at = 2 * self._count + _SWEEP_ABOVE

    def _holder(self, name: str, job_id: str) -> JobRecord | None:
        """Return the job of an entry, if it still has the name; its id may be another's by now."""
        job = self._jobs.by_id.get(job_id)
        if job is None or job.unique is None or job.status == "done":
            return None
        return job if unique_name(job.kind, job.unique) == name else None
