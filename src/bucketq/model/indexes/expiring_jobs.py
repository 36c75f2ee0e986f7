"""``ExpiringJobs``: the jobs of the object that expire unless they are claimed in time.

Nothing is kept for other jobs, so a queue without expiring jobs pays nothing. Entries of segments
say when the next of their jobs expires.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from heapq import heappop, heappush

from bucketq.model.indexes.age_index import AgeIndex
from bucketq.model.records import JobRecord

FEATURE = "expiry"
"""What an object with such jobs requires of its readers: others would hand out expired ones, and
write segments without the times."""


class ExpiringJobs:
    """Jobs in the order in which they expire, and those that claims have skipped."""

    def __init__(self, jobs: Mapping[str, JobRecord]) -> None:
        """Begin with none of ``jobs``."""
        self._jobs = jobs
        self._ages = AgeIndex(jobs, expiry_of, ())
        self.skipped: list[tuple[float, int, str]] = []
        """A heap of the jobs that are in no lane any more, the one that expired last first."""

    def add(self, job: JobRecord) -> None:
        """Add a job that waits, if it expires."""
        self._ages.add(job)

    def skip(self, job: JobRecord) -> None:
        """Note that a claim has taken an expired job out of its lane; it is finished later."""
        if job.expires_at is not None:
            self._ages.add(job)  # If it is in a segment, it was not here before.
            heappush(self.skipped, (-job.expires_at.timestamp(), job.seq, job.id))

    def first(self) -> JobRecord | None:
        """The job that expires next, or None."""
        return self._ages.first()

    def take_unexpired(self, now: datetime) -> list[JobRecord]:
        """Return the skipped jobs that have not expired: the clock was set back since."""
        found = []
        while self.skipped and -self.skipped[0][0] > now.timestamp():
            _, seq, job_id = heappop(self.skipped)
            job = self._jobs.get(job_id)
            if job is not None and job.seq == seq and job.status == "queued":
                found.append(job)
        return found

    def sweep(self) -> None:
        """Drop the entries of jobs that have changed or left."""
        self._ages.sweep()


def expiry_of(job: JobRecord) -> datetime | None:
    """When a job expires; None: it does not, or was claimed before."""
    return job.expires_at if job.attempt == 0 and job.status == "queued" else None
