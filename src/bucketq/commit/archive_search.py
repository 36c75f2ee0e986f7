"""How a job that has left the queue is found in the archive.

If it left with a result lately, the queue knows the file. Otherwise the archive is searched.

The archive is sorted by the hour in which jobs finished. An id that bucketq made begins with the
time of its push, so the search begins there and goes forward; such an id is used once. Any other id
may have been used before, so the search goes back from now, and the newest job with it counts.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from bucketq.archive.writer import ArchiveWriter
from bucketq.clock import Clock
from bucketq.codec.result_index import decode_result_index
from bucketq.commit.objects.register import Register
from bucketq.errors import CorruptStateError, JobNotFoundError
from bucketq.model.job_ids import made_at
from bucketq.model.records import JobRecord
from bucketq.model.results import JobEnd, ResultRow, end_of
from bucketq.model.state import State
from bucketq.store.base import ObjectMissingError

_log = logging.getLogger("bucketq")

_SKEW = timedelta(hours=1)
"""How far the clocks of a client and of a writer may differ: the former is in the id, and by the
latter the hours of the archive are named."""
_OWN_IDS = timedelta(days=1)
"""How far back a job with an id of its user's own is looked for: each hour costs a listing."""
_OLDEST = timedelta(days=3660)
"""Ten years. An id that seems to be older is one of a user's own that looks like a made one."""
_AT_ONCE = 8
"""How many objects of the index are read at once: a read is mostly latency."""


class ArchiveSearch:
    """Looks for jobs in the archive of one queue, and remembers what it has read of the index."""

    def __init__(
        self, register: Register, archive: ArchiveWriter, current: Callable[[], State | None]
    ) -> None:
        """Look into the archive, and into the index of the state that ``current`` returns."""
        self._register = register
        self._archive = archive
        self._current = current
        self._moved: dict[str, list[ResultRow]] = {}
        """Rows of the index that have moved to objects."""

    async def find_indexed(self, job_id: str) -> JobRecord | None:
        """Return a job whose result the index knows; of several with the same id, the newest."""
        state = self._current()
        if state is None:
            state = (await self._register.beside().load_until_answered())[0].state
        rows = list(state.results)
        if not rows:
            return None
        reader, named = self._archive.reader(), state.results.names()
        self._moved = {name: known for name, known in self._moved.items() if name in named}
        rows.reverse()
        while rows:
            # Those that moved are read some at a time; the newest rows have mostly not moved.
            some = rows[:_AT_ONCE] if rows[0].has_moved else rows[:1]
            del rows[: len(some)]
            for group in await asyncio.gather(*map(self._rows_of, some)):
                for row in group:
                    if row.may_have(job_id):
                        found = await reader.find_in(job_id, row.files)
                        if found is not None:
                            return found
        return None

    async def find(self, now: datetime, job_id: str) -> JobRecord | None:
        """Search the archive for a job."""
        reader, until = self._archive.reader(), now + _SKEW
        pushed_ms = made_at(job_id)
        since = None if pushed_ms is None else datetime.fromtimestamp(pushed_ms / 1000, UTC) - _SKEW
        if since is not None and now - _OLDEST < since < until:
            return await reader.find(job_id, since, until)
        return await reader.find(job_id, now - _OWN_IDS, until, newest=True)

    async def _rows_of(self, row: ResultRow) -> list[ResultRow]:
        """Return the rows that a row stands for, the newest first; none if they are lost."""
        if not row.has_moved:
            return [row]
        if row.id not in self._moved:
            folder = self._register.segments.folder
            try:
                body = await folder.read_whole(row.id)
                found = decode_result_index(row.id, body, f"{folder.address}{row.id}")
            except (ObjectMissingError, CorruptStateError) as error:
                _log.warning("where some results are is not known: %s", error)
                found = []
            self._moved[row.id] = found[::-1]
        return self._moved[row.id]


async def find_end(search: ArchiveSearch | None, clock: Clock, job_id: str) -> JobEnd:
    """Return how a job in the archive ended. Raises ``JobNotFoundError``."""
    found = None
    if search is not None:
        found = await search.find_indexed(job_id) or await search.find(clock.now(), job_id)
    end = None if found is None else end_of(found)
    if end is None:
        message = f"no job {job_id!r} in the queue or its archive: it was never pushed, or"
        raise JobNotFoundError(f"{message} finished so long ago that it is not looked for")
    return end
