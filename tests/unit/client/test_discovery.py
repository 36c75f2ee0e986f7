"""Where is the broker, and what if there is none?"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from bucketq.broker.leader import Leader
from bucketq.broker.takeover import Sign
from bucketq.client.addresses import AddressFinder
from bucketq.client.client_connection import ClientConnection
from bucketq.client.discovery import NotYetError, ObjectFinder
from bucketq.commit.base import Committer
from bucketq.commit.direct_committer import DirectCommitter
from bucketq.errors import (
    CorruptStateError,
    QueueNotFoundError,
    StoreRefusedError,
    SupersededError,
    UnavailableError,
)
from bucketq.model.operations import Lead, Request
from bucketq.model.transitions import apply
from tests.unit.broker.land import Land, now_s
from tests.unit.client.clients import Realm
from tests.unit.commit.worlds import KEY, virtual


async def look(finder: ObjectFinder | AddressFinder) -> Committer:
    return await finder.find()


async def look_until_found(finder: ObjectFinder) -> Committer:
    while True:
        try:
            return await look(finder)
        except NotYetError:
            await asyncio.sleep(0.5)


async def record(realm: Land, address: str, host: str, after: int = 0) -> None:
    """Write a broker into the object that was never started."""
    register = realm.register()
    document = await register.open(create=True)
    lead = Lead(id=f"broker-{after}", address=address, host=host, after=after)
    assert apply(document.state, Request(lead), realm.clock.now()).error is None
    await register.commit(document, register.prepare(document))


@virtual
async def test_the_broker_that_the_object_names_is_found_and_spoken_to_under_its_id() -> None:
    realm = Realm()
    async with realm.serving("host1") as broker:
        await realm.until_led_by("host1")
        finder = realm.finder()
        route = await look(finder)
        assert isinstance(route, ClientConnection)
        assert (route.address, route.broker) == ("host1:4001", (await realm.record()).id)
        assert await finder.sign_of(route) is Sign.ALIVE
        await route.close()
        await finder.close()
        assert broker.role == "leading"


@virtual
async def test_a_missing_queue_is_created_at_once_if_allowed() -> None:
    realm = Realm()
    with pytest.raises(QueueNotFoundError, match="no queue at"):
        await look(realm.finder(create=False))
    route = await look(realm.finder(may_write=True))
    assert isinstance(route, DirectCommitter)
    assert (await realm.state()).version == 1
    await route.close()


@virtual
async def test_one_sign_that_the_broker_is_gone_is_not_enough_and_two_are() -> None:
    realm = Realm()
    await record(realm, "host1:4001", "host1")
    finder = realm.finder(may_write=True)
    with pytest.raises(NotYetError, match="host1:4001 does not answer"):
        await look(finder)
    with pytest.raises(NotYetError, match="none has taken over yet"):
        await look(finder)
    began = now_s()
    route = await look_until_found(finder)
    assert isinstance(route, DirectCommitter)
    assert 2.5 <= now_s() - began <= 4, "one that stands by has time to take over"
    await route.close()


@virtual
async def test_who_has_lost_a_broker_waits_a_moment_for_the_next_though_none_is_recorded() -> None:
    realm = Realm()
    finder = realm.finder(may_write=True)
    async with realm.serving("host1"):
        await realm.until_led_by("host1")
        await (await look(finder)).close()
    assert not (await realm.state()).is_served, "it has retired"
    with pytest.raises(NotYetError, match="none has taken over yet"):
        await look(finder)
    await (await look_until_found(finder)).close()
    route = await look(realm.finder(may_write=True))
    assert isinstance(route, DirectCommitter), "a newcomer does not wait"
    await route.close()


@virtual
async def test_evidence_is_forgotten_when_the_object_names_another_epoch() -> None:
    realm = Realm()
    await record(realm, "host1:4001", "host1")
    finder = realm.finder(may_write=True)
    with pytest.raises(NotYetError):
        await look(finder)
    await record(realm, "host2:4001", "host2", after=1)
    with pytest.raises(NotYetError, match="host2:4001"):
        await look(finder)
    with pytest.raises(NotYetError, match="none has taken over yet"):
        await look(finder)


@virtual
async def test_evidence_is_forgotten_at_the_first_sign_of_life() -> None:
    realm = Realm()
    async with realm.serving("host1"):
        await realm.until_led_by("host1")
        finder = realm.finder(may_write=True)
        for _ in range(3):
            realm.network.partition("client")
            with pytest.raises(NotYetError):
                await look(finder)
            realm.network.heal()
            route = await look(finder)
            assert isinstance(route, ClientConnection)
            await route.close()


@virtual
async def test_writing_directly_retires_a_dead_broker_so_that_leases_can_end() -> None:
    realm = Realm()
    await record(realm, "host1:4001", "host1")
    assert (await realm.state()).is_served
    finder = realm.finder(may_write=True)
    route = await look_until_found(finder)
    state = await realm.state()
    assert (state.is_served, state.epoch) == (False, 1)
    await route.close()


@virtual
async def test_a_loopback_address_of_another_host_is_written_around_and_not_retired() -> None:
    realm = Realm()
    await record(realm, "127.0.0.1:4001", "elsewhere")
    route = await look(realm.finder(may_write=True))
    assert isinstance(route, DirectCommitter)
    assert (await realm.state()).is_served
    await route.close()
    with pytest.raises(NotYetError, match="can be reached from this host"):
        await look(realm.finder())


@virtual
async def test_who_may_not_write_waits_for_a_broker() -> None:
    realm = Realm()
    finder = realm.finder()
    for _ in range(3):
        with pytest.raises(NotYetError, match="no broker serves"):
            await look(finder)


@virtual
async def test_an_object_that_cannot_be_read_is_not_evidence_against_its_broker(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    realm = Realm()
    await record(realm, "host1:4001", "host1")
    finder = realm.finder(may_write=True)
    with pytest.raises(NotYetError):
        await look(finder)
    with monkeypatch.context() as cut:
        cut.setattr(realm.store.memory, "get", _unavailable)
        cut.setattr(realm.store.memory, "get_if_changed", _unavailable)
        for _ in range(3):
            with pytest.raises(NotYetError, match="cut"):
                await look(finder)
        with pytest.raises(NotYetError, match="cut"):
            await look(realm.finder(may_write=True))
    await (await look_until_found(finder)).close()


async def _unavailable(*_: str) -> None:
    raise UnavailableError("cut")


@virtual
async def test_a_queue_that_was_deleted_or_replaced_is_not_used_further() -> None:
    realm = Realm()
    finder = realm.finder(may_write=True)
    await (await look(finder)).close()
    await realm.store.delete(KEY)
    with pytest.raises(SupersededError, match="deleted while it was in use"):
        await look(finder)
    await realm.register().open(create=True)
    with pytest.raises(SupersededError, match="another queue"):
        await look(finder)


@virtual
async def test_an_object_that_is_not_a_queue_is_rejected() -> None:
    realm = Realm()
    await realm.store.memory.create(KEY, b"somebody's notes\n" * 10)
    with pytest.raises(CorruptStateError):
        await look(realm.finder(may_write=True))


class FakeLauncher:
    """Starts the given broker, or nothing."""

    broker = None

    def __init__(self, start: Callable[[], None] = lambda: None) -> None:
        self.asked: list[int] = []
        self._start = start

    async def launch(self, after: int) -> None:
        self.asked.append(after)
        self._start()

    async def close(self) -> None:
        return


@virtual
async def test_without_a_broker_one_is_started_that_follows_the_epoch() -> None:
    realm = Realm()
    launcher = FakeLauncher()
    with pytest.raises(NotYetError, match="being started"):
        await look(realm.finder(launcher=launcher))
    await record(realm, "host1:4001", "host1")
    finder = realm.finder(launcher=launcher)
    with pytest.raises(NotYetError, match="does not answer"):
        await look(finder)
    with pytest.raises(NotYetError, match="being started"):
        await look(finder)
    assert launcher.asked == [0, 1]


@virtual
async def test_the_broker_in_this_process_is_reached_without_a_message() -> None:
    realm = Realm()
    async with realm.serving("host1") as broker:
        await realm.until_led_by("host1")
        launcher = FakeLauncher()
        launcher.broker = broker  # type: ignore[assignment]
        realm.network.partition("client")
        route = await look(realm.finder(launcher=launcher))
        assert isinstance(route, Leader)
        assert launcher.asked == []


@virtual
async def test_who_waits_in_vain_for_another_process_to_start_one_writes_directly() -> None:
    """It holds the right to start one on this host, and is stopped, or does not get on."""
    realm = Realm()
    finder = realm.finder(may_write=True, launcher=FakeLauncher())
    began = now_s()
    route = await look_until_found(finder)
    assert isinstance(route, DirectCommitter)
    assert 2.5 <= now_s() - began <= 4
    await route.close()


@virtual
async def test_an_object_that_may_not_be_written_is_read_directly() -> None:
    realm = Realm()

    def refuse() -> None:
        raise StoreRefusedError("permission denied")

    route = await look(realm.finder(may_write=True, launcher=FakeLauncher(refuse)))
    assert isinstance(route, DirectCommitter)
    await route.close()


# By address, without the object.


def by_address(realm: Realm, *addresses: str, queue: str = "jobs") -> AddressFinder:
    return AddressFinder(addresses, queue, realm.network.host("client"), "client")


@virtual
async def test_the_one_that_leads_is_found_among_several_addresses() -> None:
    realm = Realm()
    async with realm.serving("host1"):
        await realm.until_led_by("host1")
        async with realm.serving("host2"):
            await asyncio.sleep(1)
            finder = by_address(realm, "nobody:1", "host2:4001", "host1:4001")
            route = await look(finder)
            assert isinstance(route, ClientConnection)
            assert route.address == "host1:4001"
            assert await finder.sign_of(route) is Sign.ALIVE
            await route.close()


@virtual
async def test_a_standby_names_the_leader() -> None:
    realm = Realm()
    async with realm.serving("host1"):
        await realm.until_led_by("host1")
        async with realm.serving("host2"):
            await asyncio.sleep(1)
            route = await look(by_address(realm, "host2:4001"))
            assert isinstance(route, ClientConnection)
            assert route.address == "host1:4001"
            await route.close()


@virtual
async def test_a_client_with_addresses_waits_while_no_broker_leads() -> None:
    realm = Realm()
    with pytest.raises(NotYetError, match="host1:4001"):
        await look(by_address(realm, "host1:4001"))
    realm.network.squat("host1:4001")
    with pytest.raises(NotYetError):
        await look(by_address(realm, "host1:4001"))


@virtual
async def test_a_name_that_no_broker_knows_is_rejected_at_once() -> None:
    realm = Realm()
    async with realm.serving("host1"):
        await realm.until_led_by("host1")
        with pytest.raises(QueueNotFoundError, match="it serves jobs"):
            await look(by_address(realm, "host1:4001", queue="mail"))
        with pytest.raises(NotYetError):  # The one that is not there may know it.
            await look(by_address(realm, "host1:4001", "host2:4001", queue="mail"))


@virtual
async def test_another_queue_under_the_same_name_is_not_taken_for_the_old_one() -> None:
    realm = Realm()
    finder = by_address(realm, "host1:4001", "host2:4001")
    async with realm.serving("host1"):
        await realm.until_led_by("host1")
        await (await look(finder)).close()
    await realm.store.delete(KEY)
    async with realm.serving("host2"):
        await realm.until_led_by("host2")
        with pytest.raises(SupersededError, match="connect again"):
            await look(finder)


@virtual
async def test_the_sign_of_a_leader_by_address() -> None:
    realm = Realm()
    process = realm.spawn("host1")
    await realm.until_led_by("host1")
    finder = by_address(realm, "host1:4001")
    route = await look(finder)
    assert isinstance(route, ClientConnection)
    process.freeze()
    assert await finder.sign_of(route) is Sign.SILENT
    process.thaw()
    assert await finder.sign_of(route) is Sign.ALIVE
    process.kill()
    assert await finder.sign_of(route) is Sign.GONE
    await route.close()
