"""Merging and sweeping segments."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from bucketq.commit.direct_committer import DirectCommitter
from bucketq.commit.group_committer import GroupCommitter
from bucketq.commit.objects import queue_segments
from bucketq.commit.objects.segment_policy import SegmentPolicy
from bucketq.queue.push_options import JobSpec
from bucketq.testing import SimulatedStore, VirtualLoop, run
from tests.unit.commit.test_deep_queues import QUEUES, Deep


@pytest.mark.parametrize("is_spread", [True, False], ids=["ranges", "segments"])
def test_direct_writers_that_come_and_go_keep_the_table_of_segments_small(is_spread: bool) -> None:
    """None of them stays long enough for upkeep in the background."""

    async def main(loop: VirtualLoop) -> None:
        policy = SegmentPolicy(most_entry_bytes=1000, neighbours=3, most_ranges=20)
        deep = Deep(loop, policy)
        await deep.create()
        ids, most = list[str](), 0
        for number in range(30):
            async with deep.open(DirectCommitter) as queue:
                specs = [JobSpec(kind="k", payload="x" * 100) for _ in range(20)]
                ids += await queue.push_many(specs)
                if is_spread:
                    for job in ids[20 * number : 20 * number + 20 : 2]:
                        await queue.cancel(job)
            segments = (await deep.head()).cold.rows.segments.values()
            most = max(most, sum(280 + 14 * len(each.since) for each in segments))
        assert 1000 < most < 4000
        async with deep.open(DirectCommitter) as queue:
            found = [job.id for job in await queue.claim(limit=10_000)]
        assert found == (ids[1::2] if is_spread else ids)

    run(main)


def test_a_segment_that_is_full_does_not_keep_others_from_being_merged() -> None:
    async def main(loop: VirtualLoop) -> None:
        deep = Deep(loop, SegmentPolicy(neighbours=8))
        await deep.create()
        async with deep.open(GroupCommitter) as queue:
            await queue.configure(inline_bytes=1 << 20)
            for _ in range(24):  # Each makes a segment, and six of them fit in one.
                await queue.push_many([JobSpec(kind="k", payload="x" * 120_000)] * 10)
            await asyncio.sleep(60)
        segments = (await deep.head()).cold.rows.segments.values()
        assert sum(segment.live for segment in segments) == 240
        assert len(segments) < 8 + 24 // 6

    run(main)


@pytest.mark.parametrize("queue_type", QUEUES)
def test_segments_of_a_first_spill_that_was_never_named_are_deleted(
    queue_type: type[Any], caplog: pytest.LogCaptureFixture
) -> None:
    async def main(loop: VirtualLoop) -> None:
        deep = Deep(loop, SegmentPolicy(first_sweep_s=20, sweep_s=20))
        await deep.create()
        head = await deep.head()
        link = deep.store.connect("killed")
        key = f"queue/segments/{head.incarnation}/{head.version + 2:020d}-0123456789abcdef.jsonl"
        await link.create(key, b"{}\n")
        async with deep.open(queue_type) as queue:
            await asyncio.sleep(100)
            assert await deep.segments() == [key], "a later version may still name it"
            for number in range(3):
                await queue.push("k", number)
            await asyncio.sleep(100)
            assert await deep.segments() == []
            assert not (await deep.head()).requires
            link = queue._committer._register._store  # type: ignore[attr-defined]
            link.list = None
            await asyncio.sleep(10_000)
            assert caplog.text == "", "an idle queue is not listed"

    run(main)


def test_a_direct_writer_merges_within_its_time_on_a_distant_store() -> None:
    """What a merge reads of its sources is read together: one after the other takes too long."""

    async def main(loop: VirtualLoop) -> None:
        deep = Deep(loop, SegmentPolicy(neighbours=32, most_entry_bytes=280 * 25))
        deep.store = SimulatedStore(loop, latency_s=(0.06, 0.06))
        await deep.create()
        for _ in range(60):
            async with deep.open(DirectCommitter) as queue:
                await queue.push_many([JobSpec(kind="k", payload="x" * 100)] * 20)
        assert len((await deep.head()).cold.rows.segments) < 52

    run(main)


def test_what_was_read_of_segments_is_forgotten_once_they_are_no_longer_named() -> None:
    async def main(loop: VirtualLoop) -> None:
        deep = Deep(loop, SegmentPolicy(neighbours=4))
        await deep.create()
        async with deep.open(GroupCommitter) as queue:
            for _ in range(20):
                await queue.push_many([JobSpec(kind="k", payload="x" * 20)] * 20)
                await asyncio.sleep(3)
                while jobs := await queue.claim(limit=1000):
                    await queue.complete_many(jobs)
            await asyncio.sleep(3)
            parts = queue._committer._register.segments.parts  # type: ignore[attr-defined]
            assert (await deep.head()).cold.rows.segments == {}
            assert [*parts._indexes, *parts._seqs, *parts._ids] == []

    run(main)


@pytest.mark.parametrize("left", [slice(None, None, 30), slice(-4, None)], ids=["apart", "at once"])
def test_a_merge_of_large_segments_reads_little_at_once(
    left: slice, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is left of 32 segments fits in one, and they may have 8 MiB each."""
    monkeypatch.setattr(queue_segments, "_AT_ONCE_BYTES", 130_000)

    async def main(loop: VirtualLoop) -> None:
        deep = Deep(loop, SegmentPolicy(neighbours=100))
        await deep.create()
        kept = list[str]()
        async with deep.open(GroupCommitter) as queue:
            for _ in range(8):
                ids = await queue.push_many([JobSpec(kind="k", payload="x" * 1000)] * 120)
                kept += ids[left]
                await asyncio.gather(*(queue.cancel(job) for job in ids if job not in kept))
        before = (await deep.head()).cold.rows.segments.values()
        assert [segment.live for segment in before] == [4] * 8
        merging = Deep(loop, SegmentPolicy(neighbours=8))
        merging.store = deep.store
        held = [0]
        async with merging.open(GroupCommitter) as queue:
            register = queue._committer._register  # type: ignore[attr-defined]
            read = register._store.get_range

            async def get_range(key: str, offset: int, length: int) -> bytes:
                held.append(sum(block.length for _, block in register.segments.parts._held))
                return await read(key, offset, length)  # type: ignore[no-any-return]

            register._store.get_range = get_range
            await asyncio.sleep(10)
            assert len((await deep.head()).cold.rows.segments) == 1
            assert max(held) <= 8 * 33_000
            assert [job.id for job in await queue.claim(limit=100)] == kept

    run(main)


