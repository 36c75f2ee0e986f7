"""A program that pushes, works on and archives large payloads until it kills itself.

``python -m tests.integration.payload_program`` reads lines ``URL MODE LOG STEPS WHEN``, as
``deep_program`` does, and forks a process for each. At its ``STEPS``-th write of any object (a
part, a marker, the queue, an archive file, a segment or a deletion) it ends by ``kill -9``, or, if
``WHEN`` is ``fetch``, while it reads its ``STEPS``-th part.

The mode ``prune`` deletes the whole archive, and ``sweep`` what a crash has left behind.
"""

from __future__ import annotations

import asyncio
import os
import signal
from datetime import UTC, datetime, timedelta
from typing import Any

from bucketq.archive.archive_layout import Layout
from bucketq.archive.side_folder import SideFolder
from bucketq.archive.upkeep import prune
from bucketq.clock import SystemClock
from bucketq.errors import LeaseLostError
from bucketq.model.effects import side_refs
from bucketq.queue.queue import Queue
from bucketq.store.base import ObjectStore, StoredObject
from bucketq.store.url import open_store
from tests.integration.deep_program import MortalStore, open_deep
from tests.integration.program import Log, fork_for_each_line

SETTINGS: dict[str, Any] = {
    "spill_bytes": 2000,
    "archive_after_s": 0.0,
    "max_attempts": 100,
    "inline_bytes": 2000,
}
VERSIONS = 8
"""Orphans can be swept after so few commits, and one more for each 64 KiB."""
MOST_VERSIONS = VERSIONS + 20
LEASE_S = 1.0
"""Others get the jobs of a process that was killed while it fetched their payloads."""


class MortalReader(MortalStore):
    """A store whose user may also be killed while it reads a part."""

    def __init__(self, store: ObjectStore, steps: int, when: str) -> None:
        super().__init__(store, 0 if when == "fetch" else steps, when)
        self._reads_left = steps if when == "fetch" else 0

    async def get(self, key: str) -> StoredObject:
        if "/payloads/" in key and not key.endswith(".json"):
            self._reads_left -= 1
            if not self._reads_left:
                asyncio.get_running_loop().call_later(0.0005, os.kill, os.getpid(), signal.SIGKILL)
                await super().get(key)
                os.kill(os.getpid(), signal.SIGKILL)
        return await super().get(key)


def payload_of(token: str) -> str:
    """The payload of a job: every fourth one has two parts."""
    return token + "." * (1_100_000 if token.endswith("0") else 5_000)


def open_large(store: ObjectStore, key: str, url: str, mode: str) -> Queue[Any]:
    """Open a queue whose orphans can be swept soon."""
    side_refs._VERSIONS = VERSIONS
    queue, _ = open_deep(store, key, url, mode)
    return queue


async def live(url: str, mode: str, log: Log, steps: int, when: str) -> None:
    """Work until the end."""
    location = open_store(url)
    store = MortalReader(location.store, steps, when)
    number = 0
    async with open_large(store, location.key, url, mode) as queue:
        while True:
            token = f"{log.name}-{number}"
            number += 1
            await queue.push("film", payload_of(token))
            log.write("pushed", token)
            for job in await queue.claim(limit=1, lease_s=LEASE_S):
                done = str(job.payload).rstrip(".")
                assert job.payload == payload_of(done)
                try:
                    await queue.complete(job, payload_of(done))
                except LeaseLostError:
                    continue
                log.write("completed", done)


async def prune_all(url: str, log: Log, steps: int, when: str) -> None:
    """Delete the archive, with all that it names."""
    location = open_store(url)
    store = MortalStore(location.store, steps, when)
    layout = Layout.of(store.url, location.key)
    await prune(store, layout, datetime.now(UTC) + timedelta(hours=2), SystemClock())
    log.write("done")


async def sweep_all(url: str, log: Log, steps: int, when: str) -> None:
    """Keep the queue open until no marker is left."""
    location = open_store(url)
    store = MortalStore(location.store, steps, when)
    folder = SideFolder.of(store, location.key, SystemClock())
    async with open_large(store, location.key, url, "embedded") as queue:
        incarnation = (await queue.snapshot()).incarnation
        while [name async for name in folder.markers(incarnation)]:  # noqa: ASYNC110 - it is swept
            await asyncio.sleep(0.01)
    log.write("done")


def run(url: str, mode: str, log: str, steps: str, when: str) -> None:
    chores = {"prune": prune_all, "sweep": sweep_all}
    if mode in chores:
        asyncio.run(chores[mode](url, Log(log), int(steps), when))
    else:
        asyncio.run(live(url, mode, Log(log), int(steps), when))


if __name__ == "__main__":
    fork_for_each_line(run)
