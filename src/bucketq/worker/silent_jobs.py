"""Running jobs without heartbeats, for which a burst waits before it ends.

The job of a killed worker is queued again once an open queue has heard no heartbeat for the length
of its lease. A burst that ends sooner would leave the job as it is, and so would the next burst.

The age of a heartbeat compares wall clocks, which may be wrong. So it only decides how long a
burst waits.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from datetime import datetime
from typing import Any

from bucketq.errors import BucketQError
from bucketq.model.settings import Settings
from bucketq.queue.arguments import MAX_WAIT_S
from bucketq.queue.queue import Queue

_log = logging.getLogger("bucketq.worker")

_LOOK_S = 5.0
"""How long listing the running jobs may take; a burst ends without an answer."""
_LOOKED_AT = 500
"""How many running jobs are checked: one silent job is enough, and one request must be cheap."""


async def worth_waiting_s(
    queue: Queue[Any], kinds: Iterable[str], settings: Settings, now: datetime
) -> float:
    """How long to wait for a job that had no heartbeat for longer than its lease.

    It is 0 if there is none, or if the queue cannot or must not be read. Jobs with their own lease
    are ignored: they belong to streams, and their leases may be long.
    """
    try:
        async with asyncio.timeout(_LOOK_S):
            page = await queue.jobs(statuses="running", kinds=tuple(kinds), limit=_LOOKED_AT)
    except (BucketQError, TimeoutError):
        return 0.0
    is_one_silent = any(
        job.record.lease_s is None
        and job.heartbeat_at is not None
        and (now - job.heartbeat_at).total_seconds() > settings.lease_s
        for job in page.jobs
    )
    if not is_one_silent:
        return 0.0
    wait_s = min(settings.lease_s + settings.grace_s + settings.heartbeat_s, MAX_WAIT_S)
    _log.info("waiting up to %.0f s for jobs whose workers seem to be gone", wait_s)
    return wait_s
