"""``FollowedJobs``: the jobs whose ends have consequences, and the ends that were not followed yet.

A job is followed if it belongs to a batch, or if another job waits for it. Which jobs wait for
which follows from the rows: a job that waits for others stays in the object. A queue without
batches and dependencies pays for one test at the end of a job.
"""

from __future__ import annotations

from collections.abc import Iterable

from bucketq.model.indexes.age_index import AgeIndex
from bucketq.model.indexes.table import Table
from bucketq.model.job_batches import BatchRecord
from bucketq.model.records import JobRecord

AFTER = "after"
"""What an object with jobs that wait for others requires of its readers: others would run them."""

_ROW_BYTES = 200
"""About what the line of a job takes beside its payload and the ids that it waits for."""


class FollowedJobs:
    """Who waits for whom in one state, and its batches."""

    def __init__(self, batches: Iterable[BatchRecord]) -> None:
        """Begin with batches, and no job that waits."""
        self.batches = Table(batches)
        self.batch_ends = AgeIndex(self.batches.by_id, _ended_at)
        self.is_used = bool(self.batches)
        """Whether the end of a job may have consequences."""
        self.waiting: dict[str, dict[str, None]] = {}
        """By the id of a job, the jobs that wait for it."""
        self._held: dict[str, tuple[str, int]] = {}
        """The kind of each held job, and about how many bytes its line takes."""
        self.held_bytes = 0
        self.ends: list[tuple[JobRecord, int]] = []
        """Jobs that have ended (1), or were queued again after that (-1)."""

    @property
    def held_count(self) -> int:
        """How many jobs wait for others."""
        return len(self._held)

    def count_held(self) -> dict[str, int]:
        """Count the jobs of each kind that wait for others; it looks at all of these."""
        counts: dict[str, int] = {}
        for kind, _ in self._held.values():
            counts[kind] = counts.get(kind, 0) + 1
        return counts

    def hold(self, job: JobRecord, requires: dict[str, None]) -> None:
        """Add a job that waits for others, and note what that ``requires`` of readers."""
        self.is_used = True
        requires[AFTER] = None
        size_bytes = held_bytes(job.after, len(job.payload))
        self._held[job.id] = (job.kind, size_bytes)
        self.held_bytes += size_bytes
        for other in job.after:
            self.waiting.setdefault(other, {})[job.id] = None

    def let_go(self, job: JobRecord) -> None:
        """Remove a job that was held."""
        self.held_bytes -= self._held.pop(job.id)[1]
        for other in job.after:
            some = self.waiting[other]
            del some[job.id]
            if not some:
                del self.waiting[other]

    def put_batch(self, batch: BatchRecord) -> None:
        """Add a batch, or replace the record of one."""
        self.is_used = True
        self.batches.put(batch)
        self.batch_ends.add(batch)

    def note_all(self, jobs: Iterable[JobRecord]) -> None:
        """Note jobs that have ended."""
        self.ends += [
            (job, 1) for job in jobs if job.batch_id is not None or job.id in self.waiting
        ]

    def note(self, old: JobRecord, job: JobRecord) -> None:
        """Note a job if it has ended, or has been queued again after that."""
        was_over, is_over = old.status in _OVER, job.status in _OVER
        if was_over is not is_over and (job.batch_id is not None or job.id in self.waiting):
            self.ends.append((job, 1 if is_over else -1))


_OVER = frozenset({"done", "dead"})


def held_bytes(after: tuple[str, ...], payload_bytes: int) -> int:
    """About how many bytes the line of a job takes that waits for others."""
    return _ROW_BYTES + payload_bytes + sum(map(len, after)) + 3 * len(after)


def _ended_at(batch: BatchRecord) -> object:
    return batch.ended_at
