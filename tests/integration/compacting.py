"""A process that compacts an archive by itself, for tests that kill it: ``compacting.py URL``."""

from __future__ import annotations

import asyncio
import sys

from bucketq.archive import delta
from bucketq.archive.archive_layout import Layout
from bucketq.archive.compaction import Compactor, write_part
from bucketq.clock import SystemClock
from bucketq.store.url import open_store


async def main(url: str) -> None:
    """Do what the command does, without Spark, and write a checkpoint of each version."""
    delta.CHECKPOINT_EVERY = 1
    location, clock = open_store(url), SystemClock()
    layout = Layout.of(location.store.url, location.key)
    compactor = Compactor(location.store, layout, clock)
    while planned := await compactor.plan():
        written = [await write_part(location.store, layout, part, clock) for part in planned.parts]
        await compactor.publish(planned, written)
    await location.store.close()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
