"""Waiting for the end of a job: the operations, and what is answered.

A committer parks a ``Wait`` for a job that is not over, and answers it in the commit that ends the
job. A job that has left the queue is looked for in the archive, beside the commits.
"""

from __future__ import annotations

import msgspec
from msgspec import Raw, Struct

from bucketq.model.base import Operation
from bucketq.model.records import (
    NOTHING,
    Encoding,
    Failure,
    JobRecord,
    Outcome,
    Progress,
    Status,
)

_encode = msgspec.json.Encoder().encode


class Wait(Operation, frozen=True):
    """Read how a job ended. Answers a ``JobEnd``, or None if it is not over.

    With ``seen`` it is also answered with a ``Progress``, if the job has come further.
    """

    job: str
    wait_s: float = 0.0
    """How long the committer may park it until the job is over. ``apply`` never waits."""
    seen: str = ""
    """The progress that its caller knows, as JSON (``null``: none); empty: it asks for none."""


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


def news_of(wait: Wait, progress: Progress | None) -> Progress | None:
    """Return the progress of a job if the caller of a wait does not know it yet."""
    if not wait.seen or progress is None or progress_text(progress) == wait.seen:
        return None
    return progress


def progress_text(progress: Progress | None) -> str:
    """Return a progress as JSON."""
    return _encode(progress).decode()
