"""Queues in a simulated store, whose finished jobs leave for the archive."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from bucketq.archive.archive_layout import Layout
from bucketq.archive.reader import ArchiveReader
from bucketq.archive.writer import ArchiveWriter
from bucketq.commit.direct_committer import DirectCommitter
from bucketq.commit.group_committer import GroupCommitter
from bucketq.commit.objects.register import Register
from bucketq.queue.push_options import JobSpec
from bucketq.queue.queue import Queue
from bucketq.testing import SimulatedClock, SimulatedStore, VirtualLoop
from bucketq.testing.simulated_clock import EPOCH

KEY = "queue.json"
LAYOUT = Layout.of("memory://", KEY)
QUEUES = [DirectCommitter, GroupCommitter]


def open_queue(
    loop: VirtualLoop, store: SimulatedStore, queue_type: type[Any], name: str = "link"
) -> Any:
    clock, link = SimulatedClock(loop), store.connect(name)
    register = Register(link, KEY, "queue", clock)
    return Queue(queue_type(register, clock, archive=ArchiveWriter(link, LAYOUT)), clock)


async def finish(queue: Any, count: int) -> list[str]:
    ids = [await queue.push("k", number) for number in range(count)]
    for job in await queue.claim(limit=count):
        await queue.complete(job, "result")
    return ids


async def archived(store: SimulatedStore) -> list[str]:
    reader = ArchiveReader(store.connect("reader"), LAYOUT)
    return [job.id async for job in reader.jobs(EPOCH, EPOCH + timedelta(days=2))]


async def finish_many(queue: Any, count: int, payload: str = "") -> None:
    for _ in range(0, count, 1000):
        await queue.push_many([JobSpec(kind="k", payload=payload)] * 1000)
        await queue.complete_many((job, None) for job in await queue.claim(limit=1000))
