"""What the death or the freezing of a process does to its connections."""

from __future__ import annotations

import asyncio

import pytest

from bucketq.rpc.messages import Answers
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
    collect,
    is_lost,
    simulate,
)

# Processes.


def test_a_dead_process_is_refused_and_its_conversations_are_reset() -> None:
    async def scenario(world: World) -> None:
        wire = await world.open()
        await wire.send([call(1)])
        await asyncio.sleep(1)
        world.broker.kill()
        assert world.network.addresses() == []
        assert await collect(wire) == [1]  # what had arrived is not taken away
        assert await is_lost(wire)
        for ask in (world.ping, world.open):
            with pytest.raises(NoBrokerThereError):
                await ask()
        assert world.echo.closed() == 0  # the dead do nothing

    simulate(scenario)


def test_a_process_that_returns_is_gone_as_well() -> None:
    async def main(loop: VirtualLoop) -> None:
        network, echo = SimulatedNetwork(loop, NetworkFaults(power_cut=1.0)), Echo(loop)

        async def serve_for_a_while() -> None:
            await network.host("broker").listen(ADDRESS, echo)
            await asyncio.sleep(5)

        process = loop.spawn("broker", serve_for_a_while)
        await asyncio.sleep(1)
        wire = await network.host("client").open(ADDRESS, HELLO, 5.0)
        await process.wait()
        assert await is_lost(wire)
        with pytest.raises(NoBrokerThereError):
            await network.host("client").ping(ADDRESS, PING, 5.0)
        assert network.injected == {}

    run(main)


def test_the_broker_notices_that_a_client_died() -> None:
    async def scenario(world: World) -> None:
        async def talk() -> None:
            wire = await world.open()
            await wire.receive()

        client = world.loop.spawn("client", talk)
        await asyncio.sleep(1)
        client.kill()
        await asyncio.sleep(1)
        assert [entry[:2] for entry in world.echo.log] == [("broker", "open"), ("broker", "close")]

    simulate(scenario)


def test_after_a_power_cut_no_peer_is_notified_and_the_address_is_silent() -> None:
    async def scenario(world: World) -> None:
        wire = await world.open()
        world.broker.kill()
        assert not await is_lost(wire, 20.0)
        for ask in (world.ping, world.open):
            with pytest.raises(ConnectionLostError, match="no answer"):
                await ask()
        await wire.send([call(1)])
        assert not await is_lost(wire, 5.0)
        await asyncio.sleep(25)  # the power is back
        with pytest.raises(NoBrokerThereError):
            await world.ping()
        assert not await is_lost(wire, 5.0)
        await wire.send([call(2)])
        assert await is_lost(wire, 5.0)
        assert world.network.injected == {"power_cut": 1}
        assert world.echo.received() == []

    simulate(scenario, NetworkFaults(power_cut=1.0, power_cut_s=(50.0, 55.0)))


def test_a_broker_does_not_notice_the_power_cut_of_a_client() -> None:
    async def scenario(world: World) -> None:
        async def talk() -> None:
            wire = await world.open()
            await wire.receive()

        client = world.loop.spawn("client", talk)
        await asyncio.sleep(1)
        client.kill()
        await asyncio.sleep(100)
        assert world.echo.closed() == 0
        world.echo.sends[0](Answers([]))
        await asyncio.sleep(1)
        assert world.echo.closed() == 1

    simulate(scenario, NetworkFaults(power_cut=1.0))


def test_a_packet_outlives_its_sender() -> None:
    async def scenario(world: World) -> tuple[bool, dict[str, int]]:
        async def talk() -> None:
            wire = await world.open()
            await wire.send([call(1)])
            world.loop.current_process().kill()

        client = world.loop.spawn("client", talk)
        await client.wait()
        assert world.echo.received() == []
        await asyncio.sleep(1)
        return world.echo.received() == [1], world.network.injected

    for seed in SEEDS:
        assert simulate(scenario, seed=seed) == (True, {})
        assert simulate(scenario, NetworkFaults(lost_with_sender=1.0), seed) == (
            False,
            {"lost_with_sender": 1},
        )


def test_what_a_process_sent_before_it_returned_has_left() -> None:
    async def scenario(world: World) -> None:
        async def talk() -> None:
            wire = await world.open()
            await wire.send([call(1)])

        await world.loop.spawn("client", talk).wait()
        await asyncio.sleep(1)
        assert world.echo.received() == [1]

    simulate(scenario, NetworkFaults(lost_with_sender=1.0))


