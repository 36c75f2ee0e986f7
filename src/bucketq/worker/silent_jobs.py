"""Jobs that nobody seems to work on any more, for which a burst waits before it ends.

The job of a worker that was killed is handed out again when somebody has listened for that worker
long enough. A burst that ends sooner would leave the job where it is, and so would the next one.

How a job looks is told by wall clocks, which may be wrong. So nothing follows from it but how long
a burst lasts.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from datetime import datetime
from typing import Any

from bucketq.errors import BucketQError
from bucketq.model.settings import Settings
from bucketq.queue.base import MAX_WAIT_S, Queue

_log = logging.getLogger("bucketq.worker")

_LOOK_S = 5.0
_LOOKED_AT = 500
"""So many running jobs are looked at."""


async def worth_waiting_s(
    queue: Queue[Any], kinds: Iterable[str], settings: Settings, now: datetime
) -> float:
    """How long to wait for a job whose worker seems to be gone; 0: there is none."""
    if not await _is_one_silent(queue, kinds, settings, now):
        return 0.0
    wait_s = min(settings.lease_s + settings.grace_s + settings.heartbeat_s, MAX_WAIT_S)
    _log.info("waiting up to %.0f s for jobs whose workers seem to be gone", wait_s)
    return wait_s


async def _is_one_silent(
    queue: Queue[Any], kinds: Iterable[str], settings: Settings, now: datetime
) -> bool:
    """Whether one of the running jobs has been silent for longer than its lease.

    Those with a lease of their own are a stream's, which may be longer than anybody waits. Where
    the queue must not or cannot be read, there is none.
    """
    try:
        async with asyncio.timeout(_LOOK_S):
            page = await queue.jobs(statuses="running", kinds=tuple(kinds), limit=_LOOKED_AT)
    except (BucketQError, TimeoutError):
        return False
    return any(
        job.record.lease_s is None
        and job.heartbeat_at is not None
        and (now - job.heartbeat_at).total_seconds() > settings.lease_s
        for job in page.jobs
    )
