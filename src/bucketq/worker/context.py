"""What a handler may ask for beside its payload."""

from __future__ import annotations

from typing import Any

from bucketq.model.operations import LeaseRef
from bucketq.queue.job import Job
from bucketq.worker.handler_exceptions import JobCancelled


class Context:
    """One attempt at a job, as its handler sees it.

    An async handler that should stop is cancelled, and one in a process is killed. A handler in a
    thread cannot be stopped: one that runs long should check ``cancelled`` regularly.
    """

    def __init__(self, job: Job[Any]) -> None:
        self.job = job
        self.cancelled = False
        """Whether to stop: the result is no longer wanted."""

    @property
    def attempt(self) -> int:
        """The number of the attempt, from 1. It never repeats, so it can be a fencing token."""
        return self.job.attempt

    @property
    def lease(self) -> LeaseRef:
        """The lease by which this attempt holds the job."""
        return self.job.lease

    def raise_if_cancelled(self) -> None:
        """Raise ``JobCancelled`` if the handler should stop."""
        if self.cancelled:
            raise JobCancelled(f"job {self.job.id} (attempt {self.job.attempt}) should stop")
