"""Results of archived jobs are found by the next broker, although one is killed meanwhile."""

from __future__ import annotations

import asyncio

import pytest

import bucketq
from bucketq import JobSpec, Worker
from bucketq.codec.decode import decode
from bucketq.store.url import open_store
from tests.chaos.fleet import Fleet

pytestmark = pytest.mark.timeout(120)

JOBS = 300


@pytest.fixture
def url(new_url: str) -> str:
    """A queue that is there, and empty."""
    with bucketq.connect_sync(new_url, mode="direct") as queue:
        # So that jobs leave at once, and rows on their results move to objects.
        queue.configure(archive_after_s=0.01, spill_bytes=4000)
    return new_url


async def test_results_are_found_by_the_next_broker(processes: Fleet, url: str) -> None:
    first = processes.serve(url)
    first.wait_until_leading()
    second = processes.serve(url)
    second.wait_until_serving()
    worker = Worker(url, mode="remote", timeout_s=90, concurrency=10)

    @worker.handler("double", max_attempts=50)
    async def double(number: int) -> int:
        await asyncio.sleep(0.01)
        return 2 * number

    async with bucketq.connect(url, mode="remote", timeout_s=90) as queue:
        ids = await queue.push_many([JobSpec(kind="double", payload=n) for n in range(JOBS)])
        working = asyncio.create_task(worker.run())
        await queue.wait(ids[JOBS // 3], timeout_s=60)
        first.kill()
        for number, job_id in enumerate(ids):
            assert await queue.wait(job_id, timeout_s=60) == 2 * number
        worker.stop()
        await working
        await queue.flush_archive()
        assert (await queue.stats()).counts == {}
        for number, job_id in enumerate(ids):
            assert await queue.wait(job_id, timeout_s=60) == 2 * number
    # All of them are known to the index, also those that the first broker has archived.
    location = open_store(url)
    state = decode((await location.store.get(location.key)).body, url).state
    assert state.results.count == JOBS
    assert state.results.names()
