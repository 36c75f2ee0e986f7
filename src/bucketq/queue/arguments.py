"""Checks of what callers pass to verbs: claimed jobs, names, durations, iterables."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from typing import TypeVar

from bucketq.errors import InvalidRequestError
from bucketq.model import check
from bucketq.model import operations as ops
from bucketq.model.job_ids import JobId
from bucketq.model.records import NOTHING
from bucketq.queue import payload as payloads
from bucketq.queue.job import Job

A = TypeVar("A")
D = TypeVar("D", float, float | None)
T = TypeVar("T")

MAX_WAIT_S = 3600.0
"""How long a claim may wait. To wait for longer, claim again; that costs one request an hour."""

_NO_RESULT: payloads.Body = (NOTHING, None)

Duration = float | timedelta
"""Seconds, or a ``timedelta``."""
Held = Job[T] | ops.LeaseRef
"""A job that was claimed, or its lease."""
Names = str | Iterable[str] | None
"""One name, several, or None for all."""


def to_seconds(duration: D | timedelta) -> D | float:
    """Convert a ``timedelta``, and nothing else."""
    return duration.total_seconds() if isinstance(duration, timedelta) else duration


def seconds(duration: Duration, what: str) -> float:
    """Check a duration that is not negative."""
    number = to_seconds(duration)
    check.delay(number, what)
    return number


def as_job_id(answer: str) -> JobId:
    """Return the id that a push answered; one that was known is a ``JobId`` already."""
    return answer if isinstance(answer, JobId) else JobId(answer)


def as_job_ids(answers: Iterable[str]) -> list[JobId]:
    """Return the ids that a push of several jobs answered."""
    return [answer if isinstance(answer, JobId) else JobId(answer) for answer in answers]


def as_plain(name: A) -> A | str:
    """Return a ``JobId`` as a plain string, which alone can be stored; anything else as it is."""
    return str(name) if isinstance(name, JobId) else name


def job_name(job_id: str) -> str:
    """Check the id of a job."""
    job_id = as_plain(job_id)
    check.name(job_id, "job id")
    return job_id


def lease_of(job: object) -> ops.LeaseRef:
    """Return the lease of a claimed job."""
    if isinstance(job, Job):
        return job.lease
    if isinstance(job, ops.LeaseRef):
        check.name(job.lease, "lease")
        return ops.LeaseRef(job_name(job.job), job.lease)
    message = f"pass a job that was claimed, or its lease; got {type(job).__name__}"
    raise InvalidRequestError(message)


def completion(item: object) -> ops.Completion:
    """Encode a finished job, or a tuple of one, its result, and the jobs that it pushes."""
    if isinstance(item, Job):  # Most have no result.
        record = item.record
        return ops.Completion(job=record.id, lease=record.lease or "")
    job, result, *more = item if isinstance(item, tuple) and len(item) in (2, 3) else (item, None)
    lease, follow_ups = lease_of(job), more[0] if more else ()
    raw, encoding = encode_result(result)
    return ops.Completion(
        job=lease.job,
        lease=lease.lease,
        result=raw,
        result_encoding=encoding,
        follow_ups=follow_ups,
    )


def encode_result(result: object) -> payloads.Body:
    """Encode the result of a job; None: it has none."""
    return _NO_RESULT if result is None else payloads.encode(result, "result")


def as_several(values: Iterable[A], what: str) -> Iterable[A]:
    """Check that values are iterable."""
    if not isinstance(values, Iterable):
        message = f"{what}, got {type(values).__name__}"
        raise InvalidRequestError(message)
    return values


def as_names(names: Names, what: str) -> tuple[str, ...]:
    """Check one name or several; return none for all."""
    if names is None:
        return ()
    if isinstance(names, str):
        several: tuple[str, ...] = (names,)
    else:
        several = tuple(as_several(names, f"{what} must be a name or several"))
    several = tuple(map(as_plain, several))
    for name in several:
        check.name(name, what)
    if not several:
        message = f"{what} is empty: name at least one, or leave it out for all"
        raise InvalidRequestError(message)
    return several


def lease_seconds(lease_s: Duration | None) -> float | None:
    """Check how long a worker may be silent; None: what the settings say."""
    number = to_seconds(lease_s)
    check.lease(number)
    return number
