"""What every queue promises about jobs that are pushed with a completion."""

from __future__ import annotations

from typing import Any

import pytest

from bucketq import (
    InvalidRequestError,
    JobNotFoundError,
    JobSpec,
    LeaseLostError,
    PayloadTooLargeError,
    Queue,
)


def spec(number: int, **options: Any) -> JobSpec[Any]:
    return JobSpec(kind="next", payload=number, **options)


async def test_follow_ups_exist_once_the_job_is_completed(queue: Queue[Any]) -> None:
    first = await queue.push("first", 0)
    (job,) = await queue.claim("first")
    ids = await queue.complete(job, "done", push=[spec(1), spec(2, priority=-1, delay_s=0)])
    assert len(set(ids)) == 2
    assert await queue.wait(first) == "done"
    jobs = await queue.claim("next", limit=5)
    assert [(each.id, each.payload) for each in jobs] == [(ids[1], 2), (ids[0], 1)]
    assert await queue.complete_many(jobs) == [True, True]


async def test_a_lost_lease_pushes_nothing(queue: Queue[Any]) -> None:
    await queue.push("first", 0)
    (job,) = await queue.claim("first")
    await queue.release(job)
    with pytest.raises(LeaseLostError):
        await queue.complete(job, push=[spec(1)])
    assert await queue.claim("next") == []
    (again,) = await queue.claim("first")
    ids = await queue.complete(again, push=[spec(2)])
    assert [each.id for each in await queue.claim("next", limit=5)] == ids


async def test_a_completion_that_is_repeated_pushes_once(queue: Queue[Any]) -> None:
    await queue.push("first", 0)
    (job,) = await queue.claim("first")
    once = await queue.complete(job, push=[spec(1)])
    await queue.complete(job, push=[spec(1)])
    assert [each.id for each in await queue.claim("next", limit=5)] == once


async def test_each_attempt_makes_ids_of_its_own(queue: Queue[Any]) -> None:
    await queue.push_many([JobSpec(kind="first", payload=n) for n in range(3)])
    jobs = await queue.claim("first", limit=3)
    made = [each for job in jobs for each in await queue.complete(job, push=[spec(1), spec(2)])]
    assert len(set(made)) == 6
    assert sorted(each.id for each in await queue.claim("next", limit=10)) == sorted(made)


async def test_a_full_queue_takes_them(queue: Queue[Any]) -> None:
    await queue.configure(max_jobs=1)
    await queue.push("first", 0)
    (job,) = await queue.claim("first")
    await queue.complete(job, push=[spec(n) for n in range(5)])
    assert len(await queue.claim("next", limit=10)) == 5


async def test_a_taken_name_or_key_refuses_no_completion(queue: Queue[Any]) -> None:
    there = await queue.push("next", 0, unique="u", key="k")
    await queue.push("first", 0, unique="u")
    (job,) = await queue.claim("first")
    ids = await queue.complete(
        job,
        push=[spec(1, unique="u"), spec(2, key="k"), spec(3, id=there), spec(4, unique="v")],
    )
    found = [(each.id, each.payload) for each in await queue.claim("next", limit=10)]
    assert found == [(there, 0), (ids[3], 4)]
    with pytest.raises(JobNotFoundError):
        await queue.get(ids[0])


async def test_what_cannot_be_pushed_leaves_the_job_running(queue: Queue[Any]) -> None:
    await queue.push("first", 0)
    (job,) = await queue.claim("first")
    for jobs in ([spec(1, id="a"), spec(2, id="a")], [spec(n) for n in range(1001)]):
        with pytest.raises(InvalidRequestError):
            await queue.complete(job, push=jobs)
    await queue.configure(max_payload_bytes=10)
    with pytest.raises(PayloadTooLargeError, match="max_payload_bytes"):
        await queue.complete(job, push=[JobSpec(kind="next", payload="x" * 100)])
    assert (await queue.get(job.id)).status == "running"
    await queue.complete(job)
