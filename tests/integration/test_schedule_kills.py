"""Every due time of a schedule has one job, although the brokers that fire it are killed."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import bucketq
from bucketq import Queue
from bucketq.model.job_ids import made_at
from tests.chaos.fleet import Fleet

pytestmark = pytest.mark.timeout(120)

KILLS = 3
EVERY_MS = 1000


async def until_pushed(queue: Queue[Any], count: int) -> None:
    while True:
        if len((await queue.jobs(kinds="tick", limit=100)).jobs) >= count:
            return
        await asyncio.sleep(0.05)


async def test_every_due_time_has_one_job(processes: Fleet, served_url: str) -> None:
    leader = processes.serve(served_url)
    leader.wait_until_leading()
    async with bucketq.connect(served_url, mode="remote", timeout_s=60) as queue:
        await queue.schedule("tick", "tick", None, every_s=EVERY_MS / 1000, missed="all")
        for count in range(2, 2 * KILLS + 1, 2):
            await until_pushed(queue, count)
            leader.kill()
            leader = processes.serve(served_url)
            leader.wait_until_leading()
        await until_pushed(queue, 2 * KILLS + 1)
        await queue.unschedule("tick")
        jobs = (await queue.jobs(kinds="tick", limit=100)).jobs
    times = [made_at(job.id) or 0 for job in jobs]
    assert times == [times[0] + place * EVERY_MS for place in range(len(times))]
