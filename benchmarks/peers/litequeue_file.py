"""litequeue on a SQLite file with ``synchronous = FULL``.

litequeue itself sets NORMAL, with which a commit can be lost when the machine fails. Its calls
block, so all callers of a process take turns.
"""

from __future__ import annotations

import asyncio
import json

from benchmarks.peers.adapter import Adapter, Payload
from litequeue import LiteQueue, Message

BUSY_S = 60.0
"""How long a process waits for another that writes."""


class LitequeueFile(Adapter):
    """A table in a file."""

    has_bulk = True

    async def setup(self, *, is_first: bool) -> None:
        """Open the file."""
        del is_first
        self.queue = LiteQueue(self.address, timeout=BUSY_S)
        self.queue.conn.execute("pragma synchronous = full")

    async def push(self, payload: Payload) -> None:
        """Put a message; let other callers have their turn."""
        self.queue.put(json.dumps(payload))
        await asyncio.sleep(0)

    async def push_many(self, payloads: list[Payload]) -> None:
        """Put messages in one transaction."""
        with self.queue.transaction(mode="IMMEDIATE"):
            for payload in payloads:
                self.queue.put(json.dumps(payload))
        await asyncio.sleep(0)

    async def claim(self, limit: int) -> list[Message]:
        """Pop messages, each in its own transaction."""
        jobs: list[Message] = []
        while len(jobs) < limit and (job := self.queue.pop()) is not None:
            jobs.append(job)
        await asyncio.sleep(0)
        return jobs

    async def complete(self, jobs: list[Message]) -> None:
        """Mark messages as done."""
        for job in jobs:
            self.queue.done(job.message_id)
        await asyncio.sleep(0)

    async def close(self) -> None:
        """Close the file."""
        self.queue.conn.close()
