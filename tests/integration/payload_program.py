"""A program that pushes, works on and archives large payloads until it kills itself.

``python -m tests.integration.payload_program`` reads lines ``URL MODE LOG STEPS WHEN``, as
``deep_program`` does, and forks a process for each. At its ``STEPS``-th write of any object (a
part, a marker, the queue, an archive file, a segment or a deletion) it ends by ``kill -9``.
"""

from __future__ import annotations

import asyncio
from typing import Any

from bucketq.errors import LeaseLostError
from bucketq.model.effects import side_refs
from bucketq.queue.queue import Queue
from bucketq.store.base import ObjectStore
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
    store = MortalStore(location.store, steps, when)
    number = 0
    async with open_large(store, location.key, url, mode) as queue:
        while True:
            token = f"{log.name}-{number}"
            number += 1
            await queue.push("film", payload_of(token))
            log.write("pushed", token)
            for job in await queue.claim(limit=1):
                done = str(job.payload).rstrip(".")
                assert job.payload == payload_of(done)
                try:
                    await queue.complete(job, payload_of(done))
                except LeaseLostError:
                    continue
                log.write("completed", done)


def run(url: str, mode: str, log: str, steps: str, when: str) -> None:
    asyncio.run(live(url, mode, Log(log), int(steps), when))


if __name__ == "__main__":
    fork_for_each_line(run)
