"""A leader whose write stalls: what its clients get, and how long it takes to end."""

from __future__ import annotations

import asyncio

import pytest

from bucketq.broker.broker import DRAIN_S
from bucketq.errors import SupersededError, UnavailableError
from bucketq.model.operations import Pulse
from bucketq.store.base import LockHeldError
from tests.unit.broker.leaders import Realm, now_s
from tests.unit.client.clients import Realm as Clients
from tests.unit.commit.worlds import Effect, lose_request, say_nothing, start, virtual

STALL_S = 5.0


async def lock(_: Effect) -> None:
    raise LockHeldError("process 4242 holds the lock")


@virtual
async def test_reads_and_heartbeats_are_answered_from_the_object_while_a_write_stalls() -> None:
    realm = Realm()
    async with realm.leader() as leader:
        await leader.push("mail", 1)
        (job,) = await leader.claim()
        realm.store.stand("replace", lose_request)
        push = start(leader.push("mail", 2))
        await asyncio.sleep(STALL_S)
        began = now_s()
        assert await leader.heartbeat(job) == [Pulse(job.id, held=True)]
        assert (await leader.stats()).counts == {"mail": {"running": 1}}
        assert now_s() - began < 1
        realm.store.stand("replace", None)
        await push


@virtual
async def test_a_leader_that_was_deposed_during_a_stall_answers_no_read() -> None:
    realm = Realm()
    async with realm.leader() as leader:
        await leader.push("mail", 1)
        realm.store.stand("replace", lose_request)
        push = start(leader.push("mail", 2))
        await asyncio.sleep(STALL_S)
        realm.store.stand("replace", say_nothing)
        await asyncio.sleep(STALL_S)
        async with realm.usurper(after=1) as usurper:
            await usurper.push("mail", 3)
            read = start(leader.stats())
            with pytest.raises(SupersededError):
                await read
            with pytest.raises(SupersededError):
                await push


@virtual
async def test_clients_read_and_get_the_reason_before_they_give_up() -> None:
    realm = Clients()
    async with realm.serving("host1"):
        await realm.until_led_by("host1")
        async with realm.client(timeout_s=3) as writer, realm.client(timeout_s=60) as reader:
            await writer.push("mail", 1, id="one")
            realm.store.stand("replace", lock)
            push = start(writer.push("mail", 2, id="two"))
            began = now_s()
            assert (await reader.stats()).counts == {"mail": {"queued": 1}}
            assert now_s() - began < 2
            with pytest.raises(UnavailableError, match="process 4242 holds the lock") as caught:
                await push
            assert now_s() - began <= 3
            assert caught.value.request is not None
            # However long it lasts, the broker is there, and no other could take its place.
            await asyncio.sleep(60)
            began = now_s()
            assert (await reader.stats()).counts == {"mail": {"queued": 1}}
            assert now_s() - began < 2
            realm.store.stand("replace", None)
            assert await writer.push("mail", 2, id="two", request=caught.value.request) == "two"
            assert (await reader.stats()).counts == {"mail": {"queued": 2}}
            broker = (await realm.state()).broker
            assert broker is not None
            assert broker.epoch == 1


@virtual
async def test_a_leader_that_waits_for_a_lock_is_not_cut_off_and_one_without_storage_is() -> None:
    realm = Realm()
    async with realm.leader(timeout_s=200) as leader:
        realm.store.stand("replace", lock)
        push = start(leader.push("mail", 1))
        await asyncio.sleep(100)
        assert not leader.is_cut_off
        realm.store.stand("replace", lose_request)
        await asyncio.sleep(10)
        assert leader.is_cut_off
        realm.store.stand("replace", None)
        await push


@virtual
async def test_retiring_and_closing_share_one_limit_while_a_write_stalls() -> None:
    realm = Clients()
    server = realm.server("host1")
    await server.start("host1:0")
    await realm.until_led_by("host1")
    async with realm.client(timeout_s=600) as client:
        await client.push("mail", 1)
        realm.store.stand("replace", lose_request)
        push = start(client.push("mail", 2))
        await asyncio.sleep(STALL_S)
        began = now_s()
        await server.stop()
        assert now_s() - began < DRAIN_S + 0.5
        push.cancel()
