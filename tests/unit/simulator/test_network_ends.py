"""How connections over the simulated network end, and which ends are notified."""

from __future__ import annotations

import asyncio

import pytest

from bucketq.rpc.messages import Answer, Answers
from bucketq.rpc.transport import ConnectionLostError, NoBrokerThereError
from bucketq.testing.virtual_loop import VirtualLoop, run
from simulator.simulated_network import NetworkFaults, SimulatedNetwork
from tests.unit.simulator.echo import (
    ADDRESS,
    HELLO,
    PING,
    SEEDS,
    Echo,
    World,
    call,
    is_lost,
    simulate,
)

# Ends of connections.


def test_closing_a_connection_notifies_the_broker_and_wakes_waiters() -> None:
    async def scenario(world: World) -> None:
        wire = await world.open()
        waiting = asyncio.create_task(wire.receive())
        await asyncio.sleep(1)
        await wire.close()
        with pytest.raises(ConnectionLostError, match="was closed"):
            await waiting
        with pytest.raises(ConnectionLostError, match="was closed"):
            await wire.send([call(1)])
        await asyncio.sleep(1)
        assert world.echo.closed() == 1
        world.echo.sends[0](Answers([]))  # goes nowhere, and does no harm

    simulate(scenario)


def test_a_closed_connection_returns_no_answers_that_had_arrived() -> None:
    async def scenario(world: World) -> None:
        wire = await world.open()
        await wire.send([call(1)])
        await asyncio.sleep(1)
        await wire.close()
        with pytest.raises(ConnectionLostError, match="was closed"):
            await wire.receive()

    simulate(scenario)


def test_connections_that_are_over_are_forgotten() -> None:
    async def scenario(world: World) -> None:
        for _ in range(10):
            await world.ping()
            await (await world.open()).close()
        await asyncio.sleep(1)
        world.network.partition("client")
        for ask in (world.ping, world.open):
            with pytest.raises(ConnectionLostError):
                await ask()
        assert not any(world.network._ends.values())

    simulate(scenario)


def test_calls_sent_before_a_close_arrive_before_it() -> None:
    async def scenario(world: World) -> None:
        wire = await world.open()
        await wire.send([call(1)])
        await wire.close()
        await asyncio.sleep(1)
        assert [entry[1] for entry in world.echo.log] == ["open", "receive", "close"]

    for seed in SEEDS:
        simulate(scenario, seed=seed)


def test_the_other_side_notices_a_close_late_or_when_it_sends() -> None:
    async def scenario(world: World) -> list[int]:
        wire = await world.open()
        await wire.close()
        closed = []
        await asyncio.sleep(0.9)
        closed.append(world.echo.closed())
        await asyncio.sleep(20)
        closed.append(world.echo.closed())
        world.network.end_faults()
        world.echo.sends[0](Answers([]))
        await asyncio.sleep(1)
        closed.append(world.echo.closed())
        return closed

    for seed in SEEDS:
        assert simulate(scenario, NetworkFaults(noticed_late=1.0), seed) == [0, 1, 1]
        assert simulate(scenario, NetworkFaults(unnoticed=1.0), seed) == [0, 0, 1]


def test_a_closed_listener_refuses_at_once_and_ends_its_conversations() -> None:
    async def main(loop: VirtualLoop) -> None:
        network, echo = SimulatedNetwork(loop), Echo(loop)
        listener = await network.host("broker").listen(ADDRESS, echo)
        client = network.host("client")
        wire = await client.open(ADDRESS, HELLO, 5.0)
        await listener.close()
        await listener.close()
        with pytest.raises(NoBrokerThereError):
            await client.ping(ADDRESS, PING, 5.0)
        assert await is_lost(wire)
        assert echo.closed() == 1
        await network.host("broker").listen(ADDRESS, echo)
        await listener.close()  # it belongs to another process now
        await client.ping(ADDRESS, PING, 5.0)

    run(main)


def test_a_listener_that_closes_with_grace_lets_conversations_finish() -> None:
    async def main(loop: VirtualLoop) -> None:
        network, echo = SimulatedNetwork(loop), Echo(loop)
        listener = await network.host("broker").listen(ADDRESS, echo)
        client = network.host("client")
        wires = [await client.open(ADDRESS, HELLO, 5.0) for _ in range(2)]
        closing = asyncio.create_task(listener.close(grace_s=10.0))
        started_s = loop.time()
        await asyncio.sleep(1)
        with pytest.raises(NoBrokerThereError):
            await client.open(ADDRESS, HELLO, 5.0)
        await wires[0].send([call(1)])
        assert (await wires[0].receive()).answers == [Answer(1, value=1)]
        await wires[0].close()
        await asyncio.sleep(1)
        assert not closing.done()
        await closing
        assert loop.time() - started_s == 10
        assert await is_lost(wires[1])

        listener = await network.host("broker").listen(ADDRESS, echo)
        wire = await client.open(ADDRESS, HELLO, 5.0)
        loop.call_later(3.0, lambda: asyncio.ensure_future(wire.close()))
        started_s = loop.time()
        await listener.close(grace_s=10.0)
        assert 3 < loop.time() - started_s < 4

    run(main)


def test_a_client_that_gave_up_leaves_no_conversation_behind() -> None:
    async def scenario(world: World) -> None:
        world.network.partition("broker", way="out")
        with pytest.raises(ConnectionLostError, match="no answer"):
            await world.open(timeout_s=1.0)
        await asyncio.sleep(1)
        assert [entry[1] for entry in world.echo.log] == ["open", "close"]

    simulate(scenario)


def test_a_client_that_is_cancelled_leaves_no_conversation_behind() -> None:
    async def scenario(world: World) -> None:
        task = asyncio.create_task(world.open())
        while not world.echo.log:  # noqa: ASYNC110 - virtual
            await asyncio.sleep(0.0001)
        task.cancel()
        await asyncio.sleep(1)
        assert [entry[1] for entry in world.echo.log] == ["open", "close"]

    simulate(scenario)
