"""A batch ends once, with the right counts, although a broker is killed meanwhile."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import bucketq
from bucketq import BatchCounts, Context, JobSpec, Queue, Worker
from tests.chaos.fleet import Fleet

pytestmark = pytest.mark.timeout(120)

JOBS = 200
IDLE = 650  # More than two pages of a cancellation.


async def until_ended(queue: Queue[Any], batch_id: str, count: int) -> None:
    while True:
        info = await queue.get_batch(batch_id)
        if info.jobs - info.open >= count:
            return
        await asyncio.sleep(0.02)


async def test_the_callback_runs_once_with_the_right_counts(
    processes: Fleet, served_url: str
) -> None:
    first = processes.serve(served_url)
    first.wait_until_leading()
    second = processes.serve(served_url)
    second.wait_until_serving()
    worker = Worker(served_url, mode="remote", timeout_s=90, concurrency=10)
    reports: list[tuple[str, BatchCounts | None]] = []

    @worker.handler("page", max_attempts=50)
    async def work(number: int, context: Context) -> None:
        del context
        await asyncio.sleep(0.01)
        if number % 10 == 0:
            raise bucketq.GiveUp("no such page")

    @worker.handler("report", max_attempts=50)
    async def report(name: str, context: Context) -> None:
        reports.append((name, context.job.done_batch))

    async with bucketq.connect(served_url, mode="remote", timeout_s=90) as queue:
        # The callbacks are listed in the end, so they must not leave for the archive.
        await queue.configure(archive_after_s=3600.0, spill_bytes=16 << 20)
        async with queue.batch(on_done=JobSpec(kind="report", payload="pages")) as pages:
            await pages.push_many([JobSpec(kind="page", payload=n) for n in range(JOBS)])
        async with queue.batch(on_done=JobSpec(kind="report", payload="idle")) as idle:
            await idle.push_many([JobSpec(kind="idle", payload=n) for n in range(IDLE)])
        working = asyncio.create_task(worker.run())
        await until_ended(queue, pages.id, JOBS // 4)
        cancelling = asyncio.create_task(queue.cancel_jobs(idle.id))
        first.kill()
        assert (await cancelling).cancelled == IDLE
        for batch in (pages, idle):
            callback = None
            while callback is None:
                await asyncio.sleep(0.02)
                callback = (await queue.get_batch(batch.id)).callback
            await queue.wait(callback, timeout_s=60)
        worker.stop()
        await working
        done = (await queue.jobs(kinds="report", limit=10)).jobs
        assert sorted(job.payload for job in done) == ["idle", "pages"]
        counts = {job.payload: job.done_batch for job in done}
        assert counts == {
            "pages": BatchCounts(pages.id, JOBS, completed=JOBS - JOBS // 10, dead=JOBS // 10),
            "idle": BatchCounts(idle.id, IDLE, cancelled=IDLE),
        }
        # A job may run twice if the broker dies; what it sees is the same.
        assert dict(reports) == counts
