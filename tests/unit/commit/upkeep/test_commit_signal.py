"""Finished jobs leave with a commit that is written anyway, if there is one soon."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from bucketq.commit.group_committer import GroupCommitter
from bucketq.testing import SimulatedStore, VirtualLoop, run
from tests.unit.commit.upkeep.archived_queue import archived, finish, finish_many, open_queue


async def until_it_waits(queue: Any) -> None:
    """Return once the archiver waits for a request."""
    while not queue._committer._next_commit.is_awaited:  # noqa: ASYNC110 - it has no event to wait for
        await asyncio.sleep(0.1)


async def done_in(queue: Any) -> int:
    count: int = (await queue.stats()).total("done")
    return count


def test_finished_jobs_leave_with_the_commit_of_a_request() -> None:
    async def main(loop: VirtualLoop) -> None:
        store = SimulatedStore(loop)
        async with open_queue(loop, store, GroupCommitter) as queue:
            ids = await finish(queue, 3)
            await until_it_waits(queue)
            assert await archived(store) == []
            version = queue._committer.version
            await queue.push("k", "brings the file")
            await until_it_waits(queue)
            assert await archived(store) == ids
            assert await done_in(queue) == 3
            await queue.push("k", "brings the removal")
            assert await done_in(queue) == 0
            assert queue._committer.version == version + 2

    run(main)


def test_finished_jobs_of_a_queue_in_which_nothing_happens_leave_by_one_commit() -> None:
    async def main(loop: VirtualLoop) -> None:
        store = SimulatedStore(loop)
        async with open_queue(loop, store, GroupCommitter) as queue:
            ids = await finish(queue, 3)
            version = queue._committer.version
            await asyncio.sleep(25)
            assert await done_in(queue) == 0
            assert await archived(store) == ids
            assert queue._committer.version == version + 1

    run(main)


def test_they_wait_no_longer_than_they_have_rested() -> None:
    async def main(loop: VirtualLoop) -> None:
        store = SimulatedStore(loop)
        async with open_queue(loop, store, GroupCommitter) as queue:
            await queue.configure(archive_after_s=1.0)
            await finish(queue, 3)
            await asyncio.sleep(7)
            assert await done_in(queue) == 0

    run(main)


def test_a_request_that_changes_nothing_causes_no_commit() -> None:
    async def main(loop: VirtualLoop) -> None:
        store = SimulatedStore(loop)
        async with open_queue(loop, store, GroupCommitter) as queue:
            (first,) = await finish(queue, 1)
            await until_it_waits(queue)
            await queue.get(first)
            await queue.stats()
            assert await queue.claim() == []
            await asyncio.sleep(1)
            assert await archived(store) == []

    run(main)


@pytest.mark.parametrize("moment", ["before the file", "while it is written", "with the file"])
def test_a_flush_of_the_archive_does_not_wait_for_another_commit(moment: str) -> None:
    async def main(loop: VirtualLoop) -> None:
        store = SimulatedStore(loop)
        async with open_queue(loop, store, GroupCommitter) as queue:
            ids = await finish(queue, 3)
            await until_it_waits(queue)
            if moment != "before the file":
                await queue.push("k", "brings the file")
            if moment == "with the file":
                await until_it_waits(queue)
            assert queue._committer._next_commit.is_awaited == (moment != "while it is written")
            began_s = loop.time()
            await queue.flush_archive()
            assert loop.time() - began_s < 0.9
            assert await archived(store) == ids
            assert await done_in(queue) == 0

    run(main)


def test_jobs_whose_file_is_there_leave_before_a_queue_is_closed() -> None:
    async def main(loop: VirtualLoop) -> None:
        store = SimulatedStore(loop)
        async with open_queue(loop, store, GroupCommitter) as queue:
            ids = await finish(queue, 3)
            await until_it_waits(queue)
            await queue.push("k", "brings the file")
            await until_it_waits(queue)
        async with open_queue(loop, store, GroupCommitter) as queue:
            assert await done_in(queue) == 0
            assert await archived(store) == ids

    run(main)


def test_a_queue_that_is_closed_reads_no_jobs_that_have_no_file() -> None:
    async def main(loop: VirtualLoop) -> None:
        store = SimulatedStore(loop)
        async with open_queue(loop, store, GroupCommitter) as queue:
            ids = await finish(queue, 3)
            await until_it_waits(queue)
            began_s = loop.time()
        assert loop.time() == began_s, "the storage was asked"
        async with open_queue(loop, store, GroupCommitter) as queue:
            assert await done_in(queue) == len(ids)

    run(main)


def test_a_burst_of_finished_jobs_leaves_at_once() -> None:
    async def main(loop: VirtualLoop) -> None:
        store = SimulatedStore(loop)
        async with open_queue(loop, store, GroupCommitter) as queue:
            await finish_many(queue, 3000, "x" * 200)
            await asyncio.sleep(0.9)
            assert await done_in(queue) < 1000

    run(main)
