"""How a job that has left the queue is found in the archive.

The archive is sorted by the hour in which jobs finished. An id that bucketq made begins with the
time of its push, so the search begins there and goes forward; such an id is used once. Any other id
may have been used before, so the search goes back from now, and the newest job with it counts.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from bucketq.archive.writer import ArchiveWriter
from bucketq.clock import Clock
from bucketq.errors import JobNotFoundError
from bucketq.model.job_ids import made_at
from bucketq.model.records import JobRecord
from bucketq.model.results import JobEnd, end_of

_SKEW = timedelta(hours=1)
"""How far the clocks of a client and of a writer may differ: the former is in the id, and by the
latter the hours of the archive are named."""
_OWN_IDS = timedelta(days=1)
"""How far back a job with an id of its user's own is looked for: each hour costs a listing."""


_OLDEST = timedelta(days=3660)
"""Ten years. An id that seems to be older is one of a user's own that looks like a made one."""


async def find_end(archive: ArchiveWriter | None, clock: Clock, job_id: str) -> JobEnd:
    """Return how a job in the archive ended. Raises ``JobNotFoundError``."""
    found = None if archive is None else await _find(archive, clock.now(), job_id)
    end = None if found is None else end_of(found)
    if end is None:
        message = f"no job {job_id!r} in the queue or its archive: it was never pushed, or"
        raise JobNotFoundError(f"{message} finished so long ago that it is not looked for")
    return end


async def _find(archive: ArchiveWriter, now: datetime, job_id: str) -> JobRecord | None:
    reader, until = archive.reader(), now + _SKEW
    pushed_ms = made_at(job_id)
    since = None if pushed_ms is None else datetime.fromtimestamp(pushed_ms / 1000, UTC) - _SKEW
    if since is not None and now - _OLDEST < since < until:
        return await reader.find(job_id, since, until)
    return await reader.find(job_id, now - _OWN_IDS, until, newest=True)
