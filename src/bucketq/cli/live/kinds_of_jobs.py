"""``KindsOfJobs``: the kinds of jobs whose changes do not name them.

Only the change that pushed a job has its kind. Those that were seen are remembered, and others are
read from the queue, each once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from bucketq.cli.live.job_events import JobEvent
from bucketq.errors import JobNotFoundError
from bucketq.queue.queue import Queue

_MOST = 100_000
"""How many jobs are remembered: about 20 MB."""
_AT_ONCE = 32
"""How many are read at the same time: enough to hide latency, and a broker has other callers."""


class KindsOfJobs:
    """Knows the kinds of the jobs of one queue."""

    def __init__(self, queue: Queue[Any]) -> None:
        """Read what is not known from ``queue``."""
        self._queue = queue
        self._kinds: dict[str, str] = {}

    async def fill_in(self, events: Sequence[JobEvent]) -> None:
        """Set the kinds of events; that of a job which has left for the archive stays empty."""
        for event in events:
            if event.job and event.kind:
                self._remember(event.job, event.kind)
        unknown = {event.job for event in events if event.job} - self._kinds.keys()
        turns = asyncio.Semaphore(_AT_ONCE)
        await asyncio.gather(*(self._read(job, turns) for job in sorted(unknown)))
        for event in events:
            event.kind = event.kind or self._kinds.get(event.job, "")

    async def _read(self, job: str, turns: asyncio.Semaphore) -> None:
        async with turns:
            try:
                found = await self._queue.get(job)
            except JobNotFoundError:
                return
        self._remember(job, found.kind)

    def _remember(self, job: str, kind: str) -> None:
        self._kinds.pop(job, None)
        self._kinds[job] = kind
        while len(self._kinds) > _MOST:
            del self._kinds[next(iter(self._kinds))]
