"""When a job is retried, and when it is dead.

The jitter is a hash of job and attempt, so that applying an operation again gives the same
time, while jobs that failed together do not come back together.
"""

from __future__ import annotations

from datetime import timedelta
from hashlib import blake2b

from bucketq.model.records import Backoff, JobRecord
from bucketq.model.settings import Settings

_LONGEST_S = 365 * 86400.0  # No retry is later than a year, whatever the backoff says.


def attempts_left(job: JobRecord, settings: Settings) -> int:
    """How many more failures or lost leases a job may have."""
    limit = settings.max_attempts if job.max_attempts is None else job.max_attempts
    return max(0, limit - job.failures - job.lost_leases)


def delay_after_failure(job: JobRecord, settings: Settings) -> timedelta:
    """How long a job waits after it has just failed for the ``job.failures``-th time."""
    backoff = job.backoff or settings.backoff
    full_s = min(_power(backoff, job.failures - 1), backoff.max_s, _LONGEST_S)
    return timedelta(seconds=full_s * (0.5 + 0.5 * _jitter(job)))


def _power(backoff: Backoff, exponent: int) -> float:
    try:
        return backoff.base_s * backoff.factor**exponent
    except OverflowError:
        return backoff.max_s if backoff.base_s else 0.0


def _jitter(job: JobRecord) -> float:
    digest = blake2b(f"{job.id}/{job.attempt}".encode(), digest_size=4).digest()
    return int.from_bytes(digest) / 2**32
