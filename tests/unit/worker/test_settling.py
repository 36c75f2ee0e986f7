"""Outcomes of jobs are reported until the queue acknowledges them."""

from __future__ import annotations

import asyncio
import itertools
from typing import Any, cast

import msgspec
import pytest

from bucketq.errors import (
    LeaseLostError,
    OverloadedError,
    PayloadTooLargeError,
    RejectedError,
    SupersededError,
    UnavailableError,
)
from bucketq.queue.job import Job
from bucketq.queue.push_options import JobSpec
from bucketq.queue.queue import Queue
from bucketq.testing.simulated_clock import SimulatedClock
from bucketq.testing.virtual_loop import current_loop
from bucketq.worker.settling import Settling, Unsettled
from tests.unit.commit.worlds import World, slowly, virtual
from tests.unit.worker.engine_harness import FaultyQueue, burst, failing, handler, opened


def settling_of(faulty: FaultyQueue) -> Settling:
    return Settling(cast("Queue[Any]", faulty), SimulatedClock(current_loop()))


async def claimed(queue: Queue[Any], count: int) -> list[Job[Any]]:
    await queue.push_many([JobSpec(kind="mail", payload=number) for number in range(count)])
    return await queue.claim(limit=count)


@virtual
async def test_completions_that_are_ready_together_are_sent_together() -> None:
    async with opened() as (queue, faulty):
        jobs = await claimed(queue, 5500)
        settling = settling_of(faulty)
        done = await asyncio.gather(*(settling.complete(job, job.payload) for job in jobs))
        assert done == [True] * 5500
        assert faulty.count("complete_many") == 2
        assert not faulty.count("complete")
        page = await queue.jobs(limit=5500)
        assert all(job.result == job.payload for job in page.jobs)


@virtual
async def test_large_results_are_not_all_sent_together() -> None:
    async with opened() as (queue, faulty):
        jobs = await claimed(queue, 400)
        settling = settling_of(faulty)
        result = msgspec.Raw(b'"%b"' % (b"x" * 50_000))
        done = await asyncio.gather(*(settling.complete(job, result) for job in jobs))
        assert done == [True] * 400
        assert faulty.count("complete_many") == 3  # 20 MB; a request has 8 MiB.


@virtual
async def test_jobs_that_are_released_together_are_sent_together() -> None:
    async with opened() as (queue, faulty):
        jobs = await claimed(queue, 5500)
        await queue.release(jobs[7])
        settling = settling_of(faulty)
        released = await asyncio.gather(*(settling.release(job) for job in jobs))
        assert [number for number, held in enumerate(released) if not held] == [7]
        assert faulty.count("release_many") == 2
        assert not faulty.count("release")
        assert (await queue.stats()).counts["mail"] == {"queued": 5500}


@virtual
@pytest.mark.parametrize("verb", ["complete", "fail", "release"])
async def test_while_the_outcome_is_unknown_the_same_request_is_sent_again(verb: str) -> None:
    world = World()
    async with world.embedded(timeout_s=1.0) as queue:
        faulty = FaultyQueue(queue)
        (job,) = await claimed(queue, 1)
        settling = settling_of(faulty)
        # It lands after the caller has stopped waiting.
        world.store.plan("replace", slowly(2.5))
        if verb == "complete":
            assert await settling.complete(job, "result") is True
            requests = faulty.requests["complete_many"]
        elif verb == "fail":
            assert await settling.fail(job, "why", retry=True, delay_s=5.0) == "queued"
            requests = faulty.requests["fail"]
        else:
            assert await settling.release(job) is True
            requests = faulty.requests["release_many"]
        assert len(requests) >= 2
        assert requests[0] is None
        assert all(request == requests[1] for request in requests[1:])
        (after,) = (await queue.jobs()).jobs
        assert after.failures == (1 if verb == "fail" else 0)
        assert after.status == ("done" if verb == "complete" else "queued")


@virtual
async def test_pauses_between_two_tries_grow_and_have_an_end() -> None:
    async with opened() as (queue, faulty):
        (job,) = await claimed(queue, 1)
        faulty.plan("release_many", *[failing(UnavailableError("no answer"))] * 12)
        assert await settling_of(faulty).release(job)
        times = faulty.times("release_many")
        pauses = [later - sooner for sooner, later in itertools.pairwise(times)]
        assert pauses[0] < 0.16
        assert 2.4 < max(pauses) < 7.6


@virtual
async def test_an_overloaded_queue_is_retried_after_its_delay() -> None:
    async with opened() as (queue, faulty):
        (job,) = await claimed(queue, 1)
        faulty.plan("fail", failing(OverloadedError("too much", retry_after_s=40)))
        assert await settling_of(faulty).fail(job, "why", retry=False, delay_s=None) == "dead"
        first, again = faulty.times("fail")
        assert again - first >= 20


@virtual
async def test_a_result_that_the_queue_rejects_does_not_affect_others() -> None:
    async with opened() as (queue, faulty):
        await queue.configure(max_result_bytes=65_536)
        jobs = await claimed(queue, 4)
        await queue.release(jobs[3])
        settling = settling_of(faulty)
        results = ["fine", "x" * 100_000, b"\x00", "of a job that is lost"]
        ends = await asyncio.gather(
            *(settling.complete(*pair) for pair in zip(jobs, results, strict=True)),
            return_exceptions=True,
        )
        assert isinstance(ends[1], PayloadTooLargeError)
        assert (ends[0], ends[2], ends[3]) == (True, True, False)
        first, large, third, lost = (await queue.jobs()).jobs
        assert (first.result, third.result) == ("fine", b"\x00")
        assert (large.status, lost.status) == ("running", "queued")


