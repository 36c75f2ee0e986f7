"""What every queue promises about jobs that expire."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from bucketq import InvalidRequestError, JobExpiredError, JobSpec, Queue
from tests.contract.places import Place


async def test_a_job_that_no_worker_claims_in_time_expires(queue: Queue[Any]) -> None:
    job_id = await queue.push("quote", "ACME", expires_in_s=0.3)
    kept = await queue.push("quote", "kept", expires_in_s=timedelta(hours=1))
    with pytest.raises(JobExpiredError, match=job_id):
        await queue.wait(job_id, timeout_s=30)  # Nothing else is committed meanwhile.
    (job,) = await queue.claim(limit=10)
    assert job.id == kept
    assert job.expires_at is not None
    assert (await queue.stats()).total("queued") == 0
    await queue.complete(job, "done")
    assert await queue.wait(kept) == "done"


async def test_a_job_that_was_claimed_in_time_does_not_expire(queue: Queue[Any]) -> None:
    ids = await queue.push_many(
        [JobSpec(kind="quote", payload=n, expires_in_s=1.0) for n in range(2)]
    )
    jobs = await queue.claim(limit=2)
    assert [job.id for job in jobs] == ids
    await asyncio.sleep(1.1)
    await queue.release(jobs[0])
    await queue.complete(jobs[1])
    (again,) = await queue.claim()
    assert again.id == ids[0]
    await queue.complete(again)


async def test_a_claim_that_waits_does_not_get_an_expired_job(queue: Queue[Any]) -> None:
    waiting = asyncio.create_task(queue.claim("quote", wait_s=30))
    await queue.push("quote", "late", delay_s=0.2, expires_in_s=60)
    (job,) = await waiting
    assert job.payload == "late"
    await queue.pause("quote")
    expired = await queue.push("quote", "paused", expires_in_s=0.2)
    kept = await queue.push("quote", "kept")
    waiting = asyncio.create_task(queue.claim("quote", wait_s=30))
    await asyncio.sleep(0.3)
    await queue.resume("quote")
    (job,) = await waiting
    assert (job.id, job.id != expired) == (kept, True)


async def test_an_expired_job_has_an_outcome_for_all(place: Place) -> None:
    async with place.connect() as one, place.connect() as other:
        job_id = await one.push("quote", 1, expires_in_s=0.2)
        with pytest.raises(JobExpiredError):
            await other.wait(job_id, timeout_s=30)
        assert await other.claim("quote") == []


@pytest.mark.parametrize("options", [{"expires_in_s": 0}, {"expires_in_s": 5, "delay_s": 5}])
async def test_an_expiry_that_makes_no_sense_is_refused(
    queue: Queue[Any], options: dict[str, Any]
) -> None:
    with pytest.raises(InvalidRequestError):
        await queue.push("quote", 1, **options)
