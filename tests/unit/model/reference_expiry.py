"""Jobs that expire, written down slowly and obviously."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from bucketq.errors import InvalidRequestError
from bucketq.model.base import NewJob


def check_expiry(job: NewJob) -> None:
    """Refuse a job that would never run."""
    if job.expires_in_s is not None and (job.delay_s or 0) >= job.expires_in_s:
        raise InvalidRequestError


def expires_at(job: NewJob, now: datetime) -> datetime | None:
    """When a job that is pushed now expires."""
    return None if job.expires_in_s is None else now + timedelta(seconds=job.expires_in_s)


def has_expired(row: dict[str, Any], now: datetime) -> bool:
    """Whether a job waits in vain: it was never claimed, and its time is over."""
    if row["status"] != "queued" or row["attempt"] or row["expires_at"] is None:
        return False
    return bool(row["expires_at"] <= now)
