"""What every queue promises about jobs that are put off."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from bucketq import InvalidRequestError, LeaseLostError, Queue


async def test_a_job_that_is_put_off_waits_and_keeps_its_attempts(queue: Queue[Any]) -> None:
    await queue.push("mail", 0, max_attempts=1, unique="ada")
    (job,) = await queue.claim()
    assert await queue.snooze(job, timedelta(hours=1), reason="not yet") == "queued"
    assert await queue.claim() == []
    (waiting,) = (await queue.jobs()).jobs
    assert (waiting.status, waiting.snoozes, waiting.failures) == ("queued", 1, 0)
    assert waiting.run_at is not None
    assert waiting.errors == ()
    duplicate = await queue.push("mail", 1, unique="ada", unique_scope="queued")
    assert duplicate.duplicate, "a job that is put off counts as queued"


async def test_a_job_that_is_put_off_for_no_time_is_there_at_once(queue: Queue[Any]) -> None:
    await queue.push("mail", 0)
    for count in range(3):
        (job,) = await queue.claim()
        assert (job.snoozes, job.attempt) == (count, count + 1)
        assert await queue.snooze(job, 0) == "queued"


async def test_only_who_holds_a_job_can_put_it_off(queue: Queue[Any]) -> None:
    await queue.push("mail", 0)
    (job,) = await queue.claim()
    await queue.release(job)
    with pytest.raises(LeaseLostError):
        await queue.snooze(job, 5)
    (job,) = await queue.claim()
    with pytest.raises(InvalidRequestError, match="delay_s"):
        await queue.snooze(job, -1)
    assert (await queue.get(job.id)).status == "running"


async def test_a_cancelled_job_that_is_put_off_ends(queue: Queue[Any]) -> None:
    await queue.push("mail", 0)
    (job,) = await queue.claim()
    await queue.cancel(job.id)
    assert await queue.snooze(job, 5) == "done"
    assert (await queue.get(job.id)).outcome == "cancelled"
