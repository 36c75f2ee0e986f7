"""What reads of a deep queue cost: requests and bytes, counted at the store."""

from __future__ import annotations

from typing import Any

import pytest

import bucketq
from bucketq.client.connect_arguments import Mode
from bucketq.queue.push_options import JobSpec
from bucketq.store.memory import MemoryStore

JOBS = 12_000


class Counting(MemoryStore):
    """A store that counts what is read of segments."""

    requests = 0
    read_bytes = 0

    async def get_range(self, key: str, offset: int, length: int) -> bytes:
        self.requests += 1
        self.read_bytes += length
        return await super().get_range(key, offset, length)

    def begin(self) -> None:
        self.requests = self.read_bytes = 0


async def deep_store() -> tuple[Counting, list[str]]:
    store, ids = Counting(), list[str]()
    async with bucketq.connect("queue.json", store=store, mode="direct") as queue:
        await queue.configure(spill_bytes=100_000, max_batch_jobs=JOBS)
        for start in range(0, JOBS, 2000):
            specs = [JobSpec(kind="k", payload=number) for number in range(start, start + 2000)]
            ids += await queue.push_many(specs)
        await queue.push("k", "last")
    return store, ids


@pytest.mark.parametrize("mode", ["direct", "embedded"])
async def test_a_page_and_a_job_cost_a_few_requests(mode: Mode) -> None:
    store, ids = await deep_store()
    async with bucketq.connect("queue.json", store=store, mode=mode) as queue:
        stats = await queue.stats()
        assert stats.segments >= 5
        store.begin()
        await expect_page(queue, ids, 0)
        assert store.requests <= 4
        assert store.read_bytes < stats.segment_bytes / 8
        store.begin()
        await expect_page(queue, ids, 100)
        assert store.requests <= 1, "the numbers of a segment are read once"
        store.begin()
        await expect_page(queue, ids, 6050)
        assert store.requests <= 6
        store.begin()
        assert (await queue.get(ids[7000])).payload == 7000
        assert store.requests <= stats.segments + 1, "the ids of each segment, and a block"
        store.begin()
        assert (await queue.get(ids[7001])).payload == 7001
        assert store.requests <= 1


async def expect_page(queue: Any, ids: list[str], after: int) -> None:
    page = await queue.jobs(after=after, limit=100)
    assert [job.id for job in page.jobs] == ids[after : after + 100]
    assert page.next_after == after + 100


@pytest.mark.parametrize("mode", ["direct", "embedded"])
async def test_a_claim_of_any_kind_reads_only_the_kinds_whose_turn_it_may_be(mode: Mode) -> None:
    store, kinds = Counting(), 100
    async with bucketq.connect("queue.json", store=store, mode="direct") as queue:
        await queue.configure(spill_bytes=100_000)
        specs = [
            JobSpec(kind=f"kind-{number % kinds}", payload="x" * 1000, priority=number // 2000)
            for number in range(4000)
        ]
        ids = list(await queue.push_many(specs))
    async with bucketq.connect("queue.json", store=store, mode=mode) as queue:
        await queue.stats()
        store.begin()
        jobs = await queue.claim(limit=3)
        assert [job.id for job in jobs] == ids[:3]
        assert store.requests <= 10, "a read for each kind that has a turn, and some ahead"
        store.begin()
        jobs = await queue.claim(limit=3000)
        assert [job.id for job in jobs] == ids[3:3003]
