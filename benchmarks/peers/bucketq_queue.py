"""bucketq, on a local file: through a broker in another process, or embedded in this one."""

from __future__ import annotations

from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from benchmarks.peers.adapter import KIND, Adapter, Payload, Usage

import bucketq


class BucketqBroker(Adapter):
    """A client of ``bucketq serve``, which it finds through the object."""

    has_bulk = True

    async def setup(self, *, is_first: bool) -> None:
        """Connect."""
        del is_first
        self.stack = AsyncExitStack()
        self.queue = await self.stack.enter_async_context(self.connect())

    def connect(self) -> Any:
        """Name the queue."""
        return bucketq.connect(Path(self.address).as_uri(), mode="remote")

    async def push(self, payload: Payload) -> None:
        """Push a job."""
        await self.queue.push(KIND, payload)

    async def push_many(self, payloads: list[Payload]) -> None:
        """Push jobs."""
        await self.queue.push_many(
            bucketq.JobSpec(kind=KIND, payload=payload) for payload in payloads
        )

    async def claim(self, limit: int) -> list[Any]:
        """Claim jobs."""
        return list(await self.queue.claim(limit=limit))

    async def complete(self, jobs: list[Any]) -> None:
        """Complete jobs."""
        if len(jobs) == 1:
            await self.queue.complete(jobs[0])
        else:
            await self.queue.complete_many(jobs)

    async def close(self) -> None:
        """Disconnect."""
        await self.stack.aclose()


class BucketqEmbedded(BucketqBroker):
    """A queue that this process commits by itself, for all its callers at once."""

    def connect(self) -> Any:
        """Name the queue; with ``slow``, in a store that counts."""
        path = Path(self.address)
        if not self.slow:
            return bucketq.connect(path.as_uri(), mode="embedded")
        from benchmarks.peers.counted_store import CountedStore  # noqa: PLC0415 - loads gRPC

        self.usage = Usage()
        store = CountedStore(path.parent, self.usage)
        return bucketq.connect(path.name, store=store, mode="embedded")
