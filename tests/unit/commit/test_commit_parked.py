"""Group commit with claims that wait: a push and a claim share a write, and nobody is forgotten."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from bucketq.commit.request_ids import token_of
from bucketq.errors import ClosedError, UnavailableError
from bucketq.queue.queue import Queue
from tests.unit.commit.worlds import (
    Gate,
    World,
    first,
    group_of,
    lose_request,
    settle,
    slowly,
    start,
    virtual,
)


def now_s() -> float:
    return asyncio.get_running_loop().time()


@virtual
async def test_a_push_and_the_claim_that_waits_for_it_share_one_write() -> None:
    world = World()
    async with world.embedded() as queue:
        waiting = start(queue.claim(wait_s=60))
        await settle()
        world.store.calls.clear()
        job_id = await queue.push("mail", 1)
        (job,) = await waiting
        assert (job.id, job.status, job.attempt) == (job_id, "running", 1)
        assert world.store.count("replace") == 1


@virtual
async def test_a_waiting_claim_is_not_answered_before_the_write_that_holds_it_has_landed() -> None:
    world = World()
    async with world.embedded() as queue:
        waiting = start(queue.claim(wait_s=60))
        await settle()
        gate = Gate()
        world.store.plan("replace", gate)
        pushing = start(queue.push("mail", 1))
        await gate.reached.wait()
        await asyncio.sleep(5)
        assert not waiting.done()
        gate.open()
        await asyncio.gather(pushing, waiting)


@virtual
async def test_waiting_claims_are_served_in_the_order_in_which_they_came() -> None:
    world = World()
    async with world.embedded() as queue:
        order: list[str] = []

        async def claim(name: str) -> None:
            await queue.claim(wait_s=60)
            order.append(name)

        claims = []
        for name in "abc":
            claims.append(start(claim(name)))
            await settle()
        for number in range(3):
            await queue.push("mail", number)
        await asyncio.gather(*claims)
        assert order == ["a", "b", "c"]


@virtual
async def test_a_later_claim_does_not_get_the_job_of_a_parked_claim() -> None:
    """The write in flight takes long, and the next push comes together with the next claim."""
    world = World()
    async with world.embedded() as queue:
        first_claim = start(queue.claim("mail", wait_s=60))
        await settle()
        gate = Gate()
        world.store.plan("replace", gate)
        in_flight = start(queue.push("index", 0))
        await gate.reached.wait()
        push, second_claim = start(queue.push("mail", 1)), start(queue.claim("mail", wait_s=60))
        await settle()
        gate.open()
        assert [job.payload for job in await first_claim] == [1]
        await asyncio.gather(in_flight, push, queue.push("mail", 2))
        assert [job.payload for job in await second_claim] == [2]


@virtual
async def test_a_busy_worker_does_not_starve_one_that_waits() -> None:
    world = World()
    async with world.embedded() as queue:
        world.store.stand("replace", slowly(0.05))
        patient = start(queue.claim(wait_s=600))
        await asyncio.sleep(1)

        async def push_for_ever() -> None:
            while True:
                await queue.push("mail", 1)

        async def work_for_ever() -> None:
            while True:
                for job in await queue.claim():
                    await queue.complete(job)

        busy = [start(push_for_ever()), *(start(work_for_ever()) for _ in range(3))]
        began = now_s()
        await patient
        assert now_s() - began < 0.5
        for task in busy:
            task.cancel()
        await asyncio.wait(busy)


@virtual
async def test_a_delayed_job_wakes_a_waiting_claim_when_it_is_due() -> None:
    world = World()
    async with world.embedded() as queue:
        await queue.push("mail", 1, delay_s=7.5)
        began = now_s()
        assert len(await queue.claim(wait_s=60)) == 1
        assert now_s() - began == pytest.approx(7.5, abs=0.1)


@virtual
async def test_a_direct_push_of_another_is_seen_within_about_a_second() -> None:
    world = World()
    async with world.embedded() as queue:
        waiting = start(queue.claim(wait_s=60))
        await asyncio.sleep(10.5)
        assert 9 <= world.store.count("get_if_changed") <= 12, "it looks once a second"
        await world.rival_pushes()
        began = now_s()
        assert len(await waiting) == 1
        assert now_s() - began < 1.2


@virtual
async def test_without_claims_that_wait_the_object_is_left_alone() -> None:
    world = World()
    async with world.embedded() as queue:
        await queue.claim(wait_s=1)
        world.store.calls.clear()
        await asyncio.sleep(600)
        assert world.store.calls == []


@virtual
async def test_a_parked_claim_that_expires_is_answered_in_time_without_a_write() -> None:
    world = World()
    async with world.embedded() as queue:
        began = now_s()
        short, long = start(queue.claim(wait_s=2.5)), start(queue.claim(wait_s=5))
        assert await short == []
        assert now_s() - began == pytest.approx(2.5, abs=0.1)
        assert await long == []
        assert now_s() - began == pytest.approx(5, abs=0.1)
        assert world.store.count("replace") == 0


@virtual
async def test_a_cancelled_claim_waits_no_longer_and_takes_no_job() -> None:
    world = World()
    async with world.embedded() as queue:
        waiting = start(queue.claim(wait_s=3600))
        await settle()
        waiting.cancel()
        await settle()
        assert len(group_of(queue).working.parked) == 0
        await queue.push("mail", 1)
        (job,) = await queue.claim()
        assert job.attempt == 1, "nobody had it in between"
    assert now_s() < 10, "closing does not wait for it either"


@virtual
async def test_a_job_that_another_writer_was_quicker_to_take_leaves_the_claim_waiting() -> None:
    """Its commit was lost with the job in it; there is time left, and the next job is its."""
    world = World()

    async def snatch() -> None:
        async with world.rival() as rival:
            await rival.claim()

    async with world.embedded() as queue, world.rival() as producer:
        waiting = start(queue.claim(wait_s=60))
        await settle()
        world.store.plan("replace", first(snatch))
        await producer.push("mail", "snatched")
        await asyncio.sleep(5)
        assert not waiting.done()
        await producer.push("mail", "mine")
        assert [job.payload for job in await waiting] == ["mine"]


@virtual
async def test_a_claim_whose_jobs_are_finished_is_answered_from_memory_and_not_parked() -> None:
    """It is a retry: what it got is over, and it will never get anything else."""
    world = World()
    async with world.embedded() as queue:
        await queue.push("mail", 1)
        token = None
        group = group_of(queue)
        submit: Callable[..., Any] = group.submit

        async def listen(request: Any, timeout_s: float) -> Any:
            nonlocal token
            token = token or token_of(request, 1)
            return await submit(request, timeout_s)

        group.submit = listen  # type: ignore[method-assign]
        (job,) = await queue.claim(wait_s=30)
        assert token is not None
        assert [again.id for again in await queue.claim(wait_s=30, request=token)] == [job.id]
        await queue.complete(job)
        await queue.push("mail", 2)
        began = now_s()
        assert await queue.claim(wait_s=30, request=token) == []
        assert now_s() - began <= 30
        assert [other.payload for other in await queue.claim()] == [2]


@virtual
async def test_closing_answers_parked_claims_at_once() -> None:
    world = World()
    async with world.embedded() as queue:
        claims = [start(queue.claim(wait_s=3600)) for _ in range(3)]
        await settle()
    for claim in claims:
        with pytest.raises(ClosedError, match="connect again"):
            await claim
    assert now_s() < 1


@virtual
async def test_while_the_storage_is_gone_a_parked_claim_is_not_answered_as_empty() -> None:
    """Nobody knows that; when its time and the time-out are over it is told so."""
    world = World()
    async with world.embedded(timeout_s=10) as queue:
        waiting = start(queue.claim(wait_s=5))
        await settle()
        world.store.break_down(lose_request)
        with pytest.raises(UnavailableError):
            await waiting
        assert now_s() == pytest.approx(15, abs=0.1)
        world.store.break_down(None)


@virtual
async def test_hundreds_of_claims_and_pushes_at_once_find_each_other() -> None:
    world = World()
    async with world.embedded() as queue:
        world.store.stand("replace", slowly(0.05))
        claims = [start(queue.claim(wait_s=60, limit=1)) for _ in range(300)]
        await settle()
        ids = await asyncio.gather(*(queue.push("mail", number) for number in range(300)))
        jobs = [job for jobs in await asyncio.gather(*claims) for job in jobs]
        assert sorted(job.id for job in jobs) == sorted(ids)
        assert {job.attempt for job in jobs} == {1}
        assert world.store.count("replace") < 10
        assert_idle(queue)


def assert_idle(queue: Queue[Any]) -> None:
    working = group_of(queue).working
    assert (len(working.parked), len(working.backlog)) == (0, 0)
    assert working.backlog.size_bytes == 0
