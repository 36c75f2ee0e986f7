"""Group commit with claims that are withdrawn: whatever became of their write, they hold no job."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from bucketq.commit.pending_requests import LocalRequest
from bucketq.model.operations import Claim, Request, Withdraw
from bucketq.model.records import JobRecord
from bucketq.queue.queue import Queue
from tests.unit.commit.worlds import (
    Fault,
    Gate,
    World,
    first,
    group_of,
    lose_answer,
    lose_request,
    lost_then,
    settle,
    then_lost,
    virtual,
)

SECRET = "5ec2e7" * 6
WITHDRAW = Request(Withdraw(session="session", number=1, secret=SECRET))


def claim(wait_s: float = 60.0) -> Request:
    return Request(Claim(worker="w", secret=SECRET, wait_s=wait_s), "session", 1)


def ask(queue: Queue[Any], request: Request) -> asyncio.Future[Any]:
    """Send a request as a client of a broker does, and return its answer."""
    group = group_of(queue)
    waiting = LocalRequest(request, group.version, asyncio.get_running_loop())
    group.accept(waiting)
    return waiting.answer


async def first_job(world: World) -> JobRecord:
    return next(iter((await world.state()).jobs))


@virtual
async def test_a_parked_claim_is_dropped_at_once_and_costs_no_request() -> None:
    world = World()
    async with world.embedded() as queue:
        waiting = ask(queue, claim())
        await settle()
        world.store.calls.clear()
        withdrawn = ask(queue, WITHDRAW)
        assert (waiting.result(), withdrawn.result()) == ((), 0)
        await settle()
        assert world.store.calls == []
        await queue.push("mail", 1)
        assert (await first_job(world)).attempt == 0


@virtual
async def test_a_claim_that_found_nothing_finds_nothing_later() -> None:
    world = World()
    async with world.embedded() as queue:
        # The look that confirms its answer shows that another process has pushed a job.
        world.store.plan("get_if_changed", first(world.rival_pushes))
        waiting = ask(queue, claim(0))
        withdrawn = ask(queue, WITHDRAW)
        assert (await waiting, await withdrawn) == ((), 0)
        await asyncio.sleep(10)
        assert (await queue.stats()).total("queued") == 1
        assert (await first_job(world)).attempt == 0


@virtual
async def test_a_claim_that_is_not_written_yet_is_undone_in_the_same_commit() -> None:
    world = World()
    async with world.embedded() as queue:
        await queue.push("mail", 1)
        writes = world.store.count("replace")
        ask(queue, claim())
        assert await ask(queue, WITHDRAW) == 1
        assert (await first_job(world)).status == "queued"
        assert world.store.count("replace") == writes + 1


@pytest.mark.parametrize("rivals", [0, 1, 200])
@pytest.mark.parametrize("outcome", ["landed", "answer lost", "request lost"])
@virtual
async def test_a_claim_in_flight_is_undone_whatever_becomes_of_its_write(
    outcome: str, rivals: int
) -> None:
    world = World()
    faults: dict[str, Fault] = {
        "landed": first(lambda: world.rival_pushes(rivals)),
        "answer lost": then_lost(lambda: world.rival_pushes(rivals)) if rivals else lose_answer,
        "request lost": lost_then(lambda: world.rival_pushes(rivals)) if rivals else lose_request,
    }
    async with world.embedded() as queue:
        await queue.push("mail", 1)
        gate = Gate()
        fault = faults[outcome]

        async def gated(effect: Any) -> Any:
            await gate(effect=_nothing)
            return await fault(effect)

        world.store.plan("replace", gated)
        claiming = ask(queue, claim())
        await gate.reached.wait()
        withdrawn = ask(queue, WITHDRAW)
        gate.open()
        await withdrawn
        await claiming
        job = await first_job(world)
        assert (job.status, job.lost_leases) == ("queued", 0)
        assert not (await world.state()).running


async def _nothing() -> None:
    """Hold up a call, and leave what it does to another fault."""


@virtual
async def test_a_claim_that_waits_again_after_its_write_was_lost_is_still_withdrawn() -> None:
    """Another writer took the job: the claim is parked again, and the withdrawal follows it."""
    world = World()
    async with world.embedded() as queue:
        await queue.push("mail", 1)

        async def rival_claims() -> None:
            async with world.rival() as rival:
                await rival.claim()

        gate = Gate()

        async def gated(effect: Any) -> Any:
            await gate(effect=_nothing)
            return await first(rival_claims)(effect)

        world.store.plan("replace", gated)
        claiming = ask(queue, claim())
        await gate.reached.wait()
        withdrawn = ask(queue, WITHDRAW)
        gate.open()
        assert (await withdrawn, await claiming) == (0, ())
        await queue.push("mail", 2)
        assert [job.worker for job in (await world.state()).jobs] == ["rival", None]


@virtual
async def test_a_claim_whose_caller_is_gone_before_its_turn_takes_no_job() -> None:
    world = World()
    async with world.embedded() as queue:
        await queue.push("mail", 1)
        group = group_of(queue)
        waiting = LocalRequest(claim(), group.version, asyncio.get_running_loop())
        waiting.answer.cancel()
        group.accept(waiting)
        await settle()
        assert (await first_job(world)).attempt == 0
