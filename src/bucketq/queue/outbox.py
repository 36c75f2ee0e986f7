"""How finished jobs leave the queue for the archive, behind everybody's back.

First the segment, then the commit that lets its jobs go; never the other way round. Only jobs
that a landed commit shows as done are taken, and a job that is done never changes, so nothing has
to be locked: two processes that archive at once write a job twice, and readers see it once.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

from bucketq.archive import SegmentWriter
from bucketq.clock import Clock, fraction
from bucketq.errors import BucketQError, UnavailableError
from bucketq.model.operations import Archived, Outbox, ReadOutbox, Request
from bucketq.model.state import State

_log = logging.getLogger("bucketq")

_LOOK_S = 1.0
_PRUNE_S = 3600.0
_BATCH_JOBS = 5000


class Archiver:
    """Moves the finished jobs of one queue to its archive."""

    def __init__(
        self, submit: Callable[[Request], Awaitable[Any]], writer: SegmentWriter, clock: Clock
    ) -> None:
        """Work through ``submit``, the queue's own way to commit a request."""
        self._submit = submit
        self._writer = writer
        self._clock = clock

    async def run(self, current: Callable[[], State | None]) -> None:
        """Archive what has been finished for long enough, for as long as the queue is open.

        ``current`` shows the state in memory: a queue without finished jobs costs no request.
        """
        loop = asyncio.get_running_loop()
        prune_at = loop.time() + _PRUNE_S
        while True:
            await asyncio.sleep(_LOOK_S * (1 + fraction(self._clock)))
            state = current()
            if state is None:
                continue
            try:
                if self._is_due(state):
                    await self.move_some(state.settings.archive_after_s)
                if loop.time() >= prune_at:
                    prune_at = loop.time() + _PRUNE_S
                    await self._prune(state.settings.archive_retention_s)
            except BucketQError:
                continue  # They stay where they are; the next look tries again.
            except Exception:  # noqa: BLE001 - whatever it is, archiving goes on
                _log.exception("archiving failed; the jobs stay in the queue")

    async def flush(self) -> int:
        """Archive everything that is finished now; return how many jobs left."""
        count = 0
        while moved := await self.move_some(0.0):
            count += moved
        return count

    async def move_some(self, min_age_s: float) -> int:
        """Archive a batch of jobs that were finished ``min_age_s`` ago; return how many left."""
        read = ReadOutbox(min_age_s=min_age_s, limit=_BATCH_JOBS)
        outbox: Outbox = await self._submit(Request(read))
        if not outbox.jobs:
            return 0
        await self._write(outbox)
        jobs = tuple((job.id, job.seq) for job, _ in outbox.jobs)
        left: int = await self._submit(Request(Archived(jobs=jobs)))
        return left

    async def _write(self, outbox: Outbox) -> None:
        for attempt in range(5):
            try:
                await self._writer.write(outbox.jobs, outbox.version)
            except UnavailableError:
                await asyncio.sleep(fraction(self._clock) * 2**attempt)
            else:
                return
        await self._writer.write(outbox.jobs, outbox.version)

    async def _prune(self, retention_s: float) -> None:
        if retention_s:
            await self._writer.prune(self._clock.now() - timedelta(seconds=retention_s))

    def _is_due(self, state: State) -> bool:
        oldest = next(iter(state.done), None)
        if oldest is None:
            return False
        finished_at = state.jobs.by_id[oldest].finished_at
        age = timedelta(seconds=state.settings.archive_after_s)
        return finished_at is None or self._clock.now() - finished_at >= age
