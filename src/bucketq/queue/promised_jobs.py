"""``FollowUps``: jobs to push in the commit that completes another job.

Their ids follow from the lease of that job and from their place, so that they are known before the
commit, and no other attempt makes the same.
"""

from __future__ import annotations

from typing import Any

from bucketq.errors import InvalidRequestError
from bucketq.model.base import NewJob
from bucketq.model.effects.follow_ups import check_amount, check_follow_up, names_of, stands_twice
from bucketq.model.job_ids import JobId, job_id
from bucketq.model.settings import Settings
from bucketq.queue.push_options import UNLIMITED, JobSpec, new_job


class FollowUps:
    """The jobs that one attempt pushes when it completes."""

    def __init__(self, lease: str, time: str, settings: Settings = UNLIMITED) -> None:
        """Collect jobs for the completion under a lease; ``time`` is how their ids begin."""
        self._lease = lease
        self._time = time
        self._settings = settings
        self._names: set[tuple[str, str]] = set()
        self._size_bytes = 0
        self._jobs: list[NewJob] = []
        self.is_closed = False
        """Whether the attempt has ended, so that it is too late to add jobs."""

    @property
    def jobs(self) -> tuple[NewJob, ...]:
        """What to send with the completion."""
        return tuple(self._jobs)

    def add(self, spec: JobSpec[Any]) -> JobId:
        """Check and encode a job, and return its id."""
        if self.is_closed:
            message = "the handler has ended, and its follow-up jobs with it: use queue.push"
            raise InvalidRequestError(message)
        made_id = job_id(self._time, self._lease, 0, len(self._jobs))
        job = new_job(spec, made_id, Any)
        size_bytes = self._size_bytes + check_follow_up(job, self._settings)
        check_amount(len(self._jobs) + 1, size_bytes)
        names = set(names_of(job))
        if names & self._names:
            raise stands_twice(min(names & self._names))
        self._names |= names
        self._size_bytes = size_bytes
        self._jobs.append(job)
        return JobId(job.id)
