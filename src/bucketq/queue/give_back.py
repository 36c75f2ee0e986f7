"""Gives back jobs that a claim got after its caller was cancelled.

The caller never saw them, so no worker sends heartbeats for them. They are released in one commit:
one commit for each would take longer than their leases last if storage is slow. Heartbeats go out
until the release is acknowledged, so that an outage costs the jobs none of their attempts.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from contextlib import suppress
from typing import Any, Protocol

from bucketq.errors import BucketQError
from bucketq.model.job import JobRecord
from bucketq.model.operations import LeaseRef

_BEAT_S = 2.0
"""Well below the default lease of 30 s, and seldom enough not to compete with the release."""


class Releases(Protocol):
    """What is needed of a queue."""

    async def heartbeat(self, jobs: list[LeaseRef], /) -> Any:
        """Say that jobs are still held."""
        ...

    async def release_many(self, jobs: list[LeaseRef], /) -> list[bool]:
        """Give jobs back, in one commit."""
        ...


async def give_back(queue: Releases, records: Iterable[JobRecord]) -> None:
    """Release jobs; if that fails, their leases run out by themselves."""
    leases = [LeaseRef(record.id, record.lease or "") for record in records]
    if not leases:
        return
    beating = asyncio.get_running_loop().create_task(_beat(queue, leases))
    try:
        with suppress(BucketQError):
            await queue.release_many(leases)
    finally:
        beating.cancel()


async def _beat(queue: Releases, leases: list[LeaseRef]) -> None:
    while True:
        await asyncio.sleep(_BEAT_S)
        with suppress(BucketQError):
            await queue.heartbeat(leases)
