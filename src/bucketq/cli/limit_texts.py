"""How commands say that a limit holds jobs up."""

from __future__ import annotations

from typing import Any

from bucketq.errors import InvalidRequestError, RejectedError
from bucketq.model.limits import LimitInfo
from bucketq.queue.job import Job
from bucketq.queue.queue import Queue


def describe(limit: LimitInfo) -> str:
    """Say how near a limit is."""
    parts = []
    if limit.running is not None:
        parts.append(f"{limit.active} of {limit.running} running")
    if limit.rate is not None:
        parts.append(f"{limit.tokens} of {limit.rate} starts left in {limit.period_s:g} s")
    return ", ".join(parts)


async def limits_of(queue: Queue[Any], job: Job[Any]) -> list[LimitInfo]:
    """Return the limits that hold a job up; none if a broker does not know limits."""
    if job.status != "queued":
        return []
    try:
        found = await queue.limits(kind=job.kind, group=job.group)
    except (InvalidRequestError, RejectedError):
        return []
    return [limit for limit in found if limit.is_reached]
