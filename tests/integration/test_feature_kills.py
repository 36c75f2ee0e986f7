"""What users rely on every day survives a broker that is killed, on a file and on an S3 server.

Schedules, batches, follow-ups, large payloads and partitions have tests of their own.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import bucketq
from bucketq import Progress, Queue, Worker
from bucketq.client.connect import UnopenedQueue
from tests.chaos.fleet import BrokerProcess, Fleet

pytestmark = [
    pytest.mark.timeout(120),
    pytest.mark.parametrize("new_url", ["file", "seaweedfs"], indirect=True),
]


def two_brokers(processes: Fleet, url: str) -> tuple[BrokerProcess, BrokerProcess]:
    first = processes.serve(url)
    first.wait_until_leading()
    second = processes.serve(url)
    second.wait_until_serving()
    return first, second


async def until_seen(queue: Queue[Any], job_id: str) -> None:
    while True:
        if (await queue.get(job_id)).progress is not None and await queue.workers():
            return
        await asyncio.sleep(0.05)


def remote(url: str) -> UnopenedQueue[Any]:
    return bucketq.connect(url, mode="remote", timeout_s=60)


async def test_turns_and_limits_go_on(processes: Fleet, served_url: str) -> None:
    first, second = two_brokers(processes, served_url)
    async with remote(served_url) as queue:
        await queue.limit(group="*", running=2)
        await queue.limit(group="b", rate=1, period_s=3600)
        for group in "aaabbb":
            await queue.push("report", group, group=group)
        assert [job.payload for job in await queue.claim(limit=2)] == ["a", "b"]
        first.kill()
        second.wait_until_leading(2)
        assert [job.payload for job in await queue.claim(limit=10)] == ["a"]
        await queue.unlimit(group="b")
        assert [job.payload for job in await queue.claim(limit=10)] == ["b"]


async def test_results_progress_and_workers_are_seen(processes: Fleet, served_url: str) -> None:
    first, second = two_brokers(processes, served_url)
    worker = Worker(served_url, worker="ada", mode="remote", timeout_s=60)
    may_end, seen = asyncio.Event(), list[Progress]()

    @worker.handler("film")
    async def film(frames: int, context: bucketq.Context) -> int:
        await context.progress(1, frames)
        await may_end.wait()
        return frames * 2

    async with remote(served_url) as queue:
        await queue.configure(heartbeat_s=0.5)  # Progress comes with heartbeats.
        job_id = await queue.push("film", 10)
        working = asyncio.create_task(worker.run())
        waiting = asyncio.create_task(queue.wait(job_id, timeout_s=90, on_progress=seen.append))
        await until_seen(queue, job_id)
        first.kill()
        await asyncio.to_thread(second.wait_until_leading, 2)
        await until_seen(queue, job_id)
        assert [each.name for each in await queue.workers()] == ["ada"]
        assert not waiting.done()
        may_end.set()
        assert await waiting == 20
        assert seen == [Progress(1.0, 10.0)]
        worker.stop()
        await working


async def test_what_was_decided_stays_decided(processes: Fleet, served_url: str) -> None:
    first, second = two_brokers(processes, served_url)
    async with remote(served_url) as queue:
        named = await queue.push("index", "old", unique="user-17", replace="payload")
        assert (await queue.push("index", "new", unique="user-17", replace="payload")).duplicate
        period = await queue.push("digest", 1, unique="daily", unique_scope=3600)
        await queue.push("poll", 1)
        [polled] = await queue.claim("poll")
        await queue.snooze(polled, 3600)
        soon = await queue.push("offer", 1, expires_in_s=1)
        await queue.pause("mail")
        first.kill()
        second.wait_until_leading(2)
        assert await queue.push("index", "newer", unique="user-17") == named
        assert (await queue.get(named)).payload == "new"
        assert await queue.push("digest", 2, unique="daily", unique_scope=3600) == period
        assert (await queue.get(polled.id)).snoozes == 1
        assert await queue.claim("poll") == []
        await asyncio.sleep(1)
        assert await queue.claim("offer") == []
        with pytest.raises(bucketq.JobExpiredError):
            await queue.wait(soon, timeout_s=60)
        assert [entry.action for entry in await queue.audit()][-1:] == ["pause"]
