"""What every queue promises about schedules."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from bucketq import InvalidRequestError, Queue, ScheduleNotFoundError
from tests.contract.places import Place


async def test_a_schedule_is_kept_as_it_was_given(queue: Queue[Any]) -> None:
    options: Any = {
        "timezone": "Europe/Berlin",
        "missed": "all",
        "priority": -3,
        "tags": {"a": "b"},
    }
    nightly = ("nightly", "report", {"days": 1})
    assert await queue.schedule(*nightly, cron=" 0  3 * * * ", **options) == "created"
    assert await queue.schedule(*nightly, cron="0 3 * * *", **options) == "unchanged"
    [found] = await queue.schedules()
    assert (found.name, found.kind, found.payload) == nightly
    assert (found.cron, found.timezone, found.missed) == ("0 3 * * *", "Europe/Berlin", "all")
    assert (found.priority, found.tags, found.every_s) == (-3, {"a": "b"}, None)
    assert found.next_at is not None
    assert found.next_at > found.decided_at == found.created_at
    assert await queue.schedule(*nightly, every_s=timedelta(minutes=5)) == "changed"
    [found] = await queue.schedules()
    assert (found.cron, found.every_s) == (None, 300.0)
    assert await queue.unschedule("nightly") is True
    assert await queue.unschedule("nightly") is False
    assert await queue.schedules() == []


async def test_a_schedule_is_paused_resumed_and_run_now(queue: Queue[Any]) -> None:
    await queue.schedule("tick", "ping", b"bytes", every_s=3600)
    await queue.pause_schedule("tick")
    [found] = await queue.schedules()
    assert (found.paused, found.next_at) == (True, None)
    job_id = await queue.run_schedule("tick")
    [job] = await queue.claim("ping")
    assert (job.id, job.payload) == (job_id, b"bytes")
    await queue.resume_schedule("tick")
    [found] = await queue.schedules()
    assert (found.paused, found.last_job) == (False, job_id)


async def test_a_due_time_is_pushed_once_by_a_process_that_stays_open(place: Place) -> None:
    async with place.connect(fires_schedules=True) as queue:
        await queue.schedule("tick", "ping", 1, every_s=1, missed="all")
        jobs = [job for _ in range(2) for job in await queue.claim("ping", limit=1, wait_s=60)]
        await queue.pause_schedule("tick")
        [found] = await queue.schedules()
        page = await queue.jobs(kinds="ping")
    assert len({job.id for job in jobs}) == 2
    runs = (found.decided_at - found.created_at) // timedelta(seconds=1)
    assert len(page.jobs) == runs


@pytest.mark.parametrize("verb", ["pause_schedule", "resume_schedule", "run_schedule"])
async def test_a_schedule_that_is_not_there_is_an_error(queue: Queue[Any], verb: str) -> None:
    with pytest.raises(ScheduleNotFoundError):
        await getattr(queue, verb)("none")


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"cron": "* * * * *", "every_s": 5},
        {"cron": "* * *"},
        {"cron": 5},
        {"cron": "* * * * *", "timezone": "Mars/Olympus"},
        {"every_s": 0.1},
        {"every_s": "soon"},
        {"every_s": 60, "missed": "some"},
        {"every_s": 60, "jitter_s": -1},
        {"every_s": 60, "alone": "yes"},
        {"every_s": 60, "delay_s": 5},
    ],
    ids=str,
)
async def test_a_schedule_that_makes_no_sense_is_refused(
    queue: Queue[Any], options: dict[str, Any]
) -> None:
    with pytest.raises(InvalidRequestError):
        await queue.schedule("tick", "ping", 1, **options)
    assert await queue.schedules() == []
