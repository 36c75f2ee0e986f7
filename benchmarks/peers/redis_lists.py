"""Bare Redis lists: the least that a durable queue on Redis can cost, without any feature.

The reliable queue of the documentation of LMOVE: a claim moves an element to a list of running
jobs, and LREM removes it from there. Many jobs go in one RPUSH, or in a pipeline of LMOVE or LREM.
"""

from __future__ import annotations

import json

from benchmarks.peers.adapter import Adapter, Payload
from redis.asyncio import BlockingConnectionPool, Redis

WAITING, RUNNING = "waiting", "running"


class RedisLists(Adapter):
    """Two lists."""

    has_bulk = True

    async def setup(self, *, is_first: bool) -> None:
        """Open a pool; callers beyond it wait for a connection."""
        del is_first
        pool = BlockingConnectionPool.from_url(
            self.address, max_connections=self.connections, timeout=None
        )
        self.redis = Redis(connection_pool=pool)

    async def push(self, payload: Payload) -> None:
        """Append an element."""
        await self.redis.rpush(WAITING, json.dumps(payload))

    async def push_many(self, payloads: list[Payload]) -> None:
        """Append elements."""
        await self.redis.rpush(WAITING, *map(json.dumps, payloads))

    async def claim(self, limit: int) -> list[bytes]:
        """Move elements to the list of running jobs."""
        if limit == 1:
            jobs = [await self.redis.lmove(WAITING, RUNNING, "LEFT", "RIGHT")]
        else:
            async with self.redis.pipeline(transaction=False) as pipeline:
                for _ in range(limit):
                    pipeline.lmove(WAITING, RUNNING, "LEFT", "RIGHT")
                jobs = await pipeline.execute()
        return [job for job in jobs if job is not None]

    async def complete(self, jobs: list[bytes]) -> None:
        """Remove elements."""
        if len(jobs) == 1:
            await self.redis.lrem(RUNNING, 1, jobs[0])
            return
        async with self.redis.pipeline(transaction=False) as pipeline:
            for job in jobs:
                pipeline.lrem(RUNNING, 1, job)
            await pipeline.execute()

    async def close(self) -> None:
        """Close the pool."""
        await self.redis.aclose()
        await self.redis.connection_pool.disconnect()
