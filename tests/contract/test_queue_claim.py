"""What every queue promises to those who look for work."""

from __future__ import annotations

import asyncio
import functools
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from bucketq import Job, Queue
from tests.contract.places import Place
from tests.promptness import assert_prompt

LOOK_S = 0.9
"""A little less than the second after which a waiting claim looks again by itself."""


def payloads(jobs: list[Job[Any]]) -> list[Any]:
    return [job.payload for job in jobs]


async def test_a_claimed_job_runs_under_a_lease_of_its_worker(
    place: Place, queue: Queue[Any]
) -> None:
    job_id = await queue.push("mail", 1)
    (job,) = await queue.claim(worker="ada")
    assert (job.id, job.status, job.attempt, job.worker) == (job_id, "running", 1, "ada")
    assert len(job.lease.lease) >= 32
    async with place.connect() as other:
        assert await other.get(job_id) == job


async def test_a_claim_has_the_name_that_the_connection_was_given(place: Place) -> None:
    async with place.connect(worker="grace") as queue:
        await queue.push("mail", 1)
        (job,) = await queue.claim()
        assert job.worker == "grace"


async def test_jobs_are_claimed_first_in_first_out(queue: Queue[Any]) -> None:
    for number in range(5):
        await queue.push("mail", number)
    assert payloads(await queue.claim()) == [0]
    assert payloads(await queue.claim(limit=3)) == [1, 2, 3]
    assert payloads(await queue.claim(limit=3)) == [4]


async def test_the_lower_priority_number_goes_first_across_kinds(queue: Queue[Any]) -> None:
    await queue.push("mail", "last", priority=5)
    await queue.push("mail", "second")
    await queue.push("index", "third")
    await queue.push("index", "first", priority=-1)
    assert payloads(await queue.claim(limit=4)) == ["first", "second", "third", "last"]


async def test_a_claim_takes_one_kind_several_or_any(queue: Queue[Any]) -> None:
    for kind in ("a", "b", "c", "a"):
        await queue.push(kind, kind)
    assert payloads(await queue.claim("b", limit=9)) == ["b"]
    assert payloads(await queue.claim(["c", "a"], limit=2)) == ["a", "c"]
    assert payloads(await queue.claim({"never", "pushed"})) == []
    assert payloads(await queue.claim(limit=9)) == ["a"]


async def test_no_job_is_handed_to_two_claims(place: Place, queue: Queue[Any]) -> None:
    for number in range(12):
        await queue.push("mail", number)
    async with place.connect() as other:
        claims = await asyncio.gather(
            *(one.claim(limit=2) for one in (queue, other, queue, other, queue, other))
        )
    assert sorted(payload for jobs in claims for payload in payloads(jobs)) == list(range(12))
    leases = [job.lease.lease for jobs in claims for job in jobs]
    assert len(set(leases)) == 12


async def test_an_empty_claim_answers_at_once_and_writes_nothing(
    place: Place, queue: Queue[Any]
) -> None:
    await queue.push("mail", 1)
    before = await place.stored()

    async def claim() -> None:
        assert await queue.claim("index") == []
        assert await queue.claim("index", limit=100, wait_s=0) == []

    await assert_prompt(LOOK_S, claim)
    assert await place.stored() == before


async def test_a_claim_that_waits_in_vain_ends_on_time_and_has_written_nothing(
    place: Place, queue: Queue[Any]
) -> None:
    before = await place.stored()
    loop = asyncio.get_running_loop()

    async def wait() -> None:
        began = loop.time()
        assert await queue.claim(wait_s=0.15) == []
        assert loop.time() - began > 0.14

    await assert_prompt(LOOK_S, wait)
    assert await place.stored() == before


async def test_a_waiting_claim_is_woken_by_a_push_to_the_same_queue(queue: Queue[Any]) -> None:
    async def push() -> None:
        waiting = asyncio.create_task(queue.claim(wait_s=30))
        await asyncio.sleep(0.05)
        await queue.push("mail", 1)
        assert payloads(await waiting) == [1]

    await assert_prompt(LOOK_S, push)


async def test_a_waiting_claim_sees_a_push_through_another_connection(
    place: Place, queue: Queue[Any]
) -> None:
    async with place.connect() as other:
        waiting = asyncio.create_task(queue.claim(wait_s=30))
        await asyncio.sleep(0.05)
        await other.push("mail", 1)
        async with asyncio.timeout(20):
            assert payloads(await waiting) == [1]


