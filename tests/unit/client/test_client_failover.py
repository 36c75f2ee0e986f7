"""A client through the death of its broker: nothing lost, nothing doubled, and a pause."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from bucketq.client.client_connection import ClientConnection
from bucketq.model.operations import Request
from bucketq.testing.simulated_clock import SimulatedClock
from bucketq.testing.virtual_loop import current_loop
from tests.unit.broker.land import now_s
from tests.unit.client.clients import FakeWay, Realm, client_over, committer_of
from tests.unit.commit.worlds import say_nothing, slowly, start, virtual


@virtual
async def test_pushes_survive_the_death_of_the_broker_and_none_is_doubled() -> None:
    realm = Realm()
    first = realm.spawn("host1")
    await realm.until_led_by("host1")
    async with realm.serving("host2"), realm.client() as queue:
        realm.store.stand("replace", slowly(0.3))
        pushes = []
        for number in range(20):
            pushes.append(start(queue.push("mail", number)))
            await asyncio.sleep(0.05)
        first.kill()
        assert 0 < sum(push.done() for push in pushes) < 20
        ids = await asyncio.gather(*pushes)
        assert sorted(await realm.ids()) == sorted(ids)
        assert len(set(ids)) == 20
        assert now_s() < 10
        assert (await realm.record()).epoch == 2


@virtual
async def test_a_push_that_landed_before_the_broker_died_is_known_to_the_next() -> None:
    """The answer is lost, and the client sends it again with what it knew when it first sent it."""
    realm = Realm()
    first = realm.spawn("host1")
    await realm.until_led_by("host1")
    async with realm.serving("host2"), realm.client() as queue:
        await queue.push("mail", "before")
        realm.network.partition("client", "host1", way="in")
        pushing = start(queue.push("mail", "once"))
        await asyncio.sleep(1)
        assert len(await realm.ids()) == 2, "it landed"
        assert not pushing.done()
        first.kill()
        realm.network.heal()
        job_id = await pushing
        assert (await realm.ids())[1:] == [job_id]


class Ways:
    """A finder of ways that lose what they are sent, up to the last, which keeps it."""

    def __init__(self, *versions: int) -> None:
        self.sent: list[Request] = []
        self._versions = list(versions)

    async def find(self) -> Any:
        return FakeWay(self.sent, self._versions.pop(0), loses=bool(self._versions))

    async def close(self) -> None:
        return


@virtual
async def test_a_retry_has_the_same_id_and_the_version_since_which_it_may_be_applied() -> None:
    ways = Ways(7, 9, 12)
    clock = SimulatedClock(current_loop())
    async with client_over(cast("Any", ways), clock) as queue:
        assert await queue.push("mail", 1) == "job"
        assert await queue.push("mail", 2) == "job"
    first, second, third, next_one = ways.sent
    assert [request.since for request in ways.sent] == [None, 7, 7, None]
    assert {(request.session, request.number) for request in ways.sent[:3]} == {
        (first.session, first.number)
    }
    assert first.operation == second.operation == third.operation
    assert next_one.number == first.number + 1


@virtual
async def test_a_waiting_claim_still_waits_at_the_next_broker() -> None:
    realm = Realm()
    first = realm.spawn("host1")
    await realm.until_led_by("host1")
    async with realm.serving("host2"), realm.client() as queue:
        claiming = start(queue.claim(wait_s=30))
        await asyncio.sleep(2)
        first.kill()
        await asyncio.sleep(10)
        assert not claiming.done()
        await queue.push("mail", 1)
        assert [job.payload for job in await claiming] == [1]
        in_vain = start(queue.claim(wait_s=20))
        await asyncio.sleep(1)
        began = now_s()
        assert await in_vain == []
        assert now_s() - began == pytest.approx(19, abs=0.5)


@virtual
async def test_a_broker_that_is_frozen_is_pinged_and_given_up() -> None:
    realm = Realm()
    frozen = realm.spawn("host1")
    await realm.until_led_by("host1")
    async with realm.serving("host2"), realm.client() as queue:
        await queue.push("mail", 1)
        frozen.freeze()
        began = now_s()
        await queue.push("mail", 2)
        assert 2 <= now_s() - began < 10
        route = committer_of(queue)
        assert isinstance(route, ClientConnection)
        assert route.address.startswith("host2:")
        frozen.thaw()
        await asyncio.sleep(5)
        assert len(await realm.ids()) == 2


@virtual
async def test_a_waiting_claim_at_a_host_that_vanished_finds_the_next_broker() -> None:
    realm = Realm()
    gone = realm.spawn("host1")
    await realm.until_led_by("host1")
    async with realm.serving("host2"), realm.client() as queue:
        claiming = start(queue.claim(wait_s=120))
        await asyncio.sleep(1)
        realm.network.partition("host1")
        await realm.until_led_by("host2")
        async with realm.client("other") as other:
            await other.push("mail", 1)
        began = now_s()
        assert len(await claiming) == 1
        assert now_s() - began < 7, "no message for five seconds, and then the next broker is found"
        gone.kill()


@virtual
async def test_the_storage_of_the_broker_alone_is_gone_and_another_takes_its_place() -> None:
    realm = Realm()
    async with realm.serving("host1"):
        await realm.until_led_by("host1")
        async with realm.serving("host2", healthy=True), realm.client() as queue:
            await queue.push("mail", 1)
            realm.store.break_down(say_nothing)
            await queue.push("mail", 2)
            assert now_s() < 35
            assert (await realm.record()).epoch == 2
        realm.store.break_down(None)
