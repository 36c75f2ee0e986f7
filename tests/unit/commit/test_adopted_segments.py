"""Segments that a bulk write has added: how they are read at once, and merged."""

from __future__ import annotations

import asyncio

from bucketq.commit.group_committer import GroupCommitter
from bucketq.commit.objects.segment_policy import SegmentPolicy
from bucketq.testing import SimulatedStore, VirtualLoop, run
from tests.unit.commit.test_bulk_write import Bulk, put_consecutive


def test_many_segments_are_adopted_on_a_distant_store() -> None:
    """Reading their indexes takes longer than a pass of upkeep, which forgets others' indexes."""

    async def main(loop: VirtualLoop) -> None:
        deep = Bulk(loop)
        deep.store = SimulatedStore(loop, latency_s=(0.2, 0.2))
        await deep.begin()
        async with deep.writing() as bulk:
            reservation = await bulk.reserve("w", 0)
            assert reservation is not None
            puts = (deep.put(bulk.folder, reservation, 2 * n, 2) for n in range(200))
            records = await asyncio.gather(*puts)
            assert await bulk.adopt(reservation, "w", 0, records)
        async with deep.open(GroupCommitter) as queue:
            assert len(await queue.claim(limit=1000)) == 400

    run(main)


def test_jobs_whose_ids_follow_each_other_are_found_after_a_merge() -> None:
    """The merged segment has their hashes, which no segment had before."""

    async def main(loop: VirtualLoop) -> None:
        deep = Bulk(loop, SegmentPolicy(neighbours=3))
        await deep.begin()
        async with deep.writing() as bulk:
            reservation = await bulk.reserve("w", 0)
            assert reservation is not None
            written = [
                await put_consecutive(deep, bulk, reservation, "k" * 600, start=600 * number)
                for number in range(3)
            ]
            assert await bulk.adopt(reservation, "w", 0, [record for _, record in written])
        ids = [each for some, _ in written for each in some]
        async with deep.open(GroupCommitter) as queue:
            assert [job.id for job in await queue.claim(limit=2)] == ids[:2]
            await asyncio.sleep(10)
            (segment,) = (await deep.head()).cold.rows.segments.values()
            assert (segment.record.first_id, segment.live) == ("", 1798)
            for place in (2, 511, 512, 599, 600, 1111, 1112, 1799):
                assert (await queue.get(ids[place])).id == ids[place]
                assert await queue.cancel(ids[place]) == "cancelled"
            assert (await queue.claim())[0].id == ids[3]

    run(main)
