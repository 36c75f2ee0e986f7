"""Group commit in trouble: what fails fails alone, and nobody waits on a queue gone mute."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from bucketq.commit import commit_hooks, pending_requests, working_state
from bucketq.errors import (
    BucketQError,
    ClosedError,
    CorruptStateError,
    InvalidRequestError,
    OverloadedError,
    StoreRefusedError,
    SupersededError,
    UnavailableError,
)
from bucketq.model import transitions
from bucketq.model.base import NewJob, Operation
from bucketq.model.job_ids import JobId
from bucketq.model.operations import Push, ReadStats
from tests.unit.commit.worlds import (
    KEY,
    Gate,
    World,
    first,
    group_of,
    lose_answer,
    lose_request,
    refuse,
    say_nothing,
    settle,
    slowly,
    start,
    virtual,
)


def break_apply(monkeypatch: pytest.MonkeyPatch, victim: Callable[[Operation], bool]) -> None:
    """Let the model fail on some operations in a way it never should, half way through."""
    apply = transitions.apply

    def broken(state: Any, request: Any, now: Any, by: str = "") -> Any:
        if victim(request.operation):
            state.paused = True
            raise ZeroDivisionError("a fault inside the model")
        return apply(state, request, now)

    monkeypatch.setattr(working_state, "apply", broken)
    monkeypatch.setattr(commit_hooks, "apply", broken)


def is_poison(operation: Operation) -> bool:
    return isinstance(operation, Push) and any(is_bad(job) for job in operation.jobs)


def is_bad(job: NewJob) -> bool:
    return job.kind == "poison"


@virtual
async def test_a_fault_inside_apply_fails_only_the_request_that_met_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    break_apply(monkeypatch, is_poison)
    world = World()
    async with world.embedded() as queue:
        gate = Gate()
        world.store.plan("replace", gate)
        calls = [start(queue.push("mail", 1)), start(queue.push("poison", 2))]
        await gate.reached.wait()
        calls += [start(queue.push(kind, 3)) for kind in ("mail", "poison", "mail")]
        await settle()
        gate.open()
        answers = await asyncio.gather(*calls, return_exceptions=True)
        assert [type(answer) for answer in answers] == [
            JobId,
            ZeroDivisionError,
            JobId,
            ZeroDivisionError,
            JobId,
        ]
        assert await world.ids() == [answer for answer in answers if isinstance(answer, str)]
        assert not (await world.state()).paused
        assert len(await queue.claim(limit=5)) == 3


@virtual
async def test_a_fault_that_comes_when_requests_are_applied_again_fails_only_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    applied = 0

    def on_the_second_try(operation: Operation) -> bool:
        nonlocal applied
        applied += is_poison(operation)
        return is_poison(operation) and applied > 1

    break_apply(monkeypatch, on_the_second_try)
    world = World()
    async with world.embedded() as queue:
        world.store.plan("replace", first(world.rival_pushes))
        answers = await asyncio.gather(
            *(queue.push(kind, 1) for kind in ("mail", "poison", "mail")), return_exceptions=True
        )
        assert [type(answer) for answer in answers] == [JobId, ZeroDivisionError, JobId]
        assert len(await world.ids()) == 3


@virtual
async def test_a_request_that_met_a_fault_does_not_keep_the_object_growing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    break_apply(monkeypatch, is_poison)
    world = World()
    async with world.embedded() as queue:
        with pytest.raises(ZeroDivisionError):
            await queue.push("poison", 1)
        for number in range(20):
            await queue.push("mail", number)
            (job,) = await queue.claim()
            await queue.complete(job)
        assert max(len(row.answers) for row in (await world.state()).sessions.table) <= 2


@virtual
async def test_a_commit_task_that_dies_fails_every_request(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    async with world.embedded() as queue:
        gate = Gate()
        world.store.plan("replace", gate)
        calls = [start(queue.push("mail", 1))]
        await gate.reached.wait()
        calls += [start(queue.push("mail", 2)), start(queue.stats())]
        await settle()

        def fail(*_: object) -> None:
            raise ZeroDivisionError("a fault in the loop itself")

        monkeypatch.setattr(group_of(queue).working, "settle", fail)
        gate.open()
        answers = await asyncio.gather(*calls, return_exceptions=True)
        assert [type(answer) for answer in answers] == [ZeroDivisionError] * 3
        with pytest.raises(ZeroDivisionError):
            await queue.push("mail", 3)
        with pytest.raises(ZeroDivisionError):
            await queue.claim(wait_s=60)


@virtual
async def test_a_commit_task_that_is_cancelled_from_outside_answers_every_request() -> None:
    world = World()
    async with world.embedded() as queue:
        gate = Gate()
        world.store.plan("replace", gate)
        pushed = start(queue.push("mail", 1))
        waiting = start(queue.claim("index", wait_s=3000))
        await gate.reached.wait()
        task = group_of(queue)._task
        assert task is not None
        task.cancel()
        async with asyncio.timeout(3):
            with pytest.raises(UnavailableError) as unknown:
                await pushed
            assert unknown.value.request
            with pytest.raises(BucketQError):
                await waiting
            with pytest.raises(ClosedError):
                await queue.push("mail", 2)


async def delete(world: World) -> None:
    await world.store.delete(KEY)


async def spoil(world: World) -> None:
    await world.store.put(KEY, b"not a queue\n")


@pytest.mark.parametrize(("harm", "error"), [(delete, SupersededError), (spoil, CorruptStateError)])
@virtual
async def test_an_object_that_is_gone_or_corrupt_stops_the_queue(
    harm: Callable[[World], Awaitable[None]], error: type[Exception]
) -> None:
    world = World()
    async with world.embedded() as queue:
        await queue.push("mail", 0)
        waiting = start(queue.claim("index", wait_s=3000))
        await settle()
        await harm(world)
        answers = await asyncio.gather(
            queue.push("mail", 1), queue.stats(), waiting, return_exceptions=True
        )
        assert [type(answer) for answer in answers] == [error] * 3
        with pytest.raises(error):
            await queue.push("mail", 2)


@virtual
async def test_a_refused_write_fails_its_batch_and_the_queue_continues() -> None:
    world = World()
    async with world.embedded() as queue:
        world.store.plan("replace", refuse)
        answers = await asyncio.gather(
            queue.push("mail", 1), queue.push("mail", 2), return_exceptions=True
        )
        assert [type(answer) for answer in answers] == [StoreRefusedError] * 2
        assert await world.ids() == []
        pushed = await queue.push("mail", 3)
        assert await world.ids() == [pushed]


@pytest.mark.parametrize("verb", ["get", "get_if_changed"])
@virtual
async def test_a_refused_read_fails_its_caller_and_the_queue_continues(verb: str) -> None:
    world = World()
    async with world.embedded() as queue:
        await queue.push("mail", 1)
        # The second one makes it read the object anew.
        world.store.plan("get_if_changed", lose_request if verb == "get" else refuse)
        world.store.plan("get", refuse if verb == "get" else slowly(0))
        with pytest.raises(StoreRefusedError):
            await queue.stats()
        assert (await queue.stats()).total("queued") == 1
        assert len(await queue.claim()) == 1


@virtual
async def test_too_many_requests_at_once_are_refused_and_the_others_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pending_requests, "MAX_PENDING", 10)
    world = World()
    async with world.embedded() as queue:
        answers = await asyncio.gather(
            *(queue.push("mail", number) for number in range(15)), return_exceptions=True
        )
        refused = [answer for answer in answers if isinstance(answer, OverloadedError)]
        assert len(refused) == 5
        assert "10 requests" in str(refused[0])
        assert len(await world.ids()) == 10
        await queue.push("mail", "next")


@virtual
async def test_too_many_bytes_at_once_are_refused_but_never_a_request_that_is_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pending_requests, "MAX_PENDING_BYTES", 1000)
    world = World()
    async with world.embedded() as queue:
        for _ in range(3):
            await queue.push("mail", "x" * 5000)
            answers = await asyncio.gather(
                *(queue.push("mail", "x" * 400) for _ in range(4)), return_exceptions=True
            )
            assert [type(answer) for answer in answers].count(OverloadedError) == 2
        assert len(await world.ids()) == 9


@virtual
async def test_room_is_given_back_by_every_end_that_a_request_can_have(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    break_apply(monkeypatch, is_poison)
    world = World()
    async with world.embedded() as queue:
        world.store.plan("replace", refuse, lose_answer, first(world.rival_pushes))
        for kind in ("mail", "mail", "poison", "mail", "index", "index"):
            cancelled = start(queue.push(kind, "x" * 100))
            await asyncio.gather(queue.push(kind, "x" * 100), return_exceptions=True)
            cancelled.cancel()
            await asyncio.gather(cancelled, return_exceptions=True)
        with pytest.raises(InvalidRequestError):
            await queue.configure(lease_s=-1)
        await queue.stats()
        assert group_of(queue).working.backlog.size_bytes == 0


@virtual
async def test_a_queue_that_cannot_be_read_says_so_in_time() -> None:
    world = World()
    world.store.break_down(say_nothing)
    with pytest.raises(UnavailableError, match="could not be read within 30 s"):
        await world.embedded(timeout_s=30).__aenter__()
    assert asyncio.get_running_loop().time() < 31


@virtual
async def test_a_delayed_job_wakes_a_waiting_claim_without_a_write_or_a_poll() -> None:
    world = World()
    loop = asyncio.get_running_loop()
    async with world.embedded() as queue:
        await queue.push("mail", 1, delay_s=0.4)
        (job,) = await queue.claim(wait_s=60)
        assert 0.4 <= loop.time() < 0.41
        await queue.release(job, delay_s=100)
        began, calls = loop.time(), len(world.store.calls)
        assert len(await queue.claim(wait_s=600)) == 1
        assert 100 <= loop.time() - began < 100.1
        assert len(world.store.calls) - calls < 110


@virtual
async def test_a_fault_inside_a_read_fails_that_read_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    break_apply(monkeypatch, lambda operation: isinstance(operation, ReadStats))
    world = World()
    async with world.embedded() as queue:
        broken, job_id = await asyncio.gather(
            queue.stats(), queue.push("mail", 1), return_exceptions=True
        )
        assert isinstance(broken, ZeroDivisionError)
        assert isinstance(job_id, str)
        assert (await queue.get(job_id)).payload == 1
