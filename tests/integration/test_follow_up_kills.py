"""Follow-up jobs exist once for each completed job, although brokers are killed meanwhile."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest

import bucketq
from bucketq import Context, JobSpec, Queue, Snooze, Worker
from tests.chaos.fleet import Fleet

pytestmark = pytest.mark.timeout(120)

JOBS = 200


async def until_done(queue: Queue[Any], count: int) -> None:
    while True:
        counts = (await queue.stats()).counts
        if counts.get("first", {}).get("done", 0) >= count:
            return
        await asyncio.sleep(0.02)


async def test_each_completed_job_has_pushed_once(processes: Fleet, served_url: str) -> None:
    first = processes.serve(served_url)
    first.wait_until_leading()
    second = processes.serve(served_url)
    second.wait_until_serving()
    worker = Worker(served_url, mode="remote", timeout_s=90, concurrency=10)

    @worker.handler("first", max_attempts=50)
    async def work(number: int, context: Context) -> int:
        for place in range(2):
            await context.push("next", [number, place])
        await asyncio.sleep(0.01)
        if context.job.snoozes == 0 and number % 5 == 0:
            raise Snooze(0.1)
        seen = await context.queue.get(context.job.id)
        return seen.attempt

    async with bucketq.connect(served_url, mode="remote", timeout_s=90) as queue:
        await queue.push_many([JobSpec(kind="first", payload=n) for n in range(JOBS)])
        working = asyncio.create_task(worker.run())
        await until_done(queue, JOBS // 4)
        first.kill()
        await until_done(queue, JOBS)
        worker.stop()
        await working
        jobs = (await queue.jobs(kinds="next", limit=3 * JOBS)).jobs
        pushed = Counter(tuple(job.payload) for job in jobs)
        assert pushed == {(n, place): 1 for n in range(JOBS) for place in range(2)}
        done = (await queue.jobs(kinds="first", limit=2 * JOBS)).jobs
        assert all(job.snoozes == (job.payload % 5 == 0) for job in done)
