"""A bare table in PostgreSQL, with asyncpg and ``SKIP LOCKED``: a queue written by hand.

It has one statement for each verb and a partial index over waiting jobs, but no leases, retries,
notifications or log, so queues on PostgreSQL cannot be much faster.
"""

from __future__ import annotations

import json

import asyncpg
from benchmarks.peers.adapter import Adapter, Payload

TABLE = """
create table jobs (
    id bigint generated always as identity primary key,
    payload jsonb not null,
    is_running boolean not null default false
);
create index waiting on jobs (id) where not is_running;
"""
PUSH = "insert into jobs (payload) values ($1)"
PUSH_MANY = "insert into jobs (payload) select unnest($1::text[])::jsonb"
CLAIM = """
update jobs set is_running = true where id = any(array(
    select id from jobs where not is_running order by id limit $1 for update skip locked
)) returning id, payload
"""
COMPLETE = "delete from jobs where id = any($1::bigint[])"


class SkipLocked(Adapter):
    """A table."""

    has_bulk = True

    async def setup(self, *, is_first: bool) -> None:
        """Open a pool."""
        self.pool = await asyncpg.create_pool(
            self.address, min_size=1, max_size=self.connections, command_timeout=60
        )
        if is_first:
            await self.pool.execute(TABLE)

    async def push(self, payload: Payload) -> None:
        """Insert a row."""
        await self.pool.execute(PUSH, json.dumps(payload))

    async def push_many(self, payloads: list[Payload]) -> None:
        """Insert rows."""
        await self.pool.execute(PUSH_MANY, [json.dumps(payload) for payload in payloads])

    async def claim(self, limit: int) -> list[int]:
        """Lock and mark rows."""
        return [row["id"] for row in await self.pool.fetch(CLAIM, limit)]

    async def complete(self, jobs: list[int]) -> None:
        """Delete rows."""
        await self.pool.execute(COMPLETE, jobs)

    async def close(self) -> None:
        """Close the pool."""
        await self.pool.close()
