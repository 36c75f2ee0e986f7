"""While a write stalls, reads are answered from the object, and closing does not wait in vain."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

import pytest

from bucketq.errors import JobNotFoundError, SupersededError, UnavailableError
from bucketq.model.operations import List, Request
from bucketq.queue.queue import Queue
from tests.unit.commit.worlds import (
    KEY,
    Effect,
    World,
    group_of,
    late,
    lose_request,
    refuse,
    say_nothing,
    settle,
    start,
    throttle,
    virtual,
)

STALL_S = 5.0
"""After so long every write that fails counts as stalled."""


def now_s() -> float:
    return asyncio.get_running_loop().time()


async def counts(queue: Queue[Any]) -> dict[str, dict[str, int]]:
    return (await queue.stats()).counts


@pytest.mark.parametrize("mode", ["direct", "embedded"])
def test_reads_show_what_is_committed_while_a_write_stalls(mode: str) -> None:
    @virtual
    async def story() -> None:
        world = World()
        async with getattr(world, mode)() as queue:
            await queue.push("mail", "first", id="first")
            world.store.stand("replace", lose_request)
            push = start(queue.push("mail", "second", id="second"))
            read_early = start(counts(queue))
            await asyncio.sleep(STALL_S)
            assert await read_early == {"mail": {"queued": 1}}
            for _ in range(3):
                began = now_s()
                assert await counts(queue) == {"mail": {"queued": 1}}
                assert [job.id for job in (await queue.jobs()).jobs] == ["first"]
                with pytest.raises(JobNotFoundError):
                    await queue.get("second")
                assert now_s() - began < 1
            assert not push.done()
            world.store.stand("replace", None)
            assert await push == "second"
            assert await counts(queue) == {"mail": {"queued": 2}}

    story()


@pytest.mark.parametrize("mode", ["direct", "embedded"])
def test_a_read_sees_what_another_process_commits_while_a_write_stalls(mode: str) -> None:
    @virtual
    async def story() -> None:
        world = World()
        async with getattr(world, mode)() as queue:
            await queue.push("mail", "first", id="first")
            world.store.stand("replace", lose_request)
            push = start(queue.push("mail", "second", id="second"))
            await asyncio.sleep(STALL_S)
            assert await counts(queue) == {"mail": {"queued": 1}}
            # From now on the write itself learns nothing for a while.
            world.store.stand("replace", say_nothing)
            await asyncio.sleep(STALL_S)
            await world.rival_pushes(1, "rival")
            assert (await counts(queue))["rival"] == {"queued": 1}
            world.store.stand("replace", None)
            await push
            assert (await queue.get("second")).payload == "second"

    story()


@virtual
async def test_a_read_is_not_answered_by_a_look_that_began_before_it() -> None:
    world = World()
    async with world.embedded() as queue:
        await queue.push("mail", 1)
        world.store.stand("replace", lose_request)
        push = start(queue.push("mail", 2))
        await asyncio.sleep(STALL_S)
        world.store.stand("replace", say_nothing)
        await asyncio.sleep(STALL_S)
        assert await counts(queue) == {"mail": {"queued": 1}}
        has_looked, may_answer = asyncio.Event(), asyncio.Event()

        async def answer_late(effect: Effect) -> Any:
            found = await effect()
            has_looked.set()
            await may_answer.wait()
            return found

        world.store.plan("get_if_changed", answer_late)
        early = start(counts(queue))
        await has_looked.wait()
        await world.rival_pushes(1)
        later = start(counts(queue))
        await settle()
        may_answer.set()
        assert await early == {"mail": {"queued": 1}}
        assert (await later)["rival"] == {"queued": 1}
        world.store.stand("replace", None)
        await push


@virtual
async def test_a_direct_read_that_came_before_a_write_had_its_turn_does_not_wait_for_it() -> None:
    world = World()
    async with world.direct() as queue:
        await queue.push("mail", 1)
        world.store.stand("replace", lose_request)
        push = start(queue.push("mail", 2))
        for _ in range(3):  # The first of them has its turn before the push, the next after it.
            assert await counts(queue) == {"mail": {"queued": 1}}
        world.store.stand("replace", None)
        await push


@virtual
async def test_a_write_that_lands_late_is_read_once_it_has_landed() -> None:
    world = World()
    async with world.embedded() as queue:
        await queue.push("mail", "first", id="first")
        world.store.plan("replace", lose_request, lose_request, lose_request, lose_request)
        world.store.stand("replace", late(30))
        push = start(queue.push("mail", "second", id="second"))
        seen = []
        while not push.done():
            seen.append((await counts(queue))["mail"]["queued"])
            await asyncio.sleep(0.5)
        assert await push == "second"
        assert seen == sorted(seen), "no read is older than one before it"
        assert 1 in seen
        assert (await counts(queue))["mail"]["queued"] == 2


@virtual
async def test_reads_come_back_when_the_storage_can_be_read_again() -> None:
    world = World()
    async with world.embedded() as queue:
        await queue.push("mail", 1)
        world.store.break_down(lose_request)
        push = start(queue.push("mail", 2))
        read = start(counts(queue))
        await asyncio.sleep(STALL_S)
        world.store.calls.clear()
        await asyncio.sleep(10)
        assert not read.done()
        assert world.store.count("get") < 30, "it backs off"
        for verb in ("get", "get_if_changed"):
            world.store.stand(verb, refuse)
        await asyncio.sleep(10)
        assert not read.done()
        for verb in ("get", "get_if_changed"):
            world.store.stand(verb, None)
        assert await read == {"mail": {"queued": 1}}
        world.store.stand("replace", None)
        await push


@virtual
async def test_neither_a_short_fault_nor_throttling_makes_reads_load_the_object_again() -> None:
    world = World()
    async with world.embedded() as queue:
        await queue.push("mail", 1)
        world.store.calls.clear()
        world.store.plan("replace", lose_request, throttle)
        push = start(queue.push("mail", 2))
        assert await counts(queue) == {"mail": {"queued": 2}}
        await push
        world.store.stand("replace", throttle)
        push = start(queue.push("mail", 3))
        read = start(counts(queue))
        await asyncio.sleep(10)
        world.store.stand("replace", None)
        await push
        assert await read == {"mail": {"queued": 3}}
        assert world.store.count("get") == 0


@virtual
async def test_the_object_is_loaded_once_for_all_reads_of_a_stall() -> None:
    world = World()
    async with world.embedded() as queue:
        await queue.push("mail", 1)
        world.store.stand("replace", lose_request)
        push = start(queue.push("mail", 2))
        await asyncio.sleep(STALL_S)
        world.store.calls.clear()
        for _ in range(20):
            await asyncio.gather(*(counts(queue) for _ in range(50)))
        assert world.store.count("get") == 1
        world.store.stand("replace", None)
        await push
        group = group_of(queue)
        assert len(group.working.backlog) == group.working.backlog.size_bytes == 0
        assert not group._register.stalled.is_set()


@virtual
async def test_requests_that_were_read_in_a_stall_take_no_room_any_more() -> None:
    world = World()
    async with world.embedded() as queue:
        world.store.stand("replace", lose_request)
        push = start(queue.push("mail", "x"))
        await asyncio.sleep(STALL_S)
        group = group_of(queue)
        before = group.working.backlog.size_bytes
        await asyncio.gather(*(group.submit(Request(List(limit=100)), 60.0) for _ in range(10)))
        assert group.working.backlog.size_bytes == before
        assert len(group.working.backlog) == 1
        world.store.stand("replace", None)
        await push


@pytest.mark.parametrize("mode", ["direct", "embedded"])
def test_a_read_that_fails_says_so_and_names_no_request(mode: str) -> None:
    @virtual
    async def story() -> None:
        world = World()
        async with getattr(world, mode)(timeout_s=5) as queue:
            await queue.push("mail", 1)
            world.store.break_down(lose_request)
            with pytest.raises(UnavailableError, match="could not be read in 5 s") as caught:
                await queue.stats()
            assert "outcome" not in str(caught.value)
            assert "the connection was reset" in str(caught.value)
            assert str(caught.value).endswith("try again")
            assert caught.value.request is None
            with pytest.raises(UnavailableError, match="the outcome is unknown"):
                await queue.push("mail", 2)
            world.store.break_down(None)

    story()


@pytest.mark.parametrize("mode", ["direct", "embedded"])
@pytest.mark.parametrize("gives_up", [True, False])
def test_closing_does_not_wait_for_a_stalled_write_again(mode: str, *, gives_up: bool) -> None:
    @virtual
    async def story() -> None:
        world = World()
        async with getattr(world, mode)(timeout_s=60) as queue:
            await queue.push("mail", 1)
            world.store.stand("replace", lose_request)
            push = start(queue.push("mail", 2))
            await asyncio.sleep(STALL_S)
            if not gives_up:
                push.cancel()
            with suppress(UnavailableError, asyncio.CancelledError):
                await push
            began = now_s()
        assert now_s() - began < 3

    story()


@virtual
async def test_closing_waits_for_callers_that_still_wait() -> None:
    world = World()
    async with world.embedded(timeout_s=60) as queue:
        await queue.push("mail", 1)
        world.store.stand("replace", lose_request)
        push = start(queue.push("mail", 2, id="two"))
        await asyncio.sleep(STALL_S)
        asyncio.get_running_loop().call_later(20, world.store.stand, "replace", None)
    assert await push == "two"
    assert "two" in await world.ids()


@virtual
async def test_closing_gives_a_cancelled_request_time_to_outlast_a_short_fault() -> None:
    world = World()
    async with world.embedded(timeout_s=60) as queue:
        await queue.push("mail", 1)
        world.store.stand("replace", lose_request)
        push = start(queue.push("mail", 2, id="two"))
        await asyncio.sleep(1)
        push.cancel()
        await settle()
        world.store.stand("replace", None)
    assert "two" in await world.ids()


@virtual
async def test_a_queue_that_was_rolled_back_during_a_stall_is_not_read() -> None:
    world = World()
    async with world.embedded() as queue:
        await queue.push("mail", 1)
        saved = await world.body()
        await queue.push("mail", 2)
        world.store.stand("replace", lose_request)
        push = start(queue.push("mail", 3))
        await asyncio.sleep(STALL_S)
        world.store.stand("replace", say_nothing)
        await asyncio.sleep(STALL_S)
        await world.store.memory.put(KEY, saved)
        with pytest.raises(SupersededError, match="rolled back"):
            await queue.stats()
        with pytest.raises(SupersededError, match="rolled back"):
            await push
