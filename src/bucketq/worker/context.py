"""What a handler may ask for beside its payload."""

from __future__ import annotations

from collections.abc import Awaitable, Generator
from typing import Any

from bucketq.model import check
from bucketq.model.operations import LeaseRef
from bucketq.model.records import Progress
from bucketq.queue.job import Job
from bucketq.worker.handler_exceptions import JobCancelled


class _Reported:
    """What a report returns: it can be awaited, and is done already."""

    __slots__ = ()

    def __await__(self) -> Generator[None, None, None]:
        """Return at once."""
        yield from ()


class Context:
    """One attempt at a job, as its handler sees it.

    An async handler that should stop is cancelled, and one in a process is killed. A handler in a
    thread cannot be stopped: one that runs long should check ``cancelled`` regularly.
    """

    def __init__(self, job: Job[Any]) -> None:
        self.job = job
        self.cancelled = False
        """Whether to stop: the result is no longer wanted."""
        self.reported: Progress | None = None
        """The progress that was reported last."""

    @property
    def attempt(self) -> int:
        """The number of the attempt, from 1. It never repeats, so it can be a fencing token."""
        return self.job.attempt

    @property
    def lease(self) -> LeaseRef:
        """The lease by which this attempt holds the job."""
        return self.job.lease

    def progress(self, done: float, total: float | None = None, note: str = "") -> Awaitable[None]:
        """Report how far the handler has come: ``await context.progress(40, 100, "frames")``.

        It is sent with the next heartbeat and costs nothing more, so it may be called often. A
        handler that is not async calls it without ``await``. In a process of its own, or on a
        Spark executor, it has no effect.
        """
        come = Progress(done, total, note)
        check.progress(come)
        self.reported = come
        return _Reported()

    def raise_if_cancelled(self) -> None:
        """Raise ``JobCancelled`` if the handler should stop."""
        if self.cancelled:
            raise JobCancelled(f"job {self.job.id} (attempt {self.job.attempt}) should stop")
