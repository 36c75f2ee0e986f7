"""Every error bucketq raises, grouped by what the caller does about it.

A message is lower case and says what happened, to what, and what to do next.

The tree has four branches, and a handler needs no more than these:

* ``UnavailableError``: the outcome is unknown. Try again with the same request.
* ``SupersededError``: the queue that was connected to is no longer the one in the
  object. Connect again.
* ``RejectedError``: it will never succeed as written. Nothing was changed.
* ``CorruptStateError``: the object, or the disk under it, cannot be trusted. Call a person.
"""

from __future__ import annotations


class BucketQError(Exception):
    """The root of every error that bucketq raises on purpose."""


class UnavailableError(BucketQError):
    """The outcome is unknown: the write may have landed, or land later.

    ``request`` names the request where there is one. Passing it to the same verb again
    (``await queue.push(..., request=error.request)``) has the effect of one request,
    whether or not the first one took effect.

    ``throttled`` is set where the storage asked for a slower pace.
    """

    def __init__(
        self, message: str, *, request: str | None = None, throttled: bool = False
    ) -> None:
        """Keep the request, so that a retry can carry the same id."""
        super().__init__(message)
        self.request = request
        self.throttled = throttled


class SupersededError(BucketQError):
    """The queue behind this connection was deleted, replaced or rolled back: connect again.

    A broker says so, too, when another has taken its place; clients then find the new one by
    themselves. ``leader`` is its address, where that is known.
    """

    def __init__(self, message: str, *, leader: str | None = None) -> None:
        """Keep where to go."""
        super().__init__(message)
        self.leader = leader


class RejectedError(BucketQError):
    """The request will never succeed as it is written. Nothing was changed by it."""


class InvalidRequestError(RejectedError, ValueError):
    """A value is of the wrong type, empty, too long, negative or not known."""


class PayloadError(InvalidRequestError):
    """A payload or result cannot be encoded as JSON, or decoded as the requested type."""


class PayloadTooLargeError(RejectedError):
    """A payload, result or batch is larger than the queue's settings allow."""


class PayloadLostError(RejectedError):
    """A large payload or result is missing from the storage, or damaged."""


class UploadExpiredError(RejectedError):
    """A large payload or result was written so long ago that it may be deleted: write it again.

    ``push`` and ``complete`` do that by themselves.
    """


class QueueFullError(RejectedError):
    """The queue is at its soft limit: it takes no more jobs until some have left."""


class OverloadedError(RejectedError):
    """Too many requests are waiting already: send it again, after ``retry_after_s`` at least."""

    def __init__(self, message: str, *, retry_after_s: float = 0.0) -> None:
        """Keep when it makes sense to try again."""
        super().__init__(message)
        self.retry_after_s = retry_after_s


class KeyConflictError(RejectedError):
    """The idempotency key, or the id of a job or token, belongs to other content."""


class JobNotFoundError(RejectedError):
    """The queue holds no job with this id: it was never pushed, or has been archived."""


class JobFailedError(RejectedError):
    """The job that was waited for is dead. ``error`` is what its worker reported last.

    A redrive queues the job again.
    """

    def __init__(self, message: str, *, error: str = "") -> None:
        """Keep the last error."""
        super().__init__(message)
        self.error = error


class JobExpiredError(RejectedError):
    """The job that was waited for was not started before it expired."""


class JobCancelledError(RejectedError):
    """The job that was waited for was cancelled, so it has no result."""


class ScheduleNotFoundError(RejectedError):
    """The queue has no schedule of this name."""


class BatchNotFoundError(RejectedError):
    """The queue has no batch with this id."""


class DependencyNotFoundError(JobNotFoundError):
    """A job cannot wait for one that is in neither the queue nor its archive."""


class WorkerNotFoundError(RejectedError):
    """No worker of this name or id was heard lately."""


class LeaseLostError(RejectedError):
    """Another worker may have the job by now: stop working on it."""


class JobGoneError(LeaseLostError, JobNotFoundError):
    """A worker's job is no longer in the queue: another worker has finished it."""


class HistoryGapError(RejectedError):
    """The history does not reach back that far: begin with a snapshot, or with a later version."""


class ConsumerFencedError(RejectedError):
    """Somebody else has opened this consumer, or it was removed: stop, and leave its batches."""


class AccessDeniedError(RejectedError):
    """The broker asks for a token: none was shown, it is invalid, or lacks a right."""


class QueueNotFoundError(RejectedError):
    """There is no queue object at this address, and the call does not create one."""


class StoreRefusedError(RejectedError):
    """The storage said no for good: no permission, no space, not a file, no such bucket."""


class ClosedError(RejectedError, RuntimeError):
    """The queue is closed, not yet open, or was opened by another process or event loop."""


class CorruptStateError(BucketQError):
    """The object is not one that bucketq wrote, or a segment that it names is lost or damaged.

    Everything is left untouched for a person to look at.
    """


class NotDurableError(CorruptStateError):
    """The disk did not confirm a write: it may be lost when the power fails, so the queue stops.

    Check the disk, then connect again. Whether the requests under way have taken effect is
    unknown; ``request`` names this one, to be passed to the same verb again as that of an
    ``UnavailableError``.
    """

    def __init__(self, message: str, *, request: str | None = None) -> None:
        """Keep the request, so that a retry can carry the same id."""
        super().__init__(message)
        self.request = request


class NewerFormatError(CorruptStateError):
    """The object was written by a newer bucketq: upgrade this one. It is left untouched."""
