"""A client without a broker: it writes directly if it may, and otherwise its calls end."""

from __future__ import annotations

import asyncio

import pytest

from bucketq.client.client_connection import ClientConnection
from bucketq.commit.direct_committer import DirectCommitter
from bucketq.errors import ClosedError, SupersededError, UnavailableError
from tests.unit.broker.land import now_s, until
from tests.unit.client.clients import Realm, committer_of
from tests.unit.commit.worlds import start, virtual


@virtual
async def test_without_a_broker_a_client_that_may_writes_directly_until_there_is_one() -> None:
    realm = Realm()
    async with realm.client(may_write=True) as queue:
        await queue.push("mail", 1)
        direct = committer_of(queue)
        assert isinstance(direct, DirectCommitter)
        async with realm.serving("host1"):
            await realm.until_led_by("host1")
            pushes = []
            for number in range(30):
                pushes.append(await queue.push("mail", number))
                await asyncio.sleep(0.25)
            assert isinstance(committer_of(queue), ClientConnection), "it looks every five seconds"
            assert not direct.is_open, "what it has left is closed"
            assert (await realm.ids())[1:] == pushes
        await queue.push("mail", "after")
        assert isinstance(committer_of(queue), DirectCommitter)


@virtual
async def test_a_claim_that_waits_while_writing_directly_moves_to_the_broker() -> None:
    realm = Realm()
    async with realm.client(may_write=True) as queue:
        claiming = start(queue.claim(wait_s=60))
        await asyncio.sleep(1)
        async with realm.serving("host1"):
            await realm.until_led_by("host1")
            await until(lambda: isinstance(committer_of(queue), ClientConnection))
            await asyncio.sleep(1)
            await queue.push("mail", 1)
            assert len(await claiming) == 1


@virtual
async def test_without_a_broker_and_without_the_right_to_write_connecting_ends_in_time() -> None:
    realm = Realm()
    with pytest.raises(UnavailableError, match=r"no way to test://queue.*no broker serves"):
        async with realm.client(timeout_s=7.0):
            pass
    assert now_s() == pytest.approx(7, abs=0.5)
    assert asyncio.all_tasks() == {asyncio.current_task()}


@virtual
async def test_archiving_goes_to_the_next_broker_as_well() -> None:
    realm = Realm()
    first = realm.spawn("host1")
    await realm.until_led_by("host1")
    async with realm.client(may_write=True) as queue:
        first.kill()
        with pytest.raises(Exception, match="opened without an archive"):
            await queue.flush_archive()
        assert isinstance(committer_of(queue), DirectCommitter)


@virtual
async def test_all_callers_learn_that_a_queue_was_deleted() -> None:
    realm = Realm()
    first = realm.spawn("host1")
    await realm.until_led_by("host1")
    async with realm.client() as queue:
        await queue.push("mail", 1)
        await realm.store.delete("queue.json")
        first.kill()
        for _ in range(2):
            with pytest.raises(SupersededError, match="deleted"):
                await queue.push("mail", 2)


@virtual
async def test_closing_fails_waiting_calls_and_leaves_no_task_and_no_connection() -> None:
    realm = Realm()
    async with realm.serving("host1") as broker:
        await realm.until_led_by("host1")
        before = asyncio.all_tasks()
        async with realm.client() as queue:
            claiming = start(queue.claim(wait_s=600))
            await asyncio.sleep(1)
        with pytest.raises(ClosedError):
            await claiming
        assert asyncio.all_tasks() == before
        await asyncio.sleep(1)
        assert broker._connections == {}
        assert broker.leader is not None
        assert broker.leader.parked == 0
        with pytest.raises(ClosedError):
            await queue.push("mail", 1)


@virtual
async def test_closing_while_a_broker_is_looked_for_ends_at_once() -> None:
    realm = Realm()
    first = realm.spawn("host1")
    await realm.until_led_by("host1")
    async with realm.client() as queue:
        first.kill()
        pushing = start(queue.push("mail", 1))
        await asyncio.sleep(5)
        began = now_s()
    assert now_s() - began < 1
    with pytest.raises((ClosedError, asyncio.CancelledError)):
        await pushing
