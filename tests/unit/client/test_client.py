"""A client through the death of its broker: nothing lost, nothing doubled, and a pause."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from bucketq.broker.leader import Leader
from bucketq.client.client_connection import ClientConnection
from bucketq.commit.base import CommitterLostError
from bucketq.commit.direct import DirectCommitter
from bucketq.commit.group import GroupCommitter
from bucketq.errors import ClosedError, OverloadedError, SupersededError, UnavailableError
from bucketq.model.operations import Request
from bucketq.testing.simulated_clock import SimulatedClock
from bucketq.testing.virtual_loop import current_loop
from simulator.simulated_network import NetworkFaults
from tests.unit.broker.land import now_s, until
from tests.unit.client.clients import Realm, client_over, committer_of
from tests.unit.commit.worlds import Gate, say_nothing, settle, slowly, start, virtual


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


class FakeWay:
    """A committer that keeps the requests it is sent."""

    def __init__(self, sent: list[Request], version: int, *, loses: bool) -> None:
        self.version = version
        self.is_open = True
        self._sent = sent
        self._loses = loses

    async def submit(self, request: Request, _: float) -> Any:
        self._sent.append(request)
        if self._loses:
            self.is_open = False
            raise CommitterLostError("reset")
        return ("job",)

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
async def test_a_claim_that_was_withdrawn_after_a_failover_waits_no_longer() -> None:
    realm = Realm()
    first = realm.spawn("host1")
    await realm.until_led_by("host1")
    async with realm.serving("host2"):
        async with realm.client() as queue:
            claiming = start(queue.claim(wait_s=3000))
            await asyncio.sleep(2)
            first.kill()
            await realm.until_led_by("host2")
            await asyncio.sleep(3)
            claiming.cancel()
            await settle()
            await queue.push("mail", 1)
            assert len(await queue.claim(wait_s=5)) == 1
        assert now_s() < 60, "closing does not wait for it"


@virtual
async def test_a_claim_withdrawn_while_there_is_no_broker_is_not_sent() -> None:
    realm = Realm()
    first = realm.spawn("host1")
    await realm.until_led_by("host1")
    async with realm.client() as queue:
        claiming = start(queue.claim(wait_s=3000))
        await asyncio.sleep(2)
        first.kill()
        await asyncio.sleep(2)
        claiming.cancel()
        async with realm.serving("host2"):
            await realm.until_led_by("host2")
            await asyncio.sleep(5)
            leader = realm.brokers["host2"].leader
            assert leader is not None
            assert leader.parked == 0
            await queue.push("mail", 1)
            assert [job.attempt for job in await queue.claim(wait_s=5)] == [1]


@virtual
async def test_cancelled_claims_take_no_jobs() -> None:
    realm = Realm()
    async with realm.serving("host1"), realm.client() as queue:
        for _ in range(300):
            claiming = start(queue.claim(wait_s=60))
            await asyncio.sleep(0.01)
            claiming.cancel()
        leader = realm.brokers["host1"].leader
        assert leader is not None
        await until(lambda: leader.parked == 0, limit_s=1.0)
        began = now_s()
        await queue.push("mail", 1)
        (job,) = await queue.claim(wait_s=10)
        assert job.attempt == 1
        assert now_s() - began < 0.1


@virtual
async def test_a_cancelled_claim_in_flight_gives_its_job_back_in_the_next_commit() -> None:
    realm = Realm()
    async with realm.serving("host1"), realm.client() as queue, realm.client("other") as other:
        await queue.push("mail", 1)
        gate = Gate()
        realm.store.plan("replace", gate)
        claiming = start(queue.claim(wait_s=60))
        await gate.reached.wait()
        claiming.cancel()
        await asyncio.sleep(0.1)
        writes = realm.store.count("replace")
        waiting = start(other.claim(wait_s=60))
        await asyncio.sleep(0.1)
        gate.open()
        (job,) = await waiting
        assert (job.attempt, job.record.lost_leases) == (2, 0)
        assert realm.store.count("replace") == writes + 1, "released and claimed in one commit"


@virtual
async def test_a_claim_in_flight_when_its_client_hangs_up_is_given_back() -> None:
    realm = Realm()
    async with realm.serving("host1"), realm.client("other") as other:
        await other.push("mail", 1)
        gate = Gate()
        realm.store.plan("replace", gate)
        async with realm.client() as queue:
            claiming = start(queue.claim(wait_s=60))
            await gate.reached.wait()
            claiming.cancel()
        gate.open()
        (job,) = await other.claim(wait_s=5)
        assert (job.attempt, job.record.lost_leases) == (2, 0)


@virtual
async def test_a_claim_answered_while_its_client_closes_is_released() -> None:
    realm = Realm()
    async with realm.serving("host1"), realm.client("other") as other:
        await other.push("mail", 1)
        async with realm.client() as queue:
            claiming = start(queue.claim(wait_s=60))
            while next(iter((await realm.state()).jobs)).status != "running":  # noqa: ASYNC110
                await asyncio.sleep(0.0001)
            claiming.cancel()
        (job,) = await other.claim(wait_s=5)
        assert (job.attempt, job.record.lost_leases) == (2, 0)


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
