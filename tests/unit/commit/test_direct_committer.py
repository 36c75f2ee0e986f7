"""The direct queue: one compare-and-set for each operation, tried until it is certain."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from itertools import chain
from typing import Any

import pytest

from bucketq.commit import cold_reads
from bucketq.errors import (
    ClosedError,
    InvalidRequestError,
    JobNotFoundError,
    StoreRefusedError,
    SupersededError,
    UnavailableError,
)
from bucketq.model import transitions
from bucketq.model.state import RING_LENGTH
from tests.unit.commit.worlds import (
    KEY,
    Effect,
    Fault,
    Gate,
    World,
    first,
    late,
    lose_answer,
    lose_request,
    lost_then,
    refuse,
    say_nothing,
    slowly,
    then_lost,
    virtual,
)


@virtual
async def test_a_change_costs_one_look_and_one_write() -> None:
    world = World()
    async with world.direct() as queue:
        assert world.store.calls == ["get", "create", "create"], "the second must be refused"
        world.store.calls.clear()
        await queue.push("mail", 1)
        (job,) = await queue.claim()
        await queue.complete(job)
        assert world.store.calls == ["get_if_changed", "replace"] * 3


@virtual
async def test_what_changes_nothing_costs_one_look() -> None:
    world = World()
    async with world.direct() as queue:
        world.store.calls.clear()
        await queue.claim()
        await queue.stats()
        with pytest.raises(JobNotFoundError):
            await queue.get("nobody")
        assert world.store.calls == ["get_if_changed"] * 3


@virtual
async def test_callers_of_one_queue_take_turns_and_do_not_conflict() -> None:
    world = World()
    async with world.direct() as queue:
        world.store.stand("replace", slowly(0.1))
        ids = await asyncio.gather(*(queue.push("mail", number) for number in range(10)))
        assert await world.ids() == ids
        assert world.store.count("replace") == 10


@pytest.mark.shallow
@virtual
async def test_writers_that_meet_try_again_until_all_have_written() -> None:
    world = World()
    world.store.stand("replace", slowly(0.1))

    async def writer() -> list[str]:
        async with world.direct() as queue:
            return [await queue.push("mail", number) for number in range(5)]

    pushed = await asyncio.gather(*(writer() for _ in range(6)))
    assert sorted(chain.from_iterable(pushed)) == sorted(await world.ids())
    assert (await world.state()).version == 31


@virtual
async def test_an_operation_that_loses_again_and_again_is_applied_to_what_is_there_then() -> None:
    world = World()
    async with world.direct() as queue:
        world.store.plan("replace", *[first(world.rival_pushes)] * 3)
        pushed = await queue.push("mail", 1)
        assert (await world.ids())[-1] == pushed
        assert len(await world.ids()) == 4


@pytest.mark.parametrize("fault", [lose_answer, lose_request, late(3), say_nothing])
@virtual
async def test_what_goes_wrong_below_shows_only_in_the_time_it_takes(fault: Fault) -> None:
    world = World()
    async with world.direct() as queue:
        for _ in range(3):
            world.store.plan("replace", fault)
            world.store.plan("get_if_changed", lose_request)
            await queue.push("mail", 1)
        world.store.plan("replace", fault)
        jobs = await queue.claim(limit=9)
        assert len(jobs) == 3
        assert {job.attempt for job in jobs} == {1}
        world.store.plan("replace", fault)
        await queue.complete(jobs[0])
        assert [job.status for job in (await world.state()).jobs] == ["done", "running", "running"]


@pytest.mark.parametrize("fault", [then_lost, lost_then], ids=["landed", "lost"])
@virtual
async def test_a_request_whose_commit_was_forgotten_is_known_again_by_its_id(
    fault: Callable[..., Fault],
) -> None:
    world = World()
    async with world.direct() as queue:
        await world.rival_pushes(RING_LENGTH)
        await queue.pause("rival")
        for call in (lambda: queue.push("mail", 1), queue.claim):
            world.store.plan("replace", fault(lambda: world.rival_pushes(RING_LENGTH + 6)))
            await call()
        state = await world.state()
        assert [(job.status, job.attempt) for job in state.jobs if job.kind == "mail"] == [
            ("running", 1)
        ]


async def unknown(call: Awaitable[object]) -> str:
    """Let a call end without a certain answer; return how to ask again."""
    with pytest.raises(UnavailableError, match="outcome is unknown") as raised:
        await call
    assert raised.value.request is not None
    return raised.value.request


async def land_but_never_answer(effect: Effect) -> None:
    await effect()
    await asyncio.Event().wait()


def away(world: World, *, lands: bool) -> None:
    """Let the storage go away, at the moment of the next write or just after it."""
    world.store.plan("replace", land_but_never_answer if lands else lose_request)
    world.store.stand("replace", lose_request)
    world.store.plan("get_if_changed", slowly(0))
    world.store.stand("get_if_changed", lose_request)


def back(world: World) -> None:
    world.store.break_down(None)


@pytest.mark.parametrize("lands", [True, False])
@virtual
async def test_a_push_asked_again_has_the_effect_of_one(lands: bool) -> None:
    world = World()
    async with world.direct(timeout_s=30) as queue:
        away(world, lands=lands)
        request = await unknown(queue.push("mail", 1))
        back(world)
        again = await queue.push("mail", 1, request=request)
        assert await queue.push("mail", 1, request=request) == again
        assert await world.ids() == [again]


@pytest.mark.parametrize("lands", [True, False])
@virtual
async def test_a_claim_asked_again_has_the_effect_of_one(lands: bool) -> None:
    world = World()
    async with world.direct(timeout_s=30) as queue:
        ids = [await queue.push("mail", number) for number in range(3)]
        away(world, lands=lands)
        request = await unknown(queue.claim(limit=2))
        back(world)
    async with world.direct() as queue:
        jobs = await queue.claim(limit=2, request=request)
        assert [(job.id, job.attempt) for job in jobs] == [(ids[0], 1), (ids[1], 1)]
        await queue.complete(jobs[0])
        # What is no longer held is not handed out again.
        assert await queue.claim(limit=2, request=request) == jobs[1:]
        await queue.complete(jobs[1])
        assert (await world.state()).count("mail", "queued") == 1


@pytest.mark.parametrize("lands", [True, False])
@virtual
async def test_every_other_change_asked_again_has_the_effect_of_one(lands: bool) -> None:
    world = World()
    async with world.direct(timeout_s=30) as queue:
        await queue.configure(backoff={"base_s": 0.0})

        async def twice(call: Callable[..., Awaitable[Any]]) -> Any:
            away(world, lands=lands)
            request = await unknown(call())
            back(world)
            answer = await call(request=request)
            assert await call(request=request) == answer
            return answer

        job_id = await queue.push("mail", 1)
        (job,) = await queue.claim()
        await twice(lambda **again: queue.release(job, **again))
        (job,) = await queue.claim()
        assert await twice(lambda **again: queue.fail(job, "x", **again)) == "queued"
        (job,) = await queue.claim()
        assert await twice(lambda **again: queue.fail(job, "x", retry=False, **again)) == "dead"
        assert await twice(queue.redrive) == 1
        (job,) = await queue.claim()
        assert job.attempt == 4
        await twice(lambda **again: queue.complete(job, "done", **again))
        other = await queue.push("mail", 2)
        assert await twice(lambda **again: queue.cancel(other, **again)) == "cancelled"
        await twice(lambda **again: queue.pause("mail", **again))
        await twice(lambda **again: queue.resume("mail", **again))
        assert (await twice(lambda **again: queue.configure(lease_s=40, **again))).lease_s == 40
        await queue.push("mail", 3)
        (dead,) = await queue.claim()
        await queue.fail(dead, "x", retry=False)
        assert await twice(queue.purge) == 1
        assert (await queue.get(job_id)).result == "done"


@virtual
async def test_a_request_of_another_verb_is_refused_and_not_taken_for_done() -> None:
    world = World()
    async with world.direct(timeout_s=30) as queue:
        await queue.push("mail", 1)
        (job,) = await queue.claim()
        away(world, lands=True)
        request = await unknown(queue.complete(job))
        back(world)
        for call in (queue.push("mail", 2, request=request), queue.claim(request=request)):
            with pytest.raises(InvalidRequestError, match="belongs to a complete"):
                await call
        await queue.complete(job, request=request)
        assert len(await world.ids()) == 1


@virtual
async def test_a_request_that_the_queue_no_longer_remembers_stays_unknown() -> None:
    world = World()
    async with world.direct(timeout_s=30) as queue:
        await queue.configure(session_retention_s=60)
        away(world, lands=True)
        request = await unknown(queue.push("mail", 1))
        back(world)
        await asyncio.sleep(120)
        for _ in range(2):
            await world.rival_pushes()
            await asyncio.sleep(120)
        with pytest.raises(UnavailableError, match="older than what the queue remembers"):
            await queue.push("mail", 1, request=request)
        assert (await world.state()).count("mail", "queued") == 1


@virtual
async def test_a_cancelled_operation_leaves_nothing_half_done() -> None:
    world = World()
    async with world.direct() as queue:
        gate = Gate()
        world.store.plan("replace", gate)
        push = asyncio.create_task(queue.push("mail", 1))
        await gate.reached.wait()
        push.cancel()
        with pytest.raises(asyncio.CancelledError):
            await push
        pushed = await queue.push("mail", 2)
        assert await world.ids() == [pushed]
        assert (await queue.stats()).total("queued") == 1


@virtual
async def test_a_fault_inside_apply_leaves_nothing_half_done(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World()

    def broken(state: Any, request: Any, now: Any, by: str) -> Any:
        transitions.apply(state, request, now, by)
        raise ZeroDivisionError("a fault inside the model")

    async with world.direct() as queue:
        with monkeypatch.context() as patch:
            patch.setattr(cold_reads, "apply", broken)
            with pytest.raises(ZeroDivisionError):
                await queue.push("mail", 1)
        assert (await queue.stats()).total("queued") == 0
        pushed = await queue.push("mail", 2)
        assert await world.ids() == [pushed]


@virtual
async def test_a_refusal_is_raised_and_the_next_operation_is_tried() -> None:
    world = World()
    async with world.direct() as queue:
        world.store.plan("replace", refuse)
        with pytest.raises(StoreRefusedError):
            await queue.push("mail", 1)
        world.store.plan("get", refuse)
        with pytest.raises(StoreRefusedError):
            await queue.push("mail", 2)
        pushed = await queue.push("mail", 3)
        assert await world.ids() == [pushed]


@virtual
async def test_a_queue_that_was_deleted_is_refused_each_time() -> None:
    world = World()
    async with world.direct() as queue:
        await world.store.delete(KEY)
        for _ in range(2):
            with pytest.raises(SupersededError):
                await queue.push("mail", 1)
            with pytest.raises(SupersededError):
                await queue.stats()


@virtual
async def test_closing_waits_for_what_is_under_way() -> None:
    world = World()
    async with world.direct() as queue:
        world.store.stand("replace", slowly(2))
        pushes = [asyncio.create_task(queue.push("mail", number)) for number in range(3)]
        await asyncio.sleep(0.001)
    assert await world.ids() == [await push for push in pushes]
    with pytest.raises(ClosedError, match="is closed"):
        await queue.push("mail", 4)


@virtual
async def test_dead_storage_delays_no_caller_for_longer_than_the_timeout() -> None:
    world = World()
    loop = asyncio.get_running_loop()
    async with world.direct(timeout_s=30) as queue:
        world.store.break_down(say_nothing)
        calls = [asyncio.create_task(queue.push("mail", number)) for number in range(5)]
        answers = await asyncio.gather(*calls, return_exceptions=True)
        assert [type(answer) for answer in answers] == [UnavailableError] * 5
        assert loop.time() <= 31
        asyncio.create_task(queue.claim()).cancel()
        late_push = asyncio.create_task(queue.push("mail", 1))
        await asyncio.sleep(1)
    assert loop.time() <= 93
    assert isinstance(late_push.exception(), UnavailableError)


@virtual
async def test_a_queue_that_cannot_be_read_says_so_in_time() -> None:
    world = World()
    world.store.break_down(lose_request)
    with pytest.raises(UnavailableError, match="could not be read within 30 s"):
        await world.direct(timeout_s=30).__aenter__()
    assert asyncio.get_running_loop().time() < 31


@virtual
async def test_a_waiting_claim_looks_less_and_less_often_down_to_once_a_second() -> None:
    world = World()
    async with world.direct() as queue:
        world.store.calls.clear()
        assert await queue.claim(wait_s=100) == []
        assert 95 <= len(world.store.calls) <= 110
        assert asyncio.get_running_loop().time() == pytest.approx(100)


@virtual
async def test_a_delayed_job_wakes_a_waiting_claim_on_time() -> None:
    world = World()
    loop = asyncio.get_running_loop()
    async with world.direct() as queue:
        await queue.push("mail", 1, delay_s=50.3)
        assert len(await queue.claim(wait_s=600)) == 1
        assert 50.3 <= loop.time() < 50.31


@virtual
async def test_a_silent_worker_loses_its_job_after_a_lease_and_a_grace() -> None:
    world = World()
    loop = asyncio.get_running_loop()
    async with world.direct() as queue, world.direct(worker="next") as other:
        await queue.push("mail", 1)
        (job,) = await queue.claim()
        for _ in range(10):
            assert await other.claim(wait_s=5) == []
            await queue.heartbeat(job)
        silent_since = loop.time()
        (again,) = await other.claim(wait_s=300)
        assert 45 <= loop.time() - silent_since <= 47
        assert (again.attempt, again.worker) == (2, "next")
        assert [pulse.held for pulse in await queue.heartbeat(job)] == [False]
