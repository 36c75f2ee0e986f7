"""What every queue promises about jobs that are being worked on."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from bucketq import (
    Backoff,
    InvalidRequestError,
    Job,
    JobNotFoundError,
    LeaseLostError,
    LeaseRef,
    PayloadTooLargeError,
    Pulse,
    Queue,
)
from tests.contract.places import Place

AT_ONCE = Backoff(base_s=0)


async def claimed(queue: Queue[Any], payload: object = 1, **options: Any) -> Job[Any]:
    """Push a job and claim it."""
    job_id = await queue.push("mail", payload, **options)
    (job,) = await queue.claim()
    assert job.id == job_id
    return job


async def let_leases_run_out_soon(queue: Queue[Any]) -> None:
    await queue.configure(lease_s=0.02, heartbeat_s=0.01, grace_s=0.01, clock_margin_s=0)


SOON_S = 20.0
"""A lease that has run out is noticed by a look, about one a second. How soon exactly is tested on
virtual time; on a busy machine it takes longer."""


async def test_a_heartbeat_reports_that_the_job_is_held(place: Place, queue: Queue[Any]) -> None:
    job = await claimed(queue)
    assert await queue.heartbeat(job) == [Pulse(job.id, held=True)]
    async with place.connect() as other:
        assert await other.heartbeat(job.lease) == [Pulse(job.id, held=True)]


async def test_when_a_worker_was_last_heard_shows_within_a_third_of_a_lease(
    place: Place, queue: Queue[Any]
) -> None:
    """A broker hears every heartbeat and writes them down now and then, for a successor."""
    await queue.configure(lease_s=3, heartbeat_s=0.5)
    job = await claimed(queue)
    assert job.record.heartbeat_at is not None
    async with asyncio.timeout(SOON_S), place.connect() as other:
        beaten = job
        while beaten.record.heartbeat_at == job.record.heartbeat_at:
            assert await queue.heartbeat(job) == [Pulse(job.id, held=True)]
            beaten = await other.get(job.id)
            await asyncio.sleep(0.05)
    assert beaten.record.heartbeat_at is not None
    assert beaten.record.heartbeat_at > job.record.heartbeat_at
    assert (beaten.status, beaten.attempt, beaten.lease) == ("running", 1, job.lease)


async def test_one_heartbeat_speaks_for_many_jobs(queue: Queue[Any]) -> None:
    jobs = [await claimed(queue, number) for number in range(3)]
    await queue.complete(jobs[1])
    pulses = await queue.heartbeat([jobs[0], jobs[1].lease, jobs[2], LeaseRef("gone", "x" * 32)])
    assert [(pulse.job, pulse.held) for pulse in pulses] == [
        (jobs[0].id, True),
        (jobs[1].id, False),
        (jobs[2].id, True),
        ("gone", False),
    ]
    assert await queue.heartbeat([]) == []


async def test_a_completed_job_is_done_and_keeps_its_result(queue: Queue[Any]) -> None:
    job = await claimed(queue)
    await queue.complete(job, {"sent": 3})
    done = await queue.get(job.id)
    assert (done.status, done.outcome, done.result) == ("done", "completed", {"sent": 3})
    assert done.finished_at is not None
    assert await queue.claim() == []


@pytest.mark.parametrize("result", [None, 0, "", b"\x00\xff", [1, None]])
async def test_any_result_comes_back_as_it_was(queue: Queue[Any], result: object) -> None:
    job = await claimed(queue)
    await queue.complete(job, result)
    assert (await queue.get(job.id)).result == result


async def test_a_job_may_be_completed_twice_under_the_same_lease(queue: Queue[Any]) -> None:
    job = await claimed(queue)
    await queue.complete(job, "first")
    await queue.complete(job, "second")
    await queue.complete(job.lease)
    assert (await queue.get(job.id)).result == "first"


async def test_a_result_that_is_too_large_leaves_the_job_running(queue: Queue[Any]) -> None:
    await queue.configure(max_result_bytes=65_536)
    job = await claimed(queue)
    with pytest.raises(PayloadTooLargeError, match="max_result_bytes"):
        await queue.complete(job, "x" * 70_000)
    assert await queue.heartbeat(job) == [Pulse(job.id, held=True)]
    await queue.complete(job, "short")


async def test_a_lease_can_be_used_through_another_connection(
    place: Place, queue: Queue[Any]
) -> None:
    job = await claimed(queue)
    async with place.connect() as other:
        await other.complete(job.lease, "done elsewhere")
    assert (await queue.get(job.id)).result == "done elsewhere"


async def test_a_job_whose_worker_is_silent_goes_to_the_next(
    place: Place, queue: Queue[Any]
) -> None:
    await let_leases_run_out_soon(queue)
    job = await claimed(queue)
    async with place.connect(worker="next") as other:
        (again,) = await other.claim(wait_s=SOON_S)
        assert (again.id, again.attempt, again.worker) == (job.id, 2, "next")
        assert again.lease != job.lease
        assert [failure.cause for failure in again.errors] == ["lost"]
        assert again.record.lost_leases == 1


async def test_a_waiting_claim_takes_over_the_job_of_a_silent_worker_by_itself(
    queue: Queue[Any],
) -> None:
    await let_leases_run_out_soon(queue)
    job = await claimed(queue)
    (again,) = await queue.claim(wait_s=SOON_S)
    assert (again.id, again.attempt) == (job.id, 2)


async def test_a_worker_that_was_replaced_is_refused_in_everything(
    place: Place, queue: Queue[Any]
) -> None:
    await let_leases_run_out_soon(queue)
    job = await claimed(queue)
    async with place.connect() as other:
        (again,) = await other.claim(wait_s=SOON_S)
        await queue.configure(lease_s=30, heartbeat_s=5)
        before = await place.stored()
        assert await queue.heartbeat(job) == [Pulse(job.id, held=False)]
        with pytest.raises(LeaseLostError, match="held by another worker"):
            await queue.complete(job, "too late")
        with pytest.raises(LeaseLostError, match="stop working on it"):
            await queue.fail(job, "too late")
        with pytest.raises(LeaseLostError):
            await queue.release(job)
        assert await place.stored() == before
        await other.complete(again, "in time")
    with pytest.raises(LeaseLostError, match="is done"):
        await queue.complete(job, "much too late")
    assert (await queue.get(job.id)).result == "in time"


async def test_a_job_that_keeps_losing_its_workers_dies(place: Place, queue: Queue[Any]) -> None:
    await let_leases_run_out_soon(queue)
    job_id = await queue.push("mail", 1, max_attempts=2)
    for attempt in (1, 2):
        async with place.connect() as worker:
            (job,) = await worker.claim(wait_s=SOON_S)
            assert (job.id, job.attempt) == (job_id, attempt)
    async with asyncio.timeout(SOON_S):
        while (await queue.get(job_id)).status != "dead":
            async with place.connect() as worker:
                assert await worker.claim() == []
            await asyncio.sleep(0.05)


async def test_a_failed_job_waits_and_is_tried_again(queue: Queue[Any]) -> None:
    job = await claimed(queue, backoff=Backoff(base_s=0.5, factor=1))
    assert await queue.fail(job, "no route to host") == "queued"
    waiting = await queue.get(job.id)
    assert (waiting.status, waiting.worker) == ("queued", None)
    assert waiting.run_at is not None
    assert await queue.claim() == []
    (again,) = await queue.claim(wait_s=SOON_S)
    assert (again.id, again.attempt) == (job.id, 2)
    (failure,) = again.errors
    assert (failure.cause, failure.error, failure.attempt) == ("failed", "no route to host", 1)


async def test_a_failed_job_waits_as_long_as_its_worker_says(queue: Queue[Any]) -> None:
    await queue.push("email", 1, backoff=Backoff(base_s=1000))
    [job] = await queue.claim()
    assert await queue.fail(job, "once more, at once", delay_s=0) == "queued"
    [again] = await queue.claim()
    assert await queue.fail(again, "tomorrow", delay_s=86400) == "queued"
    waiting = await queue.get(job.id)
    assert waiting.run_at is not None
    assert (waiting.run_at - waiting.errors[-1].at).total_seconds() == pytest.approx(86400)
    for wrong in (-1.0, float("nan")):
        with pytest.raises(InvalidRequestError):
            await queue.fail(again, "", delay_s=wrong)


@pytest.mark.parametrize(("pushed", "limit"), [(None, 7), (2, 2)])
async def test_a_worker_may_set_the_limit_of_a_job_that_was_pushed_without_one(
    queue: Queue[Any], pushed: int | None, limit: int
) -> None:
    await queue.push("email", 1, backoff=AT_ONCE, max_attempts=pushed)
    statuses = []
    while jobs := await queue.claim():
        statuses.append(await queue.fail(jobs[0], "again", max_attempts=7))
    assert statuses == ["queued"] * (limit - 1) + ["dead"]


async def test_a_job_that_fails_too_often_is_dead(queue: Queue[Any]) -> None:
    job = await claimed(queue, max_attempts=3, backoff=AT_ONCE)
    statuses = [await queue.fail(job, "one")]
    for error in ("two", "three"):
        (job,) = await queue.claim()
        statuses.append(await queue.fail(job, error))
    assert statuses == ["queued", "queued", "dead"]
    dead = await queue.get(job.id)
    assert (dead.status, dead.attempt) == ("dead", 3)
    assert [failure.error for failure in dead.errors] == ["one", "two", "three"]
    assert await queue.claim() == []


async def test_a_failure_that_cannot_be_mended_is_not_tried_again(queue: Queue[Any]) -> None:
    job = await claimed(queue)
    assert await queue.fail(job, "bad address", retry=False) == "dead"
    with pytest.raises(LeaseLostError):
        await queue.fail(job, "again")


@pytest.mark.parametrize(
    ("error", "kept"),
    [
        (ValueError("bad\nlines"), "ValueError: bad\nlines"),
        (KeyError("name"), "KeyError: 'name'"),
        (OSError("file \udcff"), "OSError: file \\udcff"),
        (KeyboardInterrupt(), "KeyboardInterrupt: "),
    ],
    ids=["ValueError", "KeyError", "undecodable", "KeyboardInterrupt"],
)
async def test_an_exception_is_kept_as_text(
    queue: Queue[Any], error: BaseException, kept: str
) -> None:
    job = await claimed(queue)
    await queue.fail(job, error)
    assert [failure.error for failure in (await queue.get(job.id)).errors] == [kept]


async def test_a_long_error_is_cut_and_only_the_last_errors_are_kept(queue: Queue[Any]) -> None:
    await queue.configure(max_errors=2, max_error_bytes=10, backoff={"base_s": 0.0})
    job = await claimed(queue)
    for letter in "abc":
        await queue.fail(job, letter * 99)
        (job,) = await queue.claim()
    assert [failure.error for failure in job.errors] == ["b" * 10, "c" * 10]


async def test_a_released_job_keeps_its_place_and_costs_no_attempt(queue: Queue[Any]) -> None:
    job = await claimed(queue, "first", max_attempts=1)
    await queue.push("mail", "second")
    await queue.release(job)
    with pytest.raises(LeaseLostError):
        await queue.release(job)
    (again, _) = await queue.claim(limit=2)
    assert (again.payload, again.attempt) == ("first", 2)
    assert (again.record.failures, again.record.lost_leases) == (0, 0)


async def test_a_job_released_with_a_delay_comes_back_then(queue: Queue[Any]) -> None:
    job = await claimed(queue)
    await queue.release(job, delay_s=0.4)
    assert await queue.claim() == []
    assert [again.id for again in await queue.claim(wait_s=SOON_S)] == [job.id]


async def test_a_lease_of_a_job_that_never_existed_is_lost(queue: Queue[Any]) -> None:
    lease = LeaseRef("never-pushed", "x" * 32)
    for call in (queue.complete(lease), queue.fail(lease, "?"), queue.release(lease)):
        with pytest.raises(JobNotFoundError, match="never-pushed"):
            await call


async def test_a_job_that_was_only_read_gives_no_right_to_finish_it(queue: Queue[Any]) -> None:
    job = await queue.get(await queue.push("mail", 1))
    assert await queue.heartbeat(job) == [Pulse(job.id, held=False)]
    with pytest.raises(LeaseLostError, match="is queued"):
        await queue.complete(job)
    assert (await queue.get(job.id)).status == "queued"
