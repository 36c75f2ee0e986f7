"""Claims of a deep queue read ahead: every job comes in its order, and none of them is stuck."""

from __future__ import annotations

import asyncio

import pytest

from bucketq.codec import segment_index
from bucketq.commit.objects import segment_parts
from bucketq.queue.push_options import JobSpec
from tests.unit.commit.worlds import World, virtual

JOBS = 300


@virtual
async def test_jobs_of_several_priorities_and_kinds_that_share_blocks_are_all_claimed() -> None:
    world = World()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(segment_index, "BLOCK_BYTES", 2000)
        patch.setattr(segment_parts, "ROW_BYTES", 3000)  # Of which one fits in memory.
        async with world.embedded() as queue:
            await queue.configure(spill_bytes=300)
            await queue.push_many(
                JobSpec(kind="abc"[number % 3], payload=number, priority=number % 4)
                for number in range(JOBS)
            )
            await asyncio.sleep(5)
        async with world.embedded(timeout_s=30.0) as queue:  # It has read no row yet.
            jobs = [job for _ in range(JOBS // 2) for job in await queue.claim(limit=2)]
            assert await queue.claim() == []
    in_order = sorted(range(JOBS), key=lambda number: (number % 4, number))
    assert [job.payload for job in jobs] == in_order