def test_a_dead_process_dials_nothing() -> None:
    async def scenario(world: World) -> None:
        async def talk() -> None:
            world.loop.current_process().kill()  # it runs on to its next await
            await world.ping()

        world.loop.spawn("client", talk)
        await asyncio.sleep(10)
        assert world.echo.log == []

    simulate(scenario)


def test_an_answer_outlives_the_broker_and_the_reset_comes_behind_it() -> None:
    async def scenario(world: World) -> None:
        wire = await world.open()
        await wire.send([call(1)])
        while not world.echo.received():  # noqa: ASYNC110 - virtual
            await asyncio.sleep(0.0001)
        world.broker.kill()
        assert await collect(wire) == [1]
        assert await is_lost(wire)

    for seed in SEEDS:
        simulate(scenario, seed=seed)


def test_nothing_is_delivered_to_a_dead_process() -> None:
    async def scenario(world: World) -> None:
        woken: list[object] = []

        async def talk() -> None:
            wire = await world.open()
            await wire.send([call(1)])
            try:
                woken.append(await wire.receive())
            finally:
                woken.append("finally")

        wire = await world.open()
        client = world.loop.spawn("client", talk)
        while not world.echo.received():  # noqa: ASYNC110 - virtual
            await asyncio.sleep(0.0001)
        client.kill()
        await wire.send([call(2)])
        world.broker.kill()
        await asyncio.sleep(100)
        assert woken == []
        assert world.echo.received() == [1]

    for seed in SEEDS:
        simulate(scenario, seed=seed)


def test_a_kill_can_strike_between_any_two_packets() -> None:
    async def scenario(world: World) -> int:
        wire = await world.open()
        steps = world.broker.steps
        world.broker.kill_after(world.loop.stream("kill").randint(1, 10))
        for tag in range(10):
            await wire.send([call(tag)])
        await is_lost(wire)
        received = world.echo.received()
        assert received == list(range(world.broker.steps - steps))
        return len(received)

    assert {simulate(scenario, seed=seed) for seed in range(100)} == set(range(1, 11))


def test_a_frozen_process_keeps_its_port_and_does_not_answer() -> None:
    async def scenario(world: World) -> None:
        wire = await world.open()
        world.broker.freeze()
        for ask in (world.ping, world.open):
            started_s = world.loop.time()
            with pytest.raises(ConnectionLostError, match="no answer") as caught:
                await ask()
            assert not isinstance(caught.value, NoBrokerThereError)
            assert world.loop.time() - started_s == 5
        await asyncio.sleep(1)
        for tag in range(5):
            await wire.send([call(tag)])
        assert not await is_lost(wire, 50.0)
        assert world.network.addresses() == [ADDRESS]
        assert len(world.echo.log) == 1
        world.broker.thaw()
        assert await collect(wire) == [0, 1, 2, 3, 4]
        # It finds all that came, in order: also the client that has given up since.
        assert [entry[1:] for entry in world.echo.log[1:]] == [
            ("ping", "q"),
            ("open", "q"),
            ("close",),
            *(("receive", tag) for tag in range(5)),
        ]
        await world.ping()

    simulate(scenario)


def test_a_frozen_client_finds_its_answers_after_the_thaw() -> None:
    async def scenario(world: World) -> None:
        async def talk() -> tuple[list[int], float]:
            wire = await world.open()
            for tag in range(5):
                await wire.send([call(tag)])
            world.loop.current_process().freeze(for_s=60.0)
            answers = [answer.tag for _ in range(5) for answer in (await wire.receive()).answers]
            return answers, world.loop.time()

        started_s = world.loop.time()
        answers, ended_s = await world.loop.spawn("client", talk).wait()
        assert answers == [0, 1, 2, 3, 4]
        assert ended_s - started_s > 60

    simulate(scenario)


def test_a_frozen_process_that_is_killed_never_sees_what_was_queued() -> None:
    async def scenario(world: World) -> None:
        wire = await world.open()
        world.broker.freeze()
        await wire.send([call(1)])
        await asyncio.sleep(1)
        world.broker.kill()
        assert await is_lost(wire)
        assert world.echo.received() == []

    simulate(scenario)
