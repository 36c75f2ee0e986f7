"""How an attempt begins: the job as its worker holds it, under a lease of that attempt alone."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from hashlib import blake2b

from msgspec.structs import replace

from bucketq.model.operations import AnyClaim
from bucketq.model.records import HEARD, JobRecord


def lease_of(secret: str, job_id: str, attempt: int) -> str:
    """Return the lease of one attempt, derived from the secret of its claim."""
    return blake2b(f"{secret}/{job_id}/{attempt}".encode(), digest_size=16).hexdigest()


def start_all(
    jobs: Sequence[JobRecord], operation: AnyClaim, secret: str, now: datetime
) -> list[JobRecord]:
    """Return jobs as a worker holds them; each has the lease that ``lease_of`` returns."""
    begin = blake2b(f"{secret}/".encode(), digest_size=16).copy
    worker, lease_s = operation.worker, operation.lease_s
    running = []
    for job in jobs:
        attempt, lease = job.attempt + 1, begin()
        lease.update(f"{job.id}/{attempt}".encode())
        held = replace(
            job,
            status="running",
            attempt=attempt,
            lease=lease.hexdigest(),
            worker=worker,
            run_at=None,
            claimed_at=now,
            heartbeat_at=now,
            silent_s=HEARD,
            lease_s=lease_s,
        )
        running.append(held)
    return running
