"""A client whose broker lives but is busy, slow, or does not get its calls."""

from __future__ import annotations

import asyncio

import pytest

from bucketq.broker.leader import Leader
from bucketq.commit.group_committer import GroupCommitter
from bucketq.errors import OverloadedError, UnavailableError
from simulator.simulated_network import NetworkFaults
from tests.unit.broker.land import now_s
from tests.unit.client.clients import Realm, committer_of
from tests.unit.commit.worlds import Gate, start, virtual


@virtual
async def test_a_client_of_an_overloaded_broker_retries_after_the_hint(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    realm = Realm()
    async with realm.serving("host1"), realm.client() as queue:
        await queue.push("mail", 1)
        monkeypatch.setattr(Leader, "waiting", (20_000, 0))
        monkeypatch.setattr(GroupCommitter, "last_write_s", 2.0)
        began = now_s()
        pushing = start(queue.push("mail", 2))
        await asyncio.sleep(1)
        monkeypatch.setattr(Leader, "waiting", (0, 0))
        await pushing
        assert 2 <= now_s() - began <= 4.1
        assert len(await realm.ids()) == 2


@virtual
async def test_a_push_that_cannot_wait_for_the_hint_is_rejected(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    realm = Realm()
    async with realm.serving("host1"), realm.client(timeout_s=1.0) as queue:
        monkeypatch.setattr(Leader, "waiting", (20_000, 0))
        monkeypatch.setattr(GroupCommitter, "last_write_s", 2.0)
        with pytest.raises(OverloadedError):
            await queue.push("mail", 1)


@virtual
async def test_after_the_time_out_the_outcome_is_unknown_and_can_be_asked_for_again() -> None:
    realm = Realm()
    async with realm.serving("host1"), realm.client(timeout_s=5.0) as queue:
        await queue.push("mail", "before")
        gate = Gate()
        realm.store.plan("replace", gate)
        began = now_s()
        with pytest.raises(UnavailableError, match="outcome is unknown") as unknown:
            await queue.push("mail", "once")
        assert now_s() - began == pytest.approx(5, abs=0.5)
        token = unknown.value.request
        assert token is not None
        gate.open()
        await asyncio.sleep(1)
        job_id = await queue.push("mail", "once", request=token)
        assert (await realm.ids())[1:] == [job_id]


@virtual
async def test_slow_storage_is_waited_for_and_the_broker_is_kept() -> None:
    realm = Realm()
    async with realm.serving("host1"):
        await realm.until_led_by("host1")
        async with realm.serving("host2", healthy=True), realm.client() as queue:
            gate = Gate()
            realm.store.plan("replace", gate)
            pushing, route = start(queue.push("mail", 1)), committer_of(queue)
            await asyncio.sleep(12)
            gate.open()
            await pushing
            assert committer_of(queue) is route
            assert (await realm.record()).epoch == 1


@virtual
async def test_calls_lost_on_a_link_that_lives_end_with_the_time_out() -> None:
    """The transport promises no delivery; the broker answers pings, so it is not given up."""
    realm = Realm()
    async with realm.serving("host1"), realm.client(timeout_s=8.0) as queue:
        await queue.push("mail", 1)
        realm.network.set_faults(NetworkFaults(lost=1.0))
        pushing = start(queue.push("mail", 2))
        await asyncio.sleep(0.5)
        realm.network.set_faults(NetworkFaults.none())
        with pytest.raises(UnavailableError):
            await pushing