def test_jobs_that_expire_do_so_after_a_merge() -> None:
    async def main(loop: VirtualLoop) -> None:
        deep = Deep(loop, SegmentPolicy(neighbours=3))
        await deep.create()
        async with deep.open(GroupCommitter) as queue:
            for number in range(100):
                await queue.push("k", number, expires_in_s=100 if number % 2 else None)
            await asyncio.sleep(20)
            segments = [*(await deep.head()).cold.rows.segments.values()]
            assert max(segment.record.rows for segment in segments) > 50, "they were merged"
            assert all(segment.record.expires_at for segment in segments)
            await asyncio.sleep(200)
            assert (await queue.stats()).counts["k"]["queued"] == 50

    run(main)


def test_large_pushes_keep_their_numbers_and_ids_in_a_merge() -> None:
    """It takes both from what this process has written, where numbers are places in a push."""

    async def main(loop: VirtualLoop) -> None:
        deep = Deep(loop, SegmentPolicy(neighbours=4))
        await deep.create()
        ids = list[str]()
        async with deep.open(GroupCommitter) as queue:
            for _ in range(4):
                ids += await queue.push_many(
                    [JobSpec(kind=kind, payload="x") for kind in "ab" * 50]
                )
            await asyncio.sleep(10)
        head = await deep.head()
        (segment,) = head.cold.rows.segments.values()
        assert (segment.record.base, segment.record.last) == (0, head.next_seq - 1)
        async with deep.open(GroupCommitter) as queue:
            assert [(await queue.get(job)).id for job in ids[::37]] == ids[::37]
            first = await queue.jobs(limit=150)
            others = await queue.jobs(limit=1000, after=first.next_after or 0)
            assert [job.id for job in (*first.jobs, *others.jobs)] == ids
            assert [job.id for job in await queue.claim(limit=1000)] == ids

    run(main)
