"""PgQueuer, by the queries that its producers and its queue manager run."""

from __future__ import annotations

import json
import uuid
from datetime import timedelta
from typing import Any

import asyncpg
from benchmarks.peers.adapter import KIND, Adapter, Payload
from pgqueuer.db import AsyncpgPoolDriver
from pgqueuer.models import Job
from pgqueuer.queries import EntrypointExecutionParameter, Queries

HEARTBEAT_TIMEOUT = timedelta(seconds=30)
"""As PgQueuer's workers have it by default."""


class PgqueuerQueue(Adapter):
    """The tables that ``pgq install`` makes."""

    has_bulk = True

    async def setup(self, *, is_first: bool) -> None:
        """Open a pool."""
        self.pool = await asyncpg.create_pool(self.address, min_size=1, max_size=self.connections)
        self.queries: Any = Queries(AsyncpgPoolDriver(self.pool))
        self.worker = uuid.uuid4()
        if is_first:
            await self.queries.install()

    async def push(self, payload: Payload) -> None:
        """Enqueue a job."""
        await self.queries.enqueue(KIND, encode(payload))

    async def push_many(self, payloads: list[Payload]) -> None:
        """Enqueue jobs."""
        count = len(payloads)
        await self.queries.enqueue([KIND] * count, [*map(encode, payloads)], [0] * count)

    async def claim(self, limit: int) -> list[Job]:
        """Dequeue jobs."""
        jobs: list[Job] = await self.queries.dequeue(
            batch_size=limit,
            entrypoints={KIND: EntrypointExecutionParameter(0)},
            queue_manager_id=self.worker,
            global_concurrency_limit=None,
            heartbeat_timeout=HEARTBEAT_TIMEOUT,
        )
        return jobs

    async def complete(self, jobs: list[Job]) -> None:
        """Move jobs to the log."""
        await self.queries.log_jobs([(job, "successful", None) for job in jobs])

    async def close(self) -> None:
        """Close the pool."""
        await self.pool.close()


def encode(payload: Payload) -> bytes:
    """Encode a payload; PgQueuer takes bytes."""
    return json.dumps(payload).encode()
