"""``context.push``: jobs that exist if and only if the job of the handler was completed."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from bucketq import Context, GiveUp, InvalidRequestError, JobSpec, PayloadTooLargeError, Snooze
from bucketq.errors import AccessDeniedError, UnavailableError
from bucketq.testing import Workbench
from bucketq.worker.worker import Worker
from tests.unit.commit.worlds import virtual
from tests.unit.worker.engine_harness import FaultyQueue, burst, claimed_job, handler, opened


async def unanswered(effect: Any) -> None:
    """Take effect, and lose the answer."""
    await effect()
    raise UnavailableError("the connection was reset", request=None)


class DenyingQueue(FaultyQueue):
    """A queue for a token without the right to push."""

    async def complete_many(self, jobs: list[Any], **options: Any) -> Any:
        if any(follow_ups for _, _, follow_ups in jobs):
            raise AccessDeniedError("token 1 lacks the right 'push'")
        return await self.__getattr__("complete_many")(jobs, **options)


@virtual
async def test_follow_ups_are_there_once_the_job_is_done() -> None:
    ids: list[str] = []

    @handler()
    async def push(context: Context) -> str:
        ids.append(await context.push("next", 1, priority=3))
        ids.append(context.push("next", 2))
        ids.append(context.push(JobSpec(kind="other", payload=3)))
        return "done"

    async with opened() as (queue, faulty):
        await queue.push("mail", 0)
        await burst(faulty, push)
        jobs = (await queue.jobs(statuses="queued")).jobs
        assert [(job.id, job.payload) for job in jobs] == list(zip(ids, (1, 2, 3), strict=True))
        assert [job.priority for job in jobs] == [3, 0, 0]


@pytest.mark.parametrize("ends", [GiveUp("no"), Snooze(3600), ValueError("no")])
@virtual
async def test_follow_ups_of_an_attempt_that_does_not_complete_are_dropped(ends: Exception) -> None:
    @handler(max_attempts=1)
    async def push(context: Context) -> None:
        await context.push("next", 1)
        raise ends

    async with opened() as (queue, faulty):
        await queue.push("mail", 0)
        await burst(faulty, push)
        assert (await queue.stats()).counts.keys() == {"mail"}


@virtual
async def test_follow_ups_of_a_lost_lease_are_dropped() -> None:
    attempts: list[str] = []

    async with opened() as (queue, faulty):

        @handler()
        async def push(context: Context) -> None:
            attempts.append(await context.push("next", context.attempt))
            if context.attempt == 1:
                await queue.release(context.lease)

        await queue.push("mail", 0)
        await burst(faulty, push)
        (job,) = (await queue.jobs(kinds="next")).jobs
        assert len(set(attempts)) == 2, "each attempt makes ids of its own"
        assert (job.id, job.payload) == (attempts[1], 2)


@virtual
async def test_a_completion_of_unknown_outcome_pushes_once() -> None:
    @handler()
    async def push(context: Context) -> None:
        await context.push("next", 1)

    async with opened() as (queue, faulty):
        await queue.push_many([JobSpec(kind="mail", payload=n) for n in range(5)])
        faulty.plan("complete_many", unanswered, unanswered)
        await burst(faulty, push)
        assert (await queue.stats()).counts == {"mail": {"done": 5}, "next": {"queued": 5}}


@virtual
async def test_limits_are_checked_when_a_job_is_pushed() -> None:
    raised: list[Exception] = []

    @handler()
    async def push(context: Context) -> None:
        context.push("next", 1, id="n", key="k")
        long = "x" * (60 << 10)
        for _ in range(17):
            context.push("next", long)
        context.push("next", "x" * 200_000)  # It is large, and not in the commit.
        for spec in (
            JobSpec(kind="bad kind", payload=1),
            JobSpec(kind="next", payload=1, id="n"),
            JobSpec(kind="next", payload=1, key="k"),
            JobSpec[Any](kind="next", payload=long),
            JobSpec[Any](kind="next", payload="x" * 300_000),
        ):
            with pytest.raises((InvalidRequestError, PayloadTooLargeError)) as error:
                context.push(spec)
            raised.append(error.value)
        for number in range(981):
            context.push("next", number)
        with pytest.raises(InvalidRequestError, match="1,000 jobs"):
            context.push("next", 1)

    async with opened() as (queue, faulty):
        await queue.configure(max_payload_bytes=250_000)
        await queue.push("mail", 0)
        await burst(faulty, push)
        assert len(raised) == 5
        assert (await queue.stats()).counts["next"] == {"queued": 1000}


@virtual
async def test_a_job_that_is_promised_cannot_be_waited_for() -> None:
    async with opened() as (queue, faulty):
        kept: list[Any] = []

        @handler()
        async def push(context: Context) -> None:
            kept.append(promised := await context.push("next", 1))
            with pytest.raises(InvalidRequestError, match="would never end"):
                await queue.wait(promised)

        await queue.push("mail", 0)
        await burst(faulty, push)
        (job,) = await queue.claim("next")
        await queue.complete(job, "done")
        assert await queue.wait(kept[0]) == "done", "it is a job like any other by now"


@virtual
async def test_it_is_too_late_to_push_when_the_handler_has_ended() -> None:
    late: list[Exception] = []

    async with opened() as (queue, faulty):

        @handler()
        async def push(context: Context) -> None:
            await context.push("next", 1)
            asyncio.get_running_loop().call_later(5, push_late, context)

        def push_late(context: Context) -> None:
            with pytest.raises(InvalidRequestError, match="has ended") as error:
                context.push("next", 2)
            late.append(error.value)

        await queue.push("mail", 0)
        await burst(faulty, push)
        await asyncio.sleep(10)
        assert len(late) == 1
        assert (await queue.stats()).counts["next"] == {"queued": 1}


@virtual
async def test_without_the_right_to_push_only_attempts_that_push_fail() -> None:
    @handler(max_attempts=1)
    async def push(number: int, context: Context) -> None:
        if number == 3:
            await context.push("next", 1)

    async with opened() as (queue, _):
        await queue.push_many([JobSpec(kind="mail", payload=n) for n in range(8)])
        await burst(DenyingQueue(queue), push, concurrency=8)
        (job,) = (await queue.jobs(statuses="dead")).jobs
        assert job.payload == 3
        reason = "follow-up jobs cannot be stored: token 1 lacks the right 'push'"
        assert reason in job.errors[0].error
        assert (await queue.stats()).counts == {"mail": {"dead": 1, "done": 7}}


def test_a_handler_can_push_through_a_handler() -> None:
    worker = Worker()

    @worker.handler("double", priority=7)
    def double(number: int) -> int:
        return 2 * number

    @worker.handler("tidy")
    def tidy() -> None:
        """Do nothing."""

    @worker.handler("first")
    def first(context: Context) -> str:
        context.push(tidy)
        return context.push(double, 4, tags={"of": context.job.id})

    with Workbench(worker) as bench:
        bench.queue.push("first", None)
        assert [ran.job.kind for ran in bench.run()] == ["first", "tidy", "double"]
        (job,) = bench.queue.jobs(kinds="double").jobs
        assert (job.result, job.priority, job.id) == (8, 7, bench.queue.jobs().jobs[0].result)


def test_handlers_in_a_workbench_use_its_queue() -> None:
    worker = Worker()

    @worker.handler("plain")
    def plain(context: Context) -> int:
        return context.queue_sync.stats().total("running")

    @worker.handler("soon")
    async def soon(context: Context) -> int:
        await context.queue.push("plain", None)
        return (await context.queue.stats()).total("running")

    with Workbench(worker) as bench:
        bench.queue.push("soon", None)
        assert [(ran.job.kind, ran.job.result) for ran in bench.run()] == [
            ("soon", 1),
            ("plain", 1),
        ]


def test_a_context_of_its_own_has_no_queue() -> None:
    context = Context(claimed_job())
    for name in ("queue", "queue_sync"):
        with pytest.raises(InvalidRequestError, match="no queue in this context"):
            getattr(context, name)
    assert context.push("next", 1) == context.end()[0].id
