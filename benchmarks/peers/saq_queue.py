"""SAQ on Redis, with the calls that its worker makes for a job: dequeue, update, finish.

It has no call that takes many jobs.
"""

from __future__ import annotations

from typing import Any

from benchmarks.peers.adapter import KIND, Adapter, Payload
from saq import Queue, Status
from saq.job import Job

WAIT_S = 1.0
"""How long a claim waits for a job; SAQ takes 0 for "forever"."""


class SaqQueue(Adapter):
    """A queue with the default settings, which allow 20 operations at once."""

    async def setup(self, *, is_first: bool) -> None:
        """Connect."""
        del is_first
        self.queue: Any = Queue.from_url(self.address)
        await self.queue.connect()

    async def push(self, payload: Payload) -> None:
        """Enqueue a job."""
        await self.queue.enqueue(KIND, **payload)

    async def claim(self, limit: int) -> list[Job]:
        """Dequeue a job and mark it as active, as a worker does."""
        del limit
        job = await self.queue.dequeue(timeout=WAIT_S)
        if job is None:
            return []
        job.attempts += 1
        await job.update(status=Status.ACTIVE)
        return [job]

    async def complete(self, jobs: list[Job]) -> None:
        """Finish a job."""
        for job in jobs:
            await job.finish(Status.COMPLETE)

    async def close(self) -> None:
        """Disconnect."""
        await self.queue.disconnect()
