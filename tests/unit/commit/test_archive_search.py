"""Results of archived jobs are found by reading a file or two, without a search of the archive."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncIterator
from typing import Any

import pytest

from bucketq.archive.archive_layout import Layout
from bucketq.archive.writer import ArchiveWriter
from bucketq.codec.decode import decode
from bucketq.commit.direct_committer import DirectCommitter
from bucketq.commit.group_committer import GroupCommitter
from bucketq.commit.objects.register import Register
from bucketq.commit.objects.segment_policy import SegmentPolicy
from bucketq.errors import StoreRefusedError
from bucketq.model.state import State
from bucketq.queue.queue import Queue
from bucketq.store.base import ObjectInfo
from bucketq.store.memory import MemoryStore
from bucketq.testing import SimulatedClock, VirtualLoop, run

KEY = "queue.json"
QUEUES = [DirectCommitter, GroupCommitter]
JOBS = 40


class CountingStore(MemoryStore):
    """A store that counts what is asked of it."""

    def __init__(self) -> None:
        super().__init__()
        self.asked = Counter[str]()
        self.refuses_indexes = False

    async def get(self, key: str, *args: Any, **options: Any) -> Any:
        self.asked["file" if "/archive/" in key else "index" if ".results" in key else "get"] += 1
        return await super().get(key, *args, **options)

    async def create(self, key: str, body: bytes) -> Any:
        if self.refuses_indexes and key.endswith(".results"):
            raise StoreRefusedError("no objects here")
        return await super().create(key, body)

    async def list(self, prefix: str) -> AsyncIterator[ObjectInfo]:
        self.asked["list"] += 1
        async for info in super().list(prefix):
            yield info


class World:
    """A store, and queues over it."""

    def __init__(self, loop: VirtualLoop) -> None:
        self.loop = loop
        self.store = CountingStore()

    def open(self, queue_type: type[Any], policy: SegmentPolicy | None = None) -> Queue[Any]:
        clock = SimulatedClock(self.loop)
        register = Register(self.store, KEY, "queue", clock)
        register.segments.policy = policy or SegmentPolicy(least_versions=3)
        archive = ArchiveWriter(self.store, Layout.of(self.store.url, KEY))
        return Queue(queue_type(register, clock, archive=archive), clock)

    async def head(self) -> State:
        return decode((await self.store.get(KEY)).body, "queue").state

    async def objects(self) -> list[str]:
        """The objects of the index that are there."""
        listed = [info.key async for info in self.store.list("queue/segments/")]
        return [key.rpartition("/")[2] for key in listed if key.endswith(".results")]

    async def results(self, queue: Queue[Any], ids: list[str], *, searches: bool = False) -> None:
        """Wait for all jobs, and see whether the archive is searched."""
        self.store.asked.clear()
        for number, job_id in enumerate(ids):
            assert await queue.wait(job_id) == {"n": number}
        assert (self.store.asked["list"] > 0) is searches
        if not searches:
            assert self.store.asked["file"] == len(ids)


async def finish(queue: Queue[Any], count: int = JOBS, *, own: bool = False) -> list[str]:
    """Push and complete jobs, and let each leave by itself; return their ids."""
    ids = list[str]()
    for number in range(count):
        ids.append(await queue.push("add", 0, id=f"own {number}" if own else None))
        (job,) = await queue.claim()
        await queue.complete(job, {"n": number})
        assert await queue.flush_archive() == 1
    return ids


@pytest.mark.parametrize("own", [False, True])
@pytest.mark.parametrize("spill_bytes", [256 << 10, 8000, 300])
@pytest.mark.parametrize("queue_type", QUEUES)
def test_results_are_found_without_a_search(
    queue_type: type[Any], spill_bytes: int, own: bool
) -> None:
    async def main(loop: VirtualLoop) -> None:
        world = World(loop)
        async with world.open(queue_type) as queue:
            await queue.configure(spill_bytes=spill_bytes)
            ids = await finish(queue, own=own)
            await world.results(queue, ids)
        head = await world.head()
        assert head.results.count == JOBS
        assert head.results.row_bytes <= 3 * (spill_bytes // 8 + 200)
        assert (len(head.results.names()) > 0) is (spill_bytes < 256 << 10)
        async with world.open(queue_type) as queue:
            await world.results(queue, ids)
            # What was read of the index is kept.
            assert world.store.asked["index"] <= len(head.results.names())

    run(main)


@pytest.mark.parametrize("queue_type", QUEUES)
def test_after_the_retention_the_archive_is_searched_and_objects_are_deleted(
    queue_type: type[Any],
) -> None:
    async def main(loop: VirtualLoop) -> None:
        world, policy = World(loop), SegmentPolicy(least_versions=3, first_sweep_s=5, sweep_s=5)
        async with world.open(queue_type, policy) as queue:
            await queue.configure(spill_bytes=2000, result_retention_s=600)
            ids = await finish(queue, 10)
            named = (await world.head()).results.names()
            assert named
            assert named <= {*await world.objects()}
            for number in range(20):  # Any commit forgets what is too old.
                await asyncio.sleep(60)
                await queue.push("add", number)
            assert not (await world.head()).results
            assert await world.objects() == []
            await world.results(queue, ids, searches=True)

    run(main)


def test_an_object_of_the_index_that_is_lost_is_not_needed(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def main(loop: VirtualLoop) -> None:
        world = World(loop)
        async with world.open(GroupCommitter) as queue:
            await queue.configure(spill_bytes=300)
            ids = await finish(queue, 5)
        for name in await world.objects():
            incarnation = (await world.head()).incarnation
            await world.store.delete(f"queue/segments/{incarnation}/{name}")
        async with world.open(GroupCommitter) as queue:
            with caplog.at_level(logging.WARNING):
                await world.results(queue, ids, searches=True)
        assert "where some results are is not known" in caplog.text

    run(main)


def test_a_store_that_refuses_them_costs_nothing_else() -> None:
    async def main(loop: VirtualLoop) -> None:
        world = World(loop)
        world.store.refuses_indexes = True
        for queue_type in QUEUES:
            async with world.open(queue_type) as queue:
                await queue.configure(spill_bytes=300)
                ids = await finish(queue, 5)
                await world.results(queue, ids)
        assert not await world.objects()

    run(main)


def test_a_job_without_a_result_is_searched_for() -> None:
    async def main(loop: VirtualLoop) -> None:
        world = World(loop)
        async with world.open(DirectCommitter) as queue:
            job_id = await queue.push("add", 0)
            await queue.complete_many(await queue.claim())
            await queue.flush_archive()
            assert await queue.wait(job_id) is None
            assert world.store.asked["list"] > 0
        assert b'"results"' not in (await world.store.get(KEY)).body

    run(main)
