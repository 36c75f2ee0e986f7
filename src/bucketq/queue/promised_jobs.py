"""``FollowUps``: jobs to push in the commit that completes another job, and ``PromisedJobId``.

Their ids follow from the lease of that job and from their place, so that they are known before the
commit, and no other attempt makes the same.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

from msgspec.structs import replace

from bucketq.errors import InvalidRequestError
from bucketq.model.base import NewJob
from bucketq.model.job_ids import JobId, job_id
from bucketq.model.partitions import id_in_partition, split_lease
from bucketq.model.requests.stateless_checks import (
    check_amount,
    check_follow_up,
    names_of,
    stands_twice,
)
from bucketq.model.settings import Settings
from bucketq.queue.push_options import UNLIMITED, JobSpec, new_job
from bucketq.queue.trace_context import current_traceparent


class PromisedJobId(JobId):
    """The id of a job that is pushed when the handler that asked for it has completed its own.

    It can be awaited, and is there already: async handlers write ``await context.push(...)``.
    """

    follow_ups: FollowUps

    def __await__(self) -> Generator[None, None, JobId]:
        """Return it at once."""
        yield from ()
        return self

    @property
    def is_pending(self) -> bool:
        """Whether its handler still runs, so that the job cannot be there."""
        return not self.follow_ups.is_closed


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

    def add(self, spec: JobSpec[Any]) -> PromisedJobId:
        """Check and encode a job, and return its id."""
        lease, partition = split_lease(self._lease)
        made_id = job_id(self._time, lease, 0, len(self._jobs))
        if partition is not None:
            made_id = id_in_partition(made_id, partition)
        job = new_job(spec, made_id, Any)
        if (span := current_traceparent()) is not None:
            job = replace(job, traceparent=span)
        self.take(job)
        promised = PromisedJobId(job.id)
        promised.follow_ups = self
        return promised

    def take(self, job: NewJob) -> None:
        """Check a job, and push it with the completion."""
        if self.is_closed:
            message = "the handler has ended, so it is too late for follow-up jobs: use queue.push"
            raise InvalidRequestError(message)
        settings = self._settings
        job_bytes = check_follow_up(job, settings, settings.max_payload_bytes)
        # What is larger is written beside the queue before the completion.
        is_large = job_bytes > settings.inline_bytes and settings.max_format > 1
        size_bytes = self._size_bytes + (0 if is_large else job_bytes)
        check_amount(len(self._jobs) + 1, size_bytes)
        names = set(names_of(job))
        if names & self._names:
            raise stands_twice(min(names & self._names))
        self._names |= names
        self._size_bytes = size_bytes
        self._jobs.append(job)
