"""Several queues behind one address: names, incarnations, and who is told what."""

from __future__ import annotations

import asyncio

import pytest

from bucketq.broker.broker import Broker
from bucketq.broker.server import Server
from bucketq.commit.objects.register import Register
from bucketq.errors import InvalidRequestError, QueueNotFoundError
from bucketq.rpc.messages import Hello, Ping
from tests.unit.broker.land import Land
from tests.unit.commit.worlds import Effect, virtual


class Town(Land):
    """A server of two queues."""

    def two(self) -> Server:
        server = Server(self.network.host("host1"), self.clock, "host1")
        for name in ("mail", "index"):
            register = Register(self.store.memory, f"{name}.json", f"test://{name}", self.clock)
            transport = self.network.host("host1")
            server.add(name, Broker(register, self.clock, transport, archive=None))
        return server


async def start(server: Server) -> None:
    await server.start("host1:0")
    for broker in server.brokers.values():
        await broker.leading.wait()


@virtual
async def test_each_queue_is_found_by_its_name_or_its_incarnation() -> None:
    server = Town().two()
    await start(server)
    mail, index = server.brokers["mail"], server.brokers["index"]
    assert mail.incarnation != index.incarnation
    assert server.ping(Ping(queue="mail")).incarnation == mail.incarnation
    assert server.ping(Ping(incarnation=index.incarnation)).incarnation == index.incarnation
    both = Ping(queue="index", incarnation=index.incarnation)
    assert server.ping(both).broker == server.ping(Ping(queue="index")).broker
    connection = server.open(Hello(queue="mail"), lambda _: None)
    assert connection.welcome.incarnation == mail.incarnation
    await server.stop()


@pytest.mark.parametrize(
    ("queue", "incarnation"),
    [("jobs", ""), ("", "another"), ("mail", "another"), ("MAIL", "")],
)
@virtual
async def test_the_error_for_an_unknown_queue_lists_those_that_are_served(
    queue: str, incarnation: str
) -> None:
    server = Town().two()
    await start(server)
    with pytest.raises(QueueNotFoundError, match="host1:4001; it serves index, mail"):
        server.ping(Ping(queue=queue, incarnation=incarnation))
    with pytest.raises(QueueNotFoundError):
        server.open(Hello(queue=queue, incarnation=incarnation), lambda _: None)
    await server.stop()


@virtual
async def test_a_call_without_a_queue_name_lists_the_queues_if_there_are_several() -> None:
    server = Town().two()
    await start(server)
    with pytest.raises(QueueNotFoundError, match="name one of index, mail"):
        server.ping(Ping())
    await server.stop()


@virtual
async def test_a_name_and_the_incarnation_of_another_queue_do_not_fit() -> None:
    server = Town().two()
    await start(server)
    with pytest.raises(QueueNotFoundError):
        server.ping(Ping(queue="mail", incarnation=server.brokers["index"].incarnation))
    await server.stop()


@virtual
async def test_a_single_queue_need_not_be_named() -> None:
    land = Land()
    async with land.serving("host1") as broker:
        await land.until_led_by("host1")
        pong = await land.ping("host1")
        assert (pong.incarnation, pong.role) == (broker.incarnation, "leading")
        assert (pong.leader, pong.version) == ("host1:4001", (await land.state()).version)


@virtual
async def test_a_ping_is_answered_before_the_storage_has_answered_anything() -> None:
    land = Land()

    async def never(_: object) -> None:
        await asyncio.Event().wait()

    land.store.break_down(never)
    server = land.server("host1")
    await server.start("host1:0")
    await asyncio.sleep(5)
    assert server.ping(Ping(queue="jobs")).role == "standing by"
    assert server.ping(Ping()).incarnation == ""
    await server.stop()


@pytest.mark.parametrize(
    "name", ["", "Mail", "mail box", "-mail", ".mail", "a" * 65, "mail/box", "mäil", "mail\n"]
)
@virtual
async def test_a_name_that_is_none_is_refused(name: str) -> None:
    land = Land()
    server = Server(land.network.host("host1"), land.clock, "host1")
    with pytest.raises(InvalidRequestError, match="bad name of a queue"):
        server.add(name, land.broker("host1"))


@virtual
async def test_two_queues_of_one_name_are_refused() -> None:
    land = Land()
    server = land.server("host1")
    with pytest.raises(InvalidRequestError, match="name them apart"):
        server.add("jobs", land.broker("host1"))


@virtual
async def test_the_address_that_is_recorded_may_be_another_than_the_one_it_listens_at() -> None:
    land = Land()
    server = land.server("host1")
    await server.start("host1:0", "gateway:7700")
    await land.until_led_by("host1")
    assert (await land.record()).address == "gateway:7700"
    await server.stop()


@virtual
async def test_a_broker_that_fails_does_not_affect_the_others_and_the_last_ends_all(
    caplog: pytest.LogCaptureFixture,
) -> None:
    town = Town()
    server = town.two()
    await start(server)
    await town.store.memory.delete("mail.json")
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(10):
            await server.until_over()
    assert "test://mail" in caplog.text
    assert "the other queues are still served" in caplog.text
    assert server.ping(Ping(queue="index")).role == "leading"
    with pytest.raises(QueueNotFoundError, match=r"not served any more: test://mail.*deleted"):
        server.ping(Ping(queue="mail"))
    await town.store.memory.delete("index.json")
    with pytest.raises(Exception, match=r"test://(index|mail).*deleted"):
        async with asyncio.timeout(10):
            await server.until_over()
    await server.stop()


@virtual
async def test_stopping_clears_the_addresses_and_refuses_new_dials() -> None:
    land = Land()
    server = land.server("host1")
    await server.start("host1:0")
    await land.until_led_by("host1")
    await server.stop()
    assert (await land.record()).address == ""
    assert land.network.addresses() == []
    assert [task for task in asyncio.all_tasks() if task is not asyncio.current_task()] == []


@virtual
async def test_a_server_is_idle_since_its_last_client_has_left() -> None:
    land = Land()
    server = land.server("host1")
    await server.start("host1:0")
    await land.until_led_by("host1")
    loop = asyncio.get_running_loop()
    connection = server.open(Hello(), lambda _: None)
    await asyncio.sleep(100)
    assert server.idle_s(loop.time()) == 0
    connection.close()
    await asyncio.sleep(30)
    assert server.idle_s(loop.time()) == pytest.approx(30)
    await server.stop()


@virtual
async def test_a_server_is_not_open_before_it_leads_a_queue_without_a_broker() -> None:
    # `serve` prints its address then, and a client that looks now must find a broker.
    land = Land()

    async def slowly(effect: Effect) -> object:
        await asyncio.sleep(3)
        return await effect()

    land.store.stand("replace", slowly)
    server = land.server("host1")
    await server.start("host1:0")
    await server.until_open(2)
    assert not server.is_ready()
    await server.until_open(10)
    assert server.is_ready()
    assert (await land.record()).address == "host1:4001"
    await server.stop()


@virtual
async def test_a_server_that_stands_by_is_open_at_once() -> None:
    land = Land()
    async with land.serving("host1"):
        await land.until_led_by("host1")
        async with land.serving("host2") as second:
            await asyncio.wait_for(second.opened.wait(), 0.1)
            assert second.role == "standing by"
