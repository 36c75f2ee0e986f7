"""Addresses of the simulated network, and errors of the services that listen there."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from bucketq.errors import InvalidRequestError, OverloadedError, QueueNotFoundError, SupersededError
from bucketq.rpc.messages import Call, Ping
from bucketq.rpc.transport import ConnectionLostError, Listener, NoBrokerThereError
from simulator.simulated_network import NetworkFaults
from tests.unit.simulator.echo import (
    ADDRESS,
    HELLO,
    PING,
    Echo,
    EchoConnection,
    World,
    call,
    is_lost,
    serve,
    simulate,
)


def test_port_0_takes_the_next_free_port_and_a_port_is_bound_once() -> None:
    async def scenario(world: World) -> None:
        host = world.network.host("broker")
        with pytest.raises(InvalidRequestError, match="in use"):
            await host.listen(ADDRESS, world.echo)
        await host.listen("broker:4002", world.echo)
        listener: Listener = await host.listen("broker:0", world.echo)
        assert listener.address == "broker:4003"
        assert world.network.addresses() == [ADDRESS, "broker:4002", "broker:4003"]
        for wrong in ("elsewhere:0", "broker", "broker:http", "broker:65536", ":0", ""):
            with pytest.raises(InvalidRequestError, match="not an address of broker"):
                await host.listen(wrong, world.echo)

    simulate(scenario)


def test_a_dial_to_an_address_without_a_listener_is_refused_soon() -> None:
    async def scenario(world: World) -> None:
        for address in ("broker:9", "client:4001", "nowhere:1", "rubbish", ""):
            started_s = world.loop.time()
            with pytest.raises(NoBrokerThereError, match="nothing listens"):
                await world.client.ping(address, PING, 5.0)
            with pytest.raises(NoBrokerThereError, match="nothing listens"):
                await world.client.open(address, HELLO, 5.0)
            assert 0 < world.loop.time() - started_s < 0.1

    simulate(scenario)


def test_an_address_may_be_reused_by_another_broker() -> None:
    async def scenario(world: World) -> None:
        wire = await world.open()
        world.broker.kill()
        other = Echo(world.loop, "other")
        serve(world.network, other)
        await asyncio.sleep(1)
        assert world.network.addresses() == [ADDRESS]
        assert world.network.injected == {"reused_port": 1}
        assert (await world.ping()).broker == "other"
        # The old connection does not become one with the new broker.
        with pytest.raises(ConnectionLostError):
            await wire.send([call(1)])
        await asyncio.sleep(1)
        assert other.received() == []

    simulate(scenario, NetworkFaults(reused_port=1.0))


def test_without_that_fault_a_port_is_not_reused_by_chance() -> None:
    async def scenario(world: World) -> None:
        world.broker.kill()
        serve(world.network, Echo(world.loop))
        await asyncio.sleep(1)
        assert world.network.addresses() == ["broker:4002"]
        # It can still be asked for by number.
        serve(world.network, Echo(world.loop, "other"), port=4001)
        await asyncio.sleep(1)
        assert (await world.ping()).broker == "other"

    simulate(scenario)


def test_an_address_may_be_reused_by_something_that_is_not_a_broker() -> None:
    async def scenario(world: World) -> None:
        world.broker.kill()
        world.network.squat(ADDRESS)
        for ask in (world.ping, world.open):
            with pytest.raises(NoBrokerThereError, match="not a broker"):
                await ask()
        with pytest.raises(InvalidRequestError, match="in use"):
            await world.network.host("broker").listen(ADDRESS, world.echo)
        with pytest.raises(InvalidRequestError, match="in use"):
            world.network.squat(ADDRESS)
        world.network.vacate(ADDRESS)
        with pytest.raises(NoBrokerThereError, match="nothing listens"):
            await world.ping()
        world.network.squat(ADDRESS, mute=True)
        for ask in (world.ping, world.open):
            with pytest.raises(ConnectionLostError, match="no answer") as caught:
                await ask()
            assert not isinstance(caught.value, NoBrokerThereError)

    simulate(scenario)


# Errors of a service.


def test_a_queue_that_is_not_served_answers_no_ping_and_refuses_a_connection() -> None:
    async def scenario(world: World) -> None:
        world.echo.refusal = QueueNotFoundError("no such queue")
        with pytest.raises(NoBrokerThereError, match="no such queue"):
            await world.ping()
        with pytest.raises(QueueNotFoundError, match="no such queue"):
            await world.open()

    simulate(scenario)


def test_a_broker_of_another_queue_answers_no_ping() -> None:
    async def scenario(world: World) -> None:
        assert (await world.client.ping(ADDRESS, Ping(incarnation="i"), 5.0)).broker == "echo"
        with pytest.raises(NoBrokerThereError, match="serves i"):
            await world.client.ping(ADDRESS, Ping(incarnation="another"), 5.0)

    simulate(scenario)


def test_a_superseded_broker_names_the_leader() -> None:
    async def scenario(world: World) -> None:
        world.echo.refusal = SupersededError("not me", leader="other:1")
        with pytest.raises(SupersededError, match="not me") as caught:
            await world.open()
        assert caught.value.leader == "other:1"
        with pytest.raises(NoBrokerThereError, match="not me"):
            await world.ping()

    simulate(scenario)


def test_any_other_refusal_is_a_lost_connection() -> None:
    async def scenario(world: World) -> None:
        world.echo.refusal = OverloadedError("too many")
        for ask in (world.ping, world.open):
            with pytest.raises(ConnectionLostError, match="too many") as caught:
                await ask()
            assert not isinstance(caught.value, NoBrokerThereError)

    simulate(scenario)


def test_a_service_that_breaks_is_found_by_the_test_and_resets_its_client() -> None:
    async def scenario(world: World) -> None:
        wire = await world.open()
        bug = ZeroDivisionError("bug")
        world.echo.refusal = bug
        for ask in (world.ping, world.open):
            with pytest.raises(ConnectionLostError, match="reset"):
                await ask()

        def crash(_served: EchoConnection, _calls: Sequence[Call]) -> None:
            raise bug

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(EchoConnection, "receive", crash)
            await wire.send([call(1)])
            assert await is_lost(wire)
        assert world.network.errors == [bug, bug, bug]
        world.network.errors.clear()

    simulate(scenario)
