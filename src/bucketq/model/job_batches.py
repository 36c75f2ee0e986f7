"""Batches, as data: jobs that belong together, and a job that is pushed when all have ended.

A row has counts and no list of jobs, so that a batch of 100,000 jobs costs what one of ten does.
Jobs carry the id of their batch. Its producer closes a batch when it has pushed the last job; the
commit that ends the last job of a closed batch pushes the callback, with the counts.

``batch_changes`` says what each operation does, ``job_ends`` what follows from the end of a job.
"""

from datetime import datetime
from typing import Literal

from msgspec import Raw, Struct

from bucketq.model.base import NewJob, Operation
from bucketq.model.records import Backoff, BatchCounts, Encoding

FEATURE = "batches"
"""What an object with batches requires of its readers: others would end jobs without counting."""

BatchStatus = Literal["open", "closed", "done", "cancelled"]
"""Jobs can be added; they cannot; all have ended; it was cancelled, so that nothing follows."""


class Callback(
    Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True, forbid_unknown_fields=True
):
    """The job that is pushed when a batch is done."""

    kind: str
    payload: Raw
    payload_encoding: Encoding | None = None
    priority: int = 0
    max_attempts: int | None = None
    backoff: Backoff | None = None
    tags: dict[str, str] | None = None
    group: str = ""


class BatchRecord(
    Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True, forbid_unknown_fields=True
):
    """A batch as the object holds it."""

    id: str
    """Made by the client that opens it."""
    seq: int
    opened_at: datetime
    jobs: int = 0
    """How many jobs were added."""
    completed: int = 0
    cancelled: int = 0
    dead: int = 0
    expired: int = 0
    closed_at: datetime | None = None
    """None: jobs can be added."""
    ended_at: datetime | None = None
    """When it was done or cancelled. From then on nothing is counted."""
    was_cancelled: bool = False
    on_done: Callback | None = None
    """What is pushed when it is done; it is dropped then."""
    callback: str = ""
    """The job that was pushed when it was done; empty: there is none."""
    first_seq: int = 0
    """Jobs with lower numbers belong to an earlier batch that had its id."""

    @property
    def counts(self) -> BatchCounts:
        """How its jobs have ended."""
        return BatchCounts(
            self.id, self.jobs, self.completed, self.cancelled, self.dead, self.expired
        )

    @property
    def fits(self) -> bool:
        """Whether none of its counts is below zero."""
        ended = (self.completed, self.cancelled, self.dead, self.expired)
        return min(*ended, self.counts.open) >= 0

    @property
    def status(self) -> BatchStatus:
        """Where it is in its life."""
        if self.ended_at is not None:
            return "cancelled" if self.was_cancelled else "done"
        return "open" if self.closed_at is None else "closed"


class OpenBatch(Operation, frozen=True):
    """Open a batch, to which jobs can be pushed. It is idempotent."""

    batch: str
    on_done: NewJob | None = None
    """What is pushed when it is done; its id is ignored."""


class CloseBatch(Operation, frozen=True):
    """Let no more jobs be added to a batch. Answers its ``BatchRecord``. It is idempotent."""

    batch: str


class CancelBatch(Operation, frozen=True):
    """End a batch without its callback. Answers its ``BatchRecord``. Its jobs stay as they are."""

    batch: str


class CancelJobs(Operation, frozen=True):
    """Cancel the open jobs of a batch, page by page. Answers ``CancelledJobs``.

    Running ones are asked to stop. The batch ends like any other, with its callback.
    """

    batch: str
    limit: int
    """At most this many: a commit writes all of them."""
    after: int = 0
    """``next_after`` of the page before."""


class CancelledJobs(Struct, frozen=True, omit_defaults=True):
    """How many jobs of a batch were cancelled; a request of many jobs has several pages."""

    cancelled: int
    requested: int
    """How many are running, and were asked to stop."""
    next_after: int | None = None
    """Where the next page begins; None: this was the last one."""


class ReadBatches(Operation, frozen=True):
    """Read the batches. Answers a ``BatchRecord`` for each, in the order of their opening."""

    batch: str = ""
    """Only this one; empty: all."""


AnyBatch = OpenBatch | CloseBatch | CancelBatch | CancelJobs | ReadBatches
