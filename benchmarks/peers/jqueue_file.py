"""jqueue, whose whole state is one JSON object too, by its ``BrokerQueue``: group commit.

Its storage for local files does not sync, so what it acknowledged can be lost when the machine
fails.
"""

from __future__ import annotations

import asyncio
import json

from benchmarks.peers.adapter import KIND, Adapter, Payload, Usage
from jqueue import BrokerQueue, Job, LocalFileSystemStorage

DELAY_S = 0.05
"""Of a request to object storage."""


class SlowStorage(LocalFileSystemStorage):  # type: ignore[misc]  # it brings no types here
    """A file that behaves like object storage, and counts requests and bytes."""

    def __init__(self, path: str, usage: Usage) -> None:
        super().__init__(path)
        self.usage = usage

    async def read(self) -> tuple[bytes, str | None]:
        """Read the object."""
        await asyncio.sleep(DELAY_S)
        content, etag = await super().read()
        self.usage.reads += 1
        self.usage.bytes_read += len(content)
        return content, etag

    async def write(self, content: bytes, if_match: str | None = None) -> str:
        """Replace the object."""
        await asyncio.sleep(DELAY_S)
        self.usage.writes += 1
        self.usage.bytes_written += len(content)
        etag: str = await super().write(content, if_match)
        return etag


class JqueueFile(Adapter):
    """A file."""

    async def setup(self, *, is_first: bool) -> None:
        """Start the broker inside this process."""
        del is_first
        storage = LocalFileSystemStorage(self.address)
        if self.slow:
            self.usage = Usage()
            storage = SlowStorage(self.address, self.usage)
        self.queue = BrokerQueue(storage)
        await self.queue.__aenter__()

    async def push(self, payload: Payload) -> None:
        """Enqueue a job."""
        await self.queue.enqueue(KIND, json.dumps(payload).encode())

    async def push_many(self, payloads: list[Payload]) -> None:
        """Enqueue jobs at once, which its group commit puts into one write."""
        await asyncio.gather(*map(self.push, payloads))

    async def claim(self, limit: int) -> list[Job]:
        """Dequeue jobs."""
        return list(await self.queue.dequeue(KIND, batch_size=limit))

    async def complete(self, jobs: list[Job]) -> None:
        """Acknowledge jobs."""
        await asyncio.gather(*(self.queue.ack(job.id) for job in jobs))

    async def close(self) -> None:
        """Stop the broker."""
        await self.queue.__aexit__(None, None, None)
