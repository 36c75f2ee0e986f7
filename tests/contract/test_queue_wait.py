"""What every queue promises to those who wait for a job."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from bucketq import (
    InvalidRequestError,
    JobCancelledError,
    JobFailedError,
    JobNotFoundError,
    Queue,
)
from tests.contract.places import Place


async def started(queue: Queue[Any], job_id: str, **options: Any) -> asyncio.Task[Any]:
    """Begin to wait for a job, and go on when the wait is under way."""
    task = asyncio.get_running_loop().create_task(queue.wait(job_id, **options))
    await asyncio.sleep(0.05)
    return task


async def test_a_wait_returns_the_result_when_the_job_is_completed(queue: Queue[Any]) -> None:
    job_id = await queue.push("add", [1, 2])
    waiting = await started(queue, job_id)
    (job,) = await queue.claim()
    assert not waiting.done()
    await queue.complete(job, {"sum": 3})
    assert await waiting == {"sum": 3}
    assert await queue.wait(job_id) == {"sum": 3}


async def test_a_job_that_has_no_result_ends_a_wait_with_none(queue: Queue[Any]) -> None:
    job_id = await queue.push("add", [1, 2])
    waiting = await started(queue, job_id)
    await queue.complete_many(await queue.claim())
    assert await waiting is None


async def test_bytes_come_back_as_bytes(queue: Queue[Any]) -> None:
    job_id = await queue.push("render", "x")
    (job,) = await queue.claim()
    await queue.complete(job, b"\x89PNG")
    assert await queue.wait(job_id) == b"\x89PNG"


async def test_a_wait_for_a_job_that_dies_raises_its_last_error(queue: Queue[Any]) -> None:
    job_id = await queue.push("add", [1, 2], max_attempts=1)
    waiting = await started(queue, job_id)
    (job,) = await queue.claim()
    await queue.fail(job, "the disk is full")
    with pytest.raises(JobFailedError, match="the disk is full") as caught:
        await waiting
    assert caught.value.error == "the disk is full"
    with pytest.raises(JobFailedError):
        await queue.wait(job_id, timeout_s=0)


async def test_a_failure_that_is_retried_does_not_end_a_wait(queue: Queue[Any]) -> None:
    job_id = await queue.push("add", [1, 2])
    waiting = await started(queue, job_id)
    (job,) = await queue.claim()
    await queue.fail(job, "not now", delay_s=0)
    (job,) = await queue.claim()
    assert not waiting.done()
    await queue.complete(job, 3)
    assert await waiting == 3


async def test_a_wait_for_a_cancelled_job_says_so(queue: Queue[Any]) -> None:
    job_id = await queue.push("add", [1, 2])
    waiting = await started(queue, job_id)
    await queue.cancel(job_id)
    with pytest.raises(JobCancelledError, match=job_id):
        await waiting


async def test_a_wait_for_no_job_at_all_says_so(queue: Queue[Any]) -> None:
    with pytest.raises(JobNotFoundError, match="never"):
        await queue.wait("never pushed")
    with pytest.raises(JobNotFoundError, match="01KG9MFMM0PWD5ARV0FP67PJ7K"):
        await queue.wait("01KG9MFMM0PWD5ARV0FP67PJ7K")


async def test_a_wait_ends_when_its_time_is_over(queue: Queue[Any]) -> None:
    job_id = await queue.push("add", [1, 2])
    with pytest.raises(TimeoutError, match=job_id):
        await queue.wait(job_id, timeout_s=0)
    with pytest.raises(TimeoutError, match=job_id):
        await queue.wait(job_id, timeout_s=0.1)
    (job,) = await queue.claim()
    await queue.complete(job, 3)
    assert await queue.wait(job_id, timeout_s=0) == 3


async def test_the_result_of_an_archived_job_is_found(queue: Queue[Any]) -> None:
    job_id = await queue.push("add", [1, 2])
    own = await queue.push("add", [1, 3], id="my-own")
    await queue.complete_many([(job, sum(job.payload)) for job in await queue.claim(limit=2)])
    assert await queue.flush_archive() == 2
    assert (await queue.wait(job_id), await queue.wait(own)) == (3, 4)


async def test_an_id_that_was_used_again_means_the_newest_job(queue: Queue[Any]) -> None:
    for number in (1, 2):
        await queue.push("add", number, id="my-own")
        (job,) = await queue.claim()
        await queue.complete(job, number)
        assert await queue.flush_archive() == 1
    assert await queue.wait("my-own") == 2
    await queue.push("add", 3, id="my-own")
    with pytest.raises(TimeoutError):
        await queue.wait("my-own", timeout_s=0)


async def test_the_newest_job_with_an_id_counts_although_it_has_no_result(
    queue: Queue[Any],
) -> None:
    for result in (1, None):
        await queue.push("add", 0, id="my-own")
        (job,) = await queue.claim()
        await queue.complete(job, result)
        assert await queue.flush_archive() == 1
    assert await queue.wait("my-own") is None


async def test_results_are_found_after_a_restart_and_also_those_that_are_not_known(
    place: Place,
) -> None:
    async with place.connect() as queue:
        await queue.configure(max_results=5)
        ids = list[str]()
        for number in range(12):
            ids.append(await queue.push("add", number))
            (job,) = await queue.claim()
            await queue.complete(job, number)
            assert await queue.flush_archive() == 1
    async with place.connect() as queue:
        assert [await queue.wait(job_id) for job_id in ids] == list(range(12))
        await queue.configure(result_retention_s=0)
        assert [await queue.wait(job_id) for job_id in ids] == list(range(12))


async def test_a_job_is_pushed_and_waited_for_in_one_call(queue: Queue[Any]) -> None:
    task = asyncio.get_running_loop().create_task(queue.push_and_wait("add", [1, 2], priority=3))
    (job,) = await queue.claim(wait_s=30)
    assert job.priority == 3
    await queue.complete(job, 3)
    assert await task == 3


async def test_many_waits_for_one_job_all_end(queue: Queue[Any]) -> None:
    job_id = await queue.push("add", [1, 2])
    waiting = [await started(queue, job_id) for _ in range(5)]
    (job,) = await queue.claim()
    await queue.complete(job, 3)
    assert await asyncio.gather(*waiting) == [3] * 5


async def test_a_wait_that_is_cancelled_leaves_the_queue_usable(queue: Queue[Any]) -> None:
    job_id = await queue.push("add", [1, 2])
    waiting = await started(queue, job_id)
    waiting.cancel()
    (job,) = await queue.claim()
    await queue.complete(job, 3)
    assert await queue.wait(job_id) == 3


async def test_a_bad_wait_is_rejected(queue: Queue[Any]) -> None:
    several: list[dict[str, Any]] = [
        {"job_id": ""},
        {"job_id": 5},
        {"job_id": "x", "timeout_s": -1},
    ]
    for bad in several:
        with pytest.raises(InvalidRequestError):
            await queue.wait(**bad)


async def test_a_blocking_wait_returns_the_result(place: Place) -> None:
    with place.connect_sync() as queue:
        job_id = queue.push("add", [1, 2])
        (job,) = queue.claim()
        queue.complete(job, 3)
        assert queue.wait(job_id, timeout_s=5) == 3


async def test_a_job_that_another_client_completes_ends_a_wait(place: Place) -> None:
    async with place.connect() as queue, place.connect() as worker:
        job_id = await queue.push("add", [1, 2])
        waiting = await started(queue, job_id)
        (job,) = await worker.claim()
        await worker.complete(job, 3)
        assert await waiting == 3
