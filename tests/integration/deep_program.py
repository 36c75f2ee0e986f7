"""A program that works on a deep queue until it kills itself, between two steps of its choice.

``python -m tests.integration.deep_program`` reads lines ``URL MODE LOG STEPS WHEN`` and forks a
process for each. The process pushes, claims and completes jobs, and spills, merges, sweeps,
archives and keeps a history meanwhile. At its ``STEPS``-th write of any object (a put, a replace or
a delete) it ends by ``kill -9``: ``before`` the write is sent, ``after`` it was answered, or
``during`` it.

It writes what it has been promised to its log, a line at a time.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Awaitable
from typing import Any, TypeVar

from bucketq.archive.archive_layout import Layout
from bucketq.archive.writer import ArchiveWriter
from bucketq.clock import SystemClock
from bucketq.commit.direct_committer import DirectCommitter
from bucketq.commit.group_committer import GroupCommitter
from bucketq.commit.objects.queue_history import HistoryPolicy
from bucketq.commit.objects.register import Register
from bucketq.commit.objects.segment_policy import SegmentPolicy
from bucketq.errors import LeaseLostError
from bucketq.queue.push_options import JobSpec
from bucketq.queue.queue import Queue
from bucketq.store.base import ObjectInfo, ObjectStore, StoredObject
from bucketq.store.url import open_store
from tests.integration.program import Log, fork_for_each_line

# Everything happens within a few seconds, and orphans can be swept after a few commits.
POLICY = SegmentPolicy(
    least_versions=4, pass_s=0.02, neighbours=2, first_sweep_s=0.05, sweep_s=0.05
)
HISTORY_POLICY = HistoryPolicy(pass_s=0.02, copy_s=0.1, first_sweep_s=0.05, sweep_s=0.05)
SETTINGS: dict[str, Any] = {
    "spill_bytes": 600,
    "archive_after_s": 0.0,
    "max_attempts": 100,
    "history_retention_s": 3600.0,
}

A = TypeVar("A")


class MortalStore:
    """A store whose user is killed at one of its writes."""

    def __init__(self, store: ObjectStore, steps: int, when: str) -> None:
        self._store = store
        self._left = steps
        self._when = when
        self.url = store.url
        self.write_interval_s = store.write_interval_s

    async def get(self, key: str) -> StoredObject:
        return await self._store.get(key)

    async def get_if_changed(self, key: str, etag: str) -> StoredObject | None:
        return await self._store.get_if_changed(key, etag)

    async def get_range(self, key: str, offset: int, length: int) -> bytes:
        return await self._store.get_range(key, offset, length)

    async def create(self, key: str, body: bytes) -> str:
        return await self._step(self._store.create(key, body))

    async def replace(self, key: str, body: bytes, etag: str) -> str:
        return await self._step(self._store.replace(key, body, etag))

    async def put(self, key: str, body: bytes) -> str:
        return await self._step(self._store.put(key, body))

    async def delete(self, key: str) -> None:
        await self._step(self._store.delete(key))

    def list(self, prefix: str) -> AsyncIterator[ObjectInfo]:
        return self._store.list(prefix)

    async def close(self) -> None:
        await self._store.close()

    async def _step(self, write: Awaitable[A]) -> A:
        self._left -= 1
        is_last = self._left == 0
        if is_last and self._when == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        if is_last and self._when == "during":
            asyncio.get_running_loop().call_later(0.001, os.kill, os.getpid(), signal.SIGKILL)
        try:
            return await write
        finally:
            if is_last:
                os.kill(os.getpid(), signal.SIGKILL)


def open_deep(store: ObjectStore, key: str, url: str, mode: str) -> tuple[Queue[str], Register]:
    """Make a queue that spills early, merges two segments at a time, and sweeps often."""
    clock = SystemClock()
    register = Register(store, key, url, clock)
    register.segments.policy, register.history.policy = POLICY, HISTORY_POLICY
    committer = (DirectCommitter if mode == "direct" else GroupCommitter)(
        register, clock, archive=ArchiveWriter(store, Layout.of(store.url, key))
    )
    return Queue[str](committer, clock, payload_type=str), register


async def live(url: str, mode: str, log: Log, steps: int, when: str) -> None:
    """Work until the end."""
    location = open_store(url)
    store = MortalStore(location.store, steps, when)
    queue, _ = open_deep(store, location.key, url, mode)
    number = 0
    async with queue:
        while True:
            tokens = [f"{log.name}-{number + more}" for more in range(5)]
            number += len(tokens)
            await queue.push_many([JobSpec(kind="mail", payload=token) for token in tokens])
            log.write("pushed", *tokens)
            await asyncio.sleep(0.01)
            for job in await queue.claim(limit=2):
                try:
                    await queue.complete(job)
                except LeaseLostError:
                    continue
                log.write("completed", job.payload)


def run(url: str, mode: str, log: str, steps: str, when: str) -> None:
    asyncio.run(live(url, mode, Log(log), int(steps), when))


if __name__ == "__main__":
    fork_for_each_line(run)
