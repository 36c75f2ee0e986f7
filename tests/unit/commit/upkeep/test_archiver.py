"""A queue that stays open archives by itself, and nobody waits for it."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from bucketq.archive.reader import ArchiveReader
from bucketq.commit.direct_committer import DirectCommitter
from bucketq.commit.group_committer import GroupCommitter
from bucketq.commit.upkeep import archiver
from bucketq.errors import JobNotFoundError, StoreRefusedError, UnavailableError
from bucketq.model.operations import Request
from bucketq.model.outbox import Outbox
from bucketq.testing import Faults, SimulatedStore, VirtualLoop, run
from bucketq.testing.simulated_clock import EPOCH
from tests.unit.commit.upkeep.archived_queue import (
    LAYOUT,
    QUEUES,
    archived,
    finish,
    finish_many,
    open_queue,
)


@pytest.mark.parametrize("queue_type", QUEUES)
def test_a_finished_job_leaves_after_a_while_by_itself(queue_type: type[Any]) -> None:
    async def main(loop: VirtualLoop) -> None:
        store = SimulatedStore(loop)
        async with open_queue(loop, store, queue_type) as queue:
            ids = await finish(queue, 5)
            assert (await queue.get(ids[0])).result == "result"
            await asyncio.sleep(30)
            assert (await queue.stats()).counts == {}
            with pytest.raises(JobNotFoundError, match="archived"):
                await queue.get(ids[0])
            assert await archived(store) == ids

    run(main)


@pytest.mark.parametrize("queue_type", QUEUES)
def test_flushing_archives_what_is_finished_and_leaves_the_rest(queue_type: type[Any]) -> None:
    async def main(loop: VirtualLoop) -> None:
        store = SimulatedStore(loop)
        async with open_queue(loop, store, queue_type) as queue:
            ids = await finish(queue, 3)
            waiting = await queue.push("k", "waiting")
            assert await queue.flush_archive() == 3
            assert await queue.flush_archive() == 0
            assert await archived(store) == ids
            assert (await queue.get(waiting)).status == "queued"

    run(main)


@pytest.mark.parametrize("queue_type", QUEUES)
def test_a_store_that_takes_no_archive_files_keeps_the_jobs_in_the_queue(
    queue_type: type[Any],
) -> None:
    async def main(loop: VirtualLoop) -> None:
        store = SimulatedStore(loop)
        async with open_queue(loop, store, queue_type) as queue:
            ids = await finish(queue, 3)

            async def refuse(*_: object) -> list[str]:
                raise UnavailableError("no archive files today")

            writer = queue._committer._archiver._writer
            writer.write, write = refuse, writer.write
            await asyncio.sleep(60)
            assert (await queue.stats()).total("done") == 3
            writer.write = write
            await asyncio.sleep(60)
            assert await archived(store) == ids

    run(main)


def test_requests_do_not_wait_while_an_archive_file_is_written() -> None:
    async def main(loop: VirtualLoop) -> None:
        store = SimulatedStore(loop)
        async with open_queue(loop, store, GroupCommitter) as queue:
            await finish(queue, 3)
            writer = queue._committer._archiver._writer
            write = writer.write

            async def slowly(*args: Any) -> Any:
                await asyncio.sleep(1000)
                return await write(*args)

            writer.write = slowly
            await asyncio.sleep(20)
            began = loop.time()
            await queue.push("k", "meanwhile")
            assert loop.time() - began < 1

    run(main)


def test_archiving_keeps_up_with_completion() -> None:
    async def main(loop: VirtualLoop) -> None:
        store = SimulatedStore(loop)
        async with open_queue(loop, store, GroupCommitter) as queue:
            await queue.configure(archive_after_s=1.0)
            most = 0
            for _ in range(40):
                await asyncio.gather(*(queue.push("k", 0) for _ in range(50)))
                jobs = await queue.claim(limit=50)
                await asyncio.gather(*(queue.complete(job) for job in jobs))
                most = max(most, (await queue.stats()).total("done"))
                await asyncio.sleep(0.5)
            assert most < 1000
            await asyncio.sleep(10)
            assert len(set(await archived(store))) == 2000

    run(main)


def test_two_processes_that_archive_at_once_lose_nothing() -> None:
    async def main(loop: VirtualLoop) -> None:
        store = SimulatedStore(loop, Faults.harsh())
        async with (
            open_queue(loop, store, DirectCommitter, "one") as one,
            open_queue(loop, store, GroupCommitter, "two") as two,
        ):
            ids = [await one.push("k", number) for number in range(20)]
            while jobs := await two.claim(limit=5):
                for job in jobs:
                    await two.complete(job)
            await asyncio.gather(one.flush_archive(), two.flush_archive())
            store.end_faults()
            await one.flush_archive()
            assert sorted(await archived(store)) == sorted(ids)

    run(main, seed=5)


def test_a_look_archives_all_that_is_due() -> None:
    async def main(loop: VirtualLoop) -> None:
        store = SimulatedStore(loop)
        async with open_queue(loop, store, GroupCommitter) as queue:
            await queue.configure(archive_after_s=3600.0, spill_bytes=16 << 20)
            await finish_many(queue, 10_000)
            reads: list[Outbox] = []
            submit = queue._committer._archiver._submit

            async def watch(request: Request) -> Any:
                answer = await submit(request)
                if isinstance(answer, Outbox):
                    reads.append(answer)
                return answer

            queue._committer._archiver._submit = watch
            await asyncio.sleep(2)
            await queue.configure(archive_after_s=1.0)
            await asyncio.sleep(5)
            assert [len(each.jobs) for each in reads] == [10_000]
            assert len(await archived(store)) == 10_000

    run(main)


def test_a_long_backlog_is_read_in_pieces_one_after_the_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(archiver, "_READ_JOBS", 500)

    async def main(loop: VirtualLoop) -> None:
        store = SimulatedStore(loop)
        async with open_queue(loop, store, GroupCommitter) as queue:
            await queue.configure(archive_after_s=3600.0, spill_bytes=16 << 20)
            await finish_many(queue, 2000)
            await asyncio.sleep(2)
            await queue.configure(archive_after_s=1.0)
            began = loop.time()
            while done := (await queue.stats()).total("done"):
                began = loop.time() if done == 2000 else began
            assert loop.time() - began < 2  # It does not wait for three more looks.

    run(main)


def test_finished_jobs_leave_sooner_if_they_take_much_room() -> None:
    async def main(loop: VirtualLoop) -> None:
        store = SimulatedStore(loop)
        async with open_queue(loop, store, GroupCommitter) as queue:
            await queue.configure(archive_after_s=3600.0, spill_bytes=16 << 20)
            await finish_many(queue, 20_000, "x" * 100)
            await asyncio.sleep(5)
            kept = (await queue.stats()).total("done")
            assert 1000 < kept < 12_000
            await asyncio.sleep(60)
            assert (await queue.stats()).total("done") == kept
            assert len(await archived(store)) == 20_000 - kept

    run(main)


@pytest.mark.parametrize("queue_type", QUEUES)
def test_a_flush_returns_when_all_has_left_also_if_another_process_was_faster(
    queue_type: type[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archiver, "_FILE_JOBS", 1000)

    async def main(loop: VirtualLoop) -> None:
        store = SimulatedStore(loop)
        async with (
            open_queue(loop, store, queue_type, "one") as one,
            open_queue(loop, store, GroupCommitter, "two") as two,
        ):
            await two.configure(archive_after_s=3600.0, spill_bytes=16 << 20)
            for _ in range(4):
                await finish_many(two, 2000)

                async def flush(queue: Any) -> int:
                    count: int = await queue.flush_archive()
                    assert (await queue.stats()).total("done") == 0
                    return count

                counts = await asyncio.gather(flush(one), flush(two), flush(two))
                assert sum(counts) == 2000
            assert len(await archived(store)) == 8000

    run(main)


def test_a_flush_does_not_wait_for_what_finishes_meanwhile() -> None:
    async def main(loop: VirtualLoop) -> None:
        store = SimulatedStore(loop)
        async with open_queue(loop, store, GroupCommitter) as queue:

            async def work() -> None:
                while True:
                    await finish_many(queue, 1000)

            await asyncio.gather(queue.configure(spill_bytes=1 << 28), finish_many(queue, 5000))
            working = loop.create_task(work())
            assert await queue.flush_archive() >= 5000
            working.cancel()
            await asyncio.wait([working])

    run(main)


def test_an_id_used_again_while_two_processes_archive_loses_no_completion() -> None:
    async def main(loop: VirtualLoop) -> None:
        store = SimulatedStore(loop)
        async with (
            open_queue(loop, store, DirectCommitter, "slow") as slow,
            open_queue(loop, store, GroupCommitter, "quick") as quick,
        ):

            async def finish_again(result: str) -> None:
                await quick.push("k", result, id="again")
                [job] = await quick.claim()
                await quick.complete(job, result)

            await finish_again("first")
            may_go_on, writer = asyncio.Event(), slow._committer._archiver._writer
            write = writer.write

            async def held_up(*args: Any) -> list[str]:
                keys: list[str] = await write(*args)
                await may_go_on.wait()
                return keys

            writer.write = held_up
            archiving = loop.create_task(slow.flush_archive())
            await asyncio.sleep(5)
            assert await quick.flush_archive() == 1
            await finish_again("second")
            may_go_on.set()
            await archiving
            await quick.flush_archive()
            reader = ArchiveReader(store.connect("reader"), LAYOUT)
            found = [job.result async for job in reader.jobs(EPOCH, EPOCH + timedelta(days=2))]
            assert [bytes(result) for result in found] == [b'"first"', b'"second"']

    run(main)


@pytest.mark.parametrize("queue_type", QUEUES)
def test_a_job_that_finished_in_the_future_holds_up_no_other(queue_type: type[Any]) -> None:
    async def main(loop: VirtualLoop) -> None:
        store = SimulatedStore(loop)
        async with open_queue(loop, store, queue_type) as queue:
            queue._sender.clock.jump(7200)
            ahead = await finish(queue, 1)
            queue._sender.clock.jump(-7200)
            later = await finish(queue, 3)
            await asyncio.sleep(30)
            assert (await queue.stats()).total("done") == 0
            assert sorted(await archived(store)) == sorted([*ahead, *later])

    run(main)


def test_a_direct_queue_archives_however_busy_it_is() -> None:
    async def main(loop: VirtualLoop) -> None:
        store = SimulatedStore(loop)
        async with open_queue(loop, store, DirectCommitter) as queue:
            ids: list[str] = []

            async def work() -> None:
                while True:
                    ids.extend(await finish(queue, 1))

            working = [loop.create_task(work()) for _ in range(3)]
            await asyncio.sleep(60)
            done = (await queue.stats()).total("done")
            assert len(ids) > 100
            assert done < len(ids) / 3  # Those of the last ten seconds and of one look, of sixty.
            for task in working:
                task.cancel()
            await asyncio.wait(working)

    run(main)


@pytest.mark.parametrize("queue_type", QUEUES)
def test_archiving_that_fails_is_logged_once_and_tried_again(
    queue_type: type[Any], caplog: pytest.LogCaptureFixture
) -> None:
    async def main(loop: VirtualLoop) -> None:
        store = SimulatedStore(loop)
        async with open_queue(loop, store, queue_type) as queue:
            ids = await finish(queue, 3)
            tries = 0

            async def refuse(*_: object) -> list[str]:
                nonlocal tries
                tries += 1
                raise StoreRefusedError("no space left")

            writer = queue._committer._archiver._writer
            writer.write, write = refuse, writer.write
            await asyncio.sleep(600)
            assert 30 < tries < 100
            [record] = caplog.records
            assert record.levelname == "WARNING"
            assert "queue/archive/ fails" in record.getMessage()
            assert "no space left" in record.getMessage()
            assert queue._committer.state.archive_trouble == "no space left"
            writer.write = write
            await asyncio.sleep(30)
            assert await archived(store) == ids
            assert [record.levelname for record in caplog.records] == ["WARNING", "INFO"]

    with caplog.at_level("INFO", logger="bucketq"):
        run(main)


def test_an_idle_queue_costs_no_request() -> None:
    async def main(loop: VirtualLoop) -> None:
        store = SimulatedStore(loop)
        async with open_queue(loop, store, DirectCommitter) as queue:
            await queue.push("k", 1)
            asked: list[Request] = []
            submit = queue._committer._archiver._submit

            async def watch(request: Request) -> Any:
                asked.append(request)
                return await submit(request)

            queue._committer._archiver._submit = watch
            await asyncio.sleep(3600)
            assert asked == []

    run(main)


def test_a_process_whose_clock_is_ahead_does_not_prune_what_others_keep() -> None:
    async def main(loop: VirtualLoop) -> None:
        store = SimulatedStore(loop)
        async with open_queue(loop, store, DirectCommitter) as queue:
            await queue.configure(archive_retention_s=86400.0)
            ids = await finish(queue, 3)
            await queue.flush_archive()
            async with open_queue(loop, store, DirectCommitter, "ahead") as ahead:
                ahead._sender.clock.jump(40 * 86400)
                for _ in range(70):  # It prunes once an hour.
                    await asyncio.sleep(60)
                    await ahead.push("k", 1)
                    await queue.push("k", 1)
                assert set(ids) <= set(await archived(store))

    run(main)


def test_the_archive_is_pruned_by_the_retention_of_the_queue() -> None:
    async def main(loop: VirtualLoop) -> None:
        store = SimulatedStore(loop)
        async with open_queue(loop, store, GroupCommitter) as queue:
            await queue.configure(archive_retention_s=7200.0)
            await finish(queue, 2)
            await asyncio.sleep(3600)
            assert len(await archived(store)) == 2
            await asyncio.sleep(5 * 3600)
            assert await archived(store) == []

    run(main)