@virtual
async def test_a_lost_lease_is_reported_and_is_not_an_error() -> None:
    async with opened() as (queue, faulty):
        mine, other = await claimed(queue, 2)
        await queue.release(mine)
        settling = settling_of(faulty)
        lost, held = await asyncio.gather(settling.complete(mine, 1), settling.complete(other, 2))
        assert (lost, held) == (False, True)
        assert await settling.release(mine) is False
        assert await settling.fail(mine, "why", retry=True, delay_s=None) is None
        with pytest.raises(LeaseLostError):
            await queue.complete(mine)


@virtual
async def test_a_queue_that_is_gone_is_not_retried_for_ever() -> None:
    async with opened() as (queue, faulty):
        jobs = await claimed(queue, 2)
        for verb in ("complete_many", "fail", "release_many"):
            faulty.stand(verb, failing(SupersededError("it was deleted")))
        settling = settling_of(faulty)
        for ending in (
            settling.complete(jobs[0], None),
            settling.fail(jobs[0], "why", retry=True, delay_s=None),
            settling.release(jobs[1]),
        ):
            with pytest.raises(Unsettled, match="it was deleted"):
                await ending


@virtual
async def test_a_worker_that_gives_up_tries_exactly_once_more() -> None:
    async with opened() as (queue, faulty):
        (job,) = await claimed(queue, 1)
        faulty.stand("release_many", failing(UnavailableError("no answer")))
        settling = settling_of(faulty)
        releasing = asyncio.create_task(settling.release(job))
        await asyncio.sleep(30)
        before = faulty.count("release_many")
        settling.give_up()
        with pytest.raises(Unsettled, match="no answer"):
            await releasing
        assert faulty.count("release_many") == before + 1


@virtual
async def test_completions_are_sent_after_one_batch_failed() -> None:
    async with opened() as (queue, faulty):
        first, second = await claimed(queue, 2)
        settling = settling_of(faulty)
        faulty.plan("complete_many", failing(RuntimeError("a fault of ours")))
        with pytest.raises(RuntimeError, match="a fault of ours"):
            await settling.complete(first, None)
        assert await settling.complete(second, None)


@virtual
async def test_a_cancelled_caller_does_not_affect_the_others() -> None:
    async with opened() as (queue, faulty):
        jobs = await claimed(queue, 3)
        faulty.plan("complete_many", slowly(5))
        settling = settling_of(faulty)
        tasks = [asyncio.create_task(settling.complete(job, None)) for job in jobs]
        await asyncio.sleep(1)
        tasks[1].cancel()
        assert all(await asyncio.gather(tasks[0], tasks[2]))
        assert (await queue.stats()).counts["mail"] == {"done": 3}


@virtual
async def test_a_rejected_batch_is_an_error_for_each_of_its_callers() -> None:
    async with opened() as (queue, faulty):
        jobs = await claimed(queue, 3)
        faulty.stand("complete_many", failing(RejectedError("no")))
        settling = settling_of(faulty)
        ends = await asyncio.gather(
            *(settling.complete(job, None) for job in jobs), return_exceptions=True
        )
        assert [type(end) for end in ends] == [RejectedError] * 3
        assert faulty.count("complete_many") == 1, "each by itself would be rejected alike"
        assert settling.is_empty


@pytest.mark.parametrize("verb", ["complete", "release"])
@pytest.mark.parametrize("is_known", [True, False])
@virtual
async def test_a_queue_that_takes_small_batches_is_sent_small_batches(
    verb: str, is_known: bool
) -> None:
    """Also if the limit was lowered since the settings were last read."""
    async with opened() as (queue, faulty):
        jobs = await claimed(queue, 64)
        settings = await queue.configure(max_batch_jobs=4)
        settling = settling_of(faulty)
        if is_known:
            settling.settings = settings
        ending = (
            settling.complete(j, 1) if verb == "complete" else settling.release(j) for j in jobs
        )
        assert await asyncio.gather(*ending) == [True] * 64
        assert faulty.count(f"{verb}_many") == (16 if is_known else 31)
        assert not faulty.count(verb)


@virtual
async def test_a_worker_settles_its_jobs_on_a_queue_that_takes_small_batches() -> None:
    @handler()
    async def work(payload: int) -> int:
        await asyncio.sleep(1)  # All of them end together.
        return payload

    async with opened() as (queue, faulty):
        await queue.configure(max_batch_jobs=2)
        for number in range(20):
            await queue.push("mail", number)
        await burst(faulty, work, concurrency=20)
        assert (await queue.stats()).counts["mail"] == {"done": 20}
        assert (faulty.count("complete"), faulty.count("complete_many")) == (0, 10)


@virtual
async def test_one_bad_result_among_many_costs_few_requests() -> None:
    async with opened() as (queue, faulty):
        await queue.configure(max_result_bytes=65_536)
        jobs = await claimed(queue, 256)
        settling = settling_of(faulty)
        results = ["fine"] * 255 + ["x" * 100_000]
        ends = await asyncio.gather(
            *(settling.complete(*pair) for pair in zip(jobs, results, strict=True)),
            return_exceptions=True,
        )
        assert ends[:255] == [True] * 255
        assert isinstance(ends[255], PayloadTooLargeError)
        assert faulty.count("complete_many") == 17
