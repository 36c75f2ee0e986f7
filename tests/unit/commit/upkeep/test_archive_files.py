"""Finished jobs leave after their archive files are written: several files by one commit."""

from __future__ import annotations

from typing import Any

import pytest

from bucketq.commit.group_committer import GroupCommitter
from bucketq.commit.upkeep import archiver
from bucketq.errors import StoreRefusedError
from bucketq.model.outbox import Outbox
from bucketq.testing import SimulatedStore, VirtualLoop, run
from tests.unit.commit.upkeep.archived_queue import (
    KEY,
    LAYOUT,
    QUEUES,
    archived,
    finish,
    finish_many,
    open_queue,
)


def test_an_archive_file_is_bounded_by_jobs_and_bytes() -> None:
    async def main(loop: VirtualLoop) -> None:
        store = SimulatedStore(loop)
        async with open_queue(loop, store, GroupCommitter) as queue:
            await queue.configure(archive_after_s=3600.0, inline_bytes=1 << 20)
            for _ in range(12):
                await queue.push("k", "x" * 1_000_000)
            for job in await queue.claim(limit=12):
                await queue.complete(job)
            await queue.flush_archive()
            assert len(await archived(store)) == 12
            sizes = [len(c.body) for c in store.commits if c.body and LAYOUT.parse(c.key)]
            assert len(sizes) > 1
            assert max(sizes) <= 8 << 20

    run(main)


@pytest.mark.parametrize("queue_type", QUEUES)
def test_jobs_of_several_archive_files_leave_by_one_commit(
    queue_type: type[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archiver, "_FILE_JOBS", 400)

    async def main(loop: VirtualLoop) -> None:
        store = SimulatedStore(loop)
        async with open_queue(loop, store, queue_type) as queue:
            await queue.configure(archive_after_s=3600.0, spill_bytes=16 << 20)
            await finish_many(queue, 2000)
            before = len(store.commits)
            assert await queue.flush_archive() == 2000
            keys = [commit.key for commit in store.commits[before:]]
            assert [key == KEY for key in keys] == [False] * 4 + [True, False, True]
            assert len(await archived(store)) == 2000

    run(main)


@pytest.mark.parametrize("queue_type", QUEUES)
def test_jobs_that_are_in_the_archive_leave_although_another_file_failed(
    queue_type: type[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archiver, "_FILE_JOBS", 1)

    async def main(loop: VirtualLoop) -> None:
        store = SimulatedStore(loop)
        async with open_queue(loop, store, queue_type) as queue:
            await queue.configure(archive_after_s=3600.0)
            ids = await finish(queue, 6)
            writer = queue._committer._archiver._writer
            write = writer.write

            async def refuse_one(jobs: Any, version: int, lines: Any) -> list[str]:
                if jobs[0][0].id == ids[1]:
                    raise StoreRefusedError("no space left")
                keys: list[str] = await write(jobs, version, lines)
                return keys

            writer.write = refuse_one
            with pytest.raises(StoreRefusedError):
                await queue.flush_archive()
            assert set(await archived(store)) == {ids[0], *ids[2:4]}
            assert [job.id for job in (await queue.jobs()).jobs] == [ids[1], *ids[4:]]
            writer.write = write
            assert await queue.flush_archive() == 3
            assert sorted(await archived(store)) == sorted(ids)

    run(main)


def test_jobs_are_cut_into_files_at_their_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archiver, "_FILE_JOBS", 3)
    monkeypatch.setattr(archiver, "_FILE_BYTES", 10)

    def cut(*lengths: int) -> list[list[int]]:
        jobs: Any = tuple((number, None) for number in range(len(lengths)))
        outbox = Outbox(1, jobs, tuple(b"x" * length for length in lengths))
        files = list(archiver._archive_files(outbox))
        assert [job for some, _ in files for job in some] == [*jobs]
        assert all(len(some) == len(lines) for some, lines in files)
        return [[len(line) for line in lines] for _, lines in files]

    assert cut() == []
    assert cut(5, 5, 5) == [[5, 5], [5]]
    assert cut(5, 6, 11, 1) == [[5], [6], [11], [1]]
    assert cut(1, 1, 1, 1, 9, 1) == [[1, 1, 1], [1, 9], [1]]
    unmade: Any = tuple((number, None) for number in range(7))
    files = [some for some, _ in archiver._archive_files(Outbox(1, unmade, ()))]
    assert [len(some) for some in files] == [3, 3, 1]
    assert [job for some in files for job in some] == [*unmade]
