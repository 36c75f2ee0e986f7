"""What a burst does about jobs whose workers seem to be gone: it waits until it gets them."""

from __future__ import annotations

import asyncio
from pathlib import Path

import bucketq
from tests.unit.commit.worlds import virtual
from tests.unit.worker.engine_harness import burst, engine_of, handler, opened


@handler()
def nothing() -> None:
    """Do nothing."""


@virtual
async def test_a_burst_waits_for_the_job_of_a_worker_that_is_gone() -> None:
    async with opened() as (queue, faulty):
        await queue.push("mail", 1)
        await queue.claim("mail", worker="gone")
        await asyncio.sleep(31)
        engine = await burst(faulty, nothing)
        assert engine.counters.count("done") == 1
        assert (await queue.stats()).total("running") == 0


@virtual
async def test_a_burst_does_not_wait_for_a_worker_that_sends_heartbeats() -> None:
    loop = asyncio.get_running_loop()
    async with opened() as (queue, faulty):
        await queue.push("mail", 1)
        (job,) = await queue.claim("mail", worker="there")
        for _ in range(5):
            await asyncio.sleep(10)
            await queue.heartbeat(job)
        began_s = loop.time()
        await burst(faulty, nothing)
        assert loop.time() - began_s < 1
        assert (await queue.stats()).total("running") == 1


@virtual
async def test_a_burst_waits_no_longer_than_it_takes_to_know() -> None:
    """Another worker gets the job first, so it never comes."""
    loop = asyncio.get_running_loop()
    async with opened() as (queue, faulty):
        await queue.push("mail", 1)
        (job,) = await queue.claim("mail", worker="slow")
        await asyncio.sleep(31)
        began_s = loop.time()
        bursting = asyncio.create_task(burst(faulty, nothing))
        await asyncio.sleep(5)
        await queue.complete(job)
        await bursting
        assert loop.time() - began_s <= 51


@virtual
async def test_a_burst_ignores_jobs_of_other_kinds() -> None:
    loop = asyncio.get_running_loop()
    async with opened() as (queue, faulty):
        await queue.push("fax", 1)
        await queue.claim("fax", worker="gone")
        await asyncio.sleep(31)
        began_s = loop.time()
        await burst(faulty, nothing)
        assert loop.time() - began_s < 1


@virtual
async def test_a_burst_that_waits_ends_when_it_is_stopped() -> None:
    loop = asyncio.get_running_loop()
    async with opened() as (queue, faulty):
        await queue.push("mail", 1)
        await queue.claim("mail", worker="gone")
        await asyncio.sleep(31)
        began_s = loop.time()
        engine = engine_of(faulty, nothing, burst=True)
        running = asyncio.create_task(engine.run())
        await asyncio.sleep(1)
        engine.stop()
        await running
        assert loop.time() - began_s < 2


async def test_short_bursts_find_the_job_of_a_worker_that_was_killed(tmp_path: Path) -> None:
    url = (tmp_path / "queue.json").as_uri()
    worker = bucketq.Worker(url, mode="embedded")
    done: list[int] = []

    @worker.handler("mail")
    async def note(number: int) -> None:
        done.append(number)

    async with bucketq.connect(url, mode="direct") as queue:
        await queue.configure(lease_s=1.0, heartbeat_s=0.3, grace_s=1.0)
        await queue.push("mail", 1)
        await queue.claim("mail", worker="gone")
    await asyncio.sleep(1.1)
    async with asyncio.timeout(30):
        await worker.run(burst=True)
    assert done == [1]
