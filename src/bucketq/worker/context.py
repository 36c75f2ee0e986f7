"""What a handler may ask for beside its payload."""

from __future__ import annotations

from typing import Any

from bucketq.model.operations import LeaseRef
from bucketq.queue.job import Job
from bucketq.worker.handler_exceptions import JobCancelled


class Context:
    """One attempt at a job, seen from its handler.

    An async handler that is to stop is cancelled, and one in a process is ended. A handler in a
    thread cannot be: one that runs for long looks at ``cancelled`` now and then.
    """

    def __init__(self, job: Job[Any]) -> None:
        """Describe an attempt that goes on."""
        self.job = job
        self.cancelled = False
        """Whether to stop: nobody waits for the result any more."""

    @property
    def attempt(self) -> int:
        """Which attempt this is, from 1. It never repeats, so what you write to can fence by it."""
        return self.job.attempt

    @property
    def lease(self) -> LeaseRef:
        """What shows that this attempt holds the job."""
        return self.job.lease

    def raise_if_cancelled(self) -> None:
        """Raise ``JobCancelled`` where the handler is to stop."""
        if self.cancelled:
            message = f"job {self.job.id} (attempt {self.job.attempt}) is to stop"
            raise JobCancelled(message)
