"""A leader lists workers from memory, and writes down which were asked to finish."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from bucketq.errors import InvalidRequestError, WorkerNotFoundError
from bucketq.queue.queue import Queue
from tests.unit.broker.leaders import Realm
from tests.unit.commit.worlds import Gate, start, virtual


async def announce(queue: Queue[Any], name: str = "w1", **fields: Any) -> bool:
    given: dict[str, Any] = {"run_id": f"run of {name}", "host": "h", "pid": 1, "version": "1"}
    return await queue.announce(name, **(given | {"up_s": 1.0} | fields))


@virtual
async def test_announcements_cause_no_write_and_need_no_look() -> None:
    realm = Realm()
    async with realm.leader() as leader:
        await leader.workers()
        realm.store.calls.clear()
        for _ in range(50):
            assert await announce(leader, kinds=("mail",), running=2) is False
        assert realm.store.calls == []
        [found] = await leader.workers()
        assert (found.name, found.kinds, found.running) == ("w1", ("mail",), 2)
        assert realm.writes() == 0
        assert not (await realm.state()).workers


@virtual
async def test_a_request_of_a_direct_writer_is_passed_on_soon() -> None:
    realm = Realm()
    async with realm.leader() as leader, realm.direct() as operator:
        await announce(operator, "a")
        await announce(leader, "a")
        await operator.drain("a")
        await asyncio.sleep(2.1)
        assert await announce(leader, "a") is True


@virtual
async def test_a_silent_worker_is_forgotten_and_one_that_ends_at_once() -> None:
    realm = Realm()
    async with realm.leader() as leader:
        for name in ("a", "b", "c"):
            await announce(leader, name)
        await announce(leader, "b", leaving=True)
        await asyncio.sleep(200)
        await announce(leader, "a")
        assert [each.name for each in await leader.workers()] == ["a", "c"]
        await asyncio.sleep(101)
        assert [each.name for each in await leader.workers()] == ["a"]
        assert realm.writes() == 1, "the takeover"


@virtual
async def test_a_request_to_finish_is_in_the_object_before_it_is_answered() -> None:
    realm = Realm()
    async with realm.leader() as leader:
        await announce(leader, "a")
        await announce(leader, "b")
        gate = Gate()
        realm.store.plan("replace", gate)
        asking = start(leader.drain("a"))
        await gate.reached.wait()
        hearing = start(announce(leader, "a"))
        await asyncio.sleep(1)
        assert not asking.done()
        assert not hearing.done(), "the worker must not know what may be lost"
        assert await announce(leader, "b") is False
        gate.open()
        assert (await asking, await hearing) == (1, True)
        [row] = (await realm.state()).workers
        assert (row.name, row.draining) == ("a", True)
        assert [each.draining for each in await leader.workers()] == [True, False]
        await announce(leader, "a", leaving=True)
        assert not (await realm.state()).workers


@virtual
async def test_the_successor_of_a_leader_passes_the_request_on() -> None:
    realm = Realm()
    async with realm.leader() as leader:
        await announce(leader, "a")
        await leader.drain("a")
        async with realm.usurper(after=1) as successor:
            assert [each.name for each in await successor.workers()] == ["a"]
            assert await announce(successor, "a") is True
            assert await announce(successor, "b") is False
            assert [each.name for each in await successor.workers()] == ["a", "b"]


@virtual
async def test_the_request_is_kept_while_the_worker_is_heard() -> None:
    realm = Realm()
    async with realm.leader() as leader:
        await announce(leader, "a")
        await leader.drain("a")
        before = realm.writes()
        for _ in range(200):
            await asyncio.sleep(5)
            assert await announce(leader, "a") is True
        assert 10 <= realm.writes() - before <= 20, "its row is renewed once a minute"


@virtual
async def test_an_unknown_worker_is_an_error_that_names_those_in_memory() -> None:
    realm = Realm()
    async with realm.leader() as leader:
        await announce(leader, "a")
        with pytest.raises(WorkerNotFoundError, match="known are a;"):
            await leader.drain("b")
        assert realm.writes() == 1, "the takeover"


@virtual
async def test_more_workers_than_there_may_be_are_not_listed() -> None:
    realm = Realm()
    async with realm.leader() as leader:
        await leader.configure(max_workers=2)
        for name in ("a", "b", "c"):
            await announce(leader, name)
        assert [each.name for each in await leader.workers()] == ["a", "b"]


@virtual
async def test_a_bad_announcement_is_refused() -> None:
    realm = Realm()
    async with realm.leader() as leader:
        with pytest.raises(InvalidRequestError):
            await announce(leader, running=-1)
