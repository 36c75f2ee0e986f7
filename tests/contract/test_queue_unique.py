"""What every queue promises about unique jobs."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from bucketq import InvalidRequestError, JobSpec, Queue
from tests.contract.places import Place


async def test_a_unique_job_is_pushed_once_until_it_is_over(queue: Queue[Any]) -> None:
    first = await queue.push("index", {"user": 17}, unique="user-17")
    again = await queue.push("index", {"user": 17}, unique="user-17")
    assert (again, first.duplicate, again.duplicate) == (first, False, True)
    assert (await queue.get(first)).unique == "user-17"
    other = await queue.push("mail", {"user": 17}, unique="user-17")
    assert not other.duplicate
    (job,) = await queue.claim("index")
    assert await queue.push("index", 2, unique="user-17") == first
    await queue.complete(job)
    last = await queue.push("index", 3, unique="user-17")
    assert (last != first, last.duplicate) == (True, False)


async def test_with_the_scope_queued_a_running_job_does_not_count(queue: Queue[Any]) -> None:
    first = await queue.push("index", 1, unique="u")
    await queue.claim()
    second = await queue.push("index", 2, unique="u", unique_scope="queued")
    assert second != first
    assert await queue.push("index", 3, unique="u", unique_scope="queued") == second


async def test_a_push_debounces_the_job_that_waits(queue: Queue[Any]) -> None:
    first = await queue.push("index", [1], unique="u", delay_s=60)
    before = await queue.get(first)
    assert await queue.push("index", b"2", unique="u", delay_s=600, replace="both") == first
    job = await queue.get(first)
    assert job.payload == b"2" if not isinstance(job.payload, str) else job.payload == "Mg=="
    assert before.run_at is not None
    assert job.run_at is not None
    assert job.run_at - before.run_at > timedelta(seconds=500)
    assert await queue.push("index", 3, unique="u", replace="run_at") == first
    (job,) = await queue.claim()
    assert job.id == first
    assert await queue.push("index", 4, unique="u", replace="payload") == first
    assert (await queue.get(first)).record.payload == job.record.payload


async def test_within_a_period_a_name_is_taken_whatever_became_of_its_job(
    queue: Queue[Any],
) -> None:
    first = await queue.push("index", 1, unique="u", unique_scope=3600)
    (job,) = await queue.claim()
    await queue.complete(job)
    again = await queue.push("index", 2, unique="u", unique_scope=timedelta(hours=1))
    assert (again, again.duplicate) == (first, True)
    assert await queue.push("index", 3, unique="u") != first
    with pytest.raises(InvalidRequestError, match="key_retention_s"):
        await queue.push("index", 1, unique="u", unique_scope=3601)


async def test_unique_jobs_of_one_push_are_compared_one_by_one(queue: Queue[Any]) -> None:
    first = await queue.push("index", 0, unique="u0")
    jobs = [JobSpec(kind="index", payload=n, unique=f"u{n}") for n in range(3)]
    ids = await queue.push_many(jobs)
    assert [each.duplicate for each in ids] == [True, False, False]
    assert ids[0] == first
    assert await queue.push_many(jobs) == ids
    with pytest.raises(InvalidRequestError, match="stands twice"):
        await queue.push_many([jobs[0], jobs[0]])


async def test_of_many_that_push_at_once_one_adds_the_job(place: Place) -> None:
    async with place.connect() as one, place.connect() as other:
        pushes = (queue.push("index", n, unique="u") for n in range(5) for queue in (one, other))
        ids = await asyncio.gather(*pushes)
        assert len(set(ids)) == 1
        assert sum(not each.duplicate for each in ids) == 1


async def test_a_key_decides_first(queue: Queue[Any]) -> None:
    first = await queue.push("index", 1, unique="u", key="k")
    await queue.cancel(first)
    second = await queue.push("index", 2, unique="u")
    assert await queue.push("index", 1, unique="u", key="k") == first
    assert await queue.push("index", 3, unique="u", key="l") == second
    await queue.cancel(second)
    assert await queue.push("index", 3, unique="u", key="l") == second


@pytest.mark.parametrize(
    "options",
    [{"replace": "both"}, {"unique_scope": "queued"}, {"unique": "u", "unique_scope": "dead"}],
)
async def test_options_that_make_no_sense_are_refused(
    queue: Queue[Any], options: dict[str, Any]
) -> None:
    with pytest.raises(InvalidRequestError):
        await queue.push("index", 1, **options)