async def test_several_waiting_claims_share_what_comes(queue: Queue[Any]) -> None:
    async def share() -> None:
        waiting = [asyncio.create_task(queue.claim(wait_s=30)) for _ in range(4)]
        await asyncio.sleep(0.05)
        for number in range(4):
            await queue.push("mail", number)
        claims = await asyncio.gather(*waiting)
        assert sorted(payload for jobs in claims for payload in payloads(jobs)) == [0, 1, 2, 3]

    await assert_prompt(LOOK_S, share)


async def test_a_delayed_job_is_claimed_on_time_without_a_write(
    place: Place, queue: Queue[Any]
) -> None:
    await queue.push("mail", "much later", delay_s=600)
    before = await place.stored()
    assert await queue.claim(limit=5) == []
    assert await place.stored() == before
    loop = asyncio.get_running_loop()

    async def wait() -> None:
        began = loop.time()
        await queue.push("mail", "late", delay_s=0.25)
        assert payloads(await queue.claim(wait_s=30)) == ["late"]
        assert loop.time() - began > 0.24

    await assert_prompt(LOOK_S, wait)


async def test_a_delay_is_a_number_of_seconds_a_timedelta_or_a_moment(
    queue: Queue[Any],
) -> None:
    hour = timedelta(hours=1)
    ids = [
        await queue.push("mail", 1, delay_s=3600),
        await queue.push("mail", 2, delay_s=hour),
        await queue.push("mail", 3, run_at=datetime.now(UTC) + hour),
    ]
    for job_id in ids:
        run_at = (await queue.get(job_id)).run_at
        assert run_at is not None
        assert abs(run_at - datetime.now(UTC) - hour) < timedelta(minutes=1)
    assert await queue.claim() == []


async def test_a_moment_in_the_past_or_no_delay_means_now(queue: Queue[Any]) -> None:
    await queue.push("mail", 1, run_at=datetime(2001, 1, 1, tzinfo=UTC))
    await queue.push("mail", 2, delay_s=0)
    await queue.push("mail", 3, delay_s=timedelta(0))
    assert sorted(payloads(await queue.claim(limit=5))) == [1, 2, 3]


async def test_a_job_keeps_its_place_in_the_order_while_it_is_delayed(
    queue: Queue[Any],
) -> None:
    await queue.push("mail", "first", delay_s=0.05)
    await queue.push("mail", "second")
    await asyncio.sleep(0.06)
    assert payloads(await queue.claim(limit=2)) == ["first", "second"]


async def test_the_jobs_of_a_cancelled_claim_are_given_back(
    place: Place, queue: Queue[Any]
) -> None:
    async def cancel(number: int) -> None:
        await queue.push("mail", number)
        claim = asyncio.create_task(queue.claim())
        for _ in range(number):
            await asyncio.sleep(0)
        claim.cancel()
        try:
            (job,) = await claim
        except asyncio.CancelledError:
            (job,) = await queue.claim(wait_s=20)  # Its lease would last longer.
        assert job.payload == number
        await queue.complete(job)

    for number in range(20):
        await assert_prompt(LOOK_S, functools.partial(cancel, number))
    async with place.connect() as other:
        assert (await other.stats()).total("running") == 0


async def test_closing_gives_back_the_jobs_of_cancelled_claims(place: Place) -> None:
    async with place.connect() as queue:
        await queue.push("mail", 1)
        claim = asyncio.create_task(queue.claim())
        await asyncio.sleep(0)
        claim.cancel()
    with pytest.raises(asyncio.CancelledError):
        await claim
    async with place.connect() as queue:
        assert (await queue.stats()).counts == {"mail": {"queued": 1}}


async def test_a_cancelled_push_affects_no_other_caller(queue: Queue[Any]) -> None:
    for turns in range(12):
        cancelled = asyncio.create_task(queue.push("mail", "cancelled"))
        others = [asyncio.create_task(queue.push("index", turns)) for _ in range(2)]
        for _ in range(turns):
            await asyncio.sleep(0)
        cancelled.cancel()
        ids = await asyncio.gather(*others)
        assert {(await queue.get(job_id)).payload for job_id in ids} == {turns}
    assert (await queue.stats()).counts["index"] == {"queued": 24}
    assert (await queue.stats()).total("queued") <= 36
