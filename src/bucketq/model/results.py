"""Waiting for the end of a job: the operations, and what is answered.

A committer parks a ``Wait`` for a job that is not over, and answers it in the commit that ends the
job. A job that has left the queue is looked for in the archive, beside the commits.
"""

from __future__ import annotations

from msgspec import Raw, Struct

from bucketq.model.base import Operation
from bucketq.model.records import NOTHING, Encoding, Failure, JobRecord, Outcome, Status


class Wait(Operation, frozen=True):
    """Read how a job ended. Answers a ``JobEnd``, or None if it is not over."""

    job: str
    wait_s: float = 0.0
    """How long the committer may park it until the job is over. ``apply`` never waits."""


class FindArchived(Operation, frozen=True):
    """Read how a job ended that has left the queue. Answers a ``JobEnd``."""

    job: str


AnyWait = Wait | FindArchived


class JobEnd(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How a job ended: done, with its outcome and result, or dead."""

    id: str
    seq: int
    status: Status
    outcome: Outcome | None = None
    error: Failure | None = None
    """Its last failure."""
    result: Raw = NOTHING
    result_encoding: Encoding | None = None


def end_of(job: JobRecord) -> JobEnd | None:
    """Return how a job ended; None: it is not over."""
    if job.status not in ("done", "dead"):
        return None
    return JobEnd(
        id=job.id,
        seq=job.seq,
        status=job.status,
        outcome=job.outcome,
        error=job.errors[-1] if job.errors else None,
        result=job.result,
        result_encoding=job.result_encoding,
    )
