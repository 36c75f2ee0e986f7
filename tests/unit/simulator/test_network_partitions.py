"""A host that is cut off receives nothing, in one direction or both."""

from __future__ import annotations

import asyncio
from functools import partial

import pytest

from bucketq.rpc.messages import Answer, Answers
from bucketq.rpc.transport import ConnectionLostError, NoBrokerThereError
from tests.unit.simulator.echo import (
    ADDRESS,
    PING,
    Echo,
    World,
    call,
    collect,
    is_lost,
    serve,
    simulate,
)

# Partitions.


async def reaches(world: World, source: str, address: str) -> bool:
    try:
        await world.network.host(source).ping(address, PING, 1.0)
    except NoBrokerThereError:
        raise
    except ConnectionLostError:
        return False
    return True


def test_a_partition_is_silent_until_it_heals() -> None:
    async def scenario(world: World) -> None:
        wire = await world.open()
        world.network.partition("client", "broker")
        for ask in (world.ping, world.open):
            with pytest.raises(ConnectionLostError, match="no answer") as caught:
                await ask()
            assert not isinstance(caught.value, NoBrokerThereError)
        with pytest.raises(ConnectionLostError, match="no answer"):  # not even a refusal
            await world.client.ping("broker:9", PING, 1.0)
        await wire.send([call(1)])
        assert not await is_lost(wire, 50.0)
        assert [entry[1] for entry in world.echo.log] == ["open"]
        assert await reaches(world, "third", ADDRESS)
        assert set(world.network.injected) == {"partition"}
        world.network.heal("broker", "client")
        await wire.send([call(2)])
        assert await collect(wire) == [2]

    simulate(scenario)


def test_a_one_way_partition_loses_calls_or_answers() -> None:
    async def scenario(world: World) -> None:
        wire = await world.open()
        world.network.partition("client", "broker", "out")
        await wire.send([call(1)])
        world.echo.sends[0](Answers([Answer(100)]))
        assert await collect(wire) == [100]
        assert world.echo.received() == []
        world.network.heal()
        world.network.partition("client", "broker", "in")
        await wire.send([call(2)])
        assert await collect(wire) == []
        assert world.echo.received() == [2]
        assert not await reaches(world, "client", ADDRESS)
        assert world.echo.log[-1][1] == "ping"  # it was asked, and its answer was lost

    simulate(scenario)


def test_a_packet_that_is_under_way_when_the_cut_comes_is_lost() -> None:
    async def scenario(world: World) -> None:
        wire = await world.open()
        await wire.send([call(1)])
        world.network.partition("broker")
        await asyncio.sleep(1)
        assert world.echo.received() == []
        assert world.network.injected == {"partition": 1}

    simulate(scenario)


def test_a_packet_that_is_sent_into_a_cut_is_lost_though_the_cut_heals_meanwhile() -> None:
    async def scenario(world: World) -> None:
        wire = await world.open()
        world.network.partition("client", "broker")
        await wire.send([call(1)])
        world.network.heal()
        await asyncio.sleep(1)
        assert world.echo.received() == []
        assert world.network.injected == {"partition": 1}

    simulate(scenario)


def test_a_host_cut_off_from_all_still_reaches_itself() -> None:
    async def scenario(world: World) -> None:
        serve(world.network, Echo(world.loop), "other")
        await asyncio.sleep(1)
        for way in ("both", "out", "in"):
            world.network.partition("broker", way=way)
            assert not await reaches(world, "client", ADDRESS)
            assert not await reaches(world, "broker", "other:4001")
            assert await reaches(world, "broker", ADDRESS)
            assert await reaches(world, "client", "other:4001")
            world.network.heal("broker")
            assert await reaches(world, "client", ADDRESS)

    simulate(scenario)


def test_healing_one_cut_leaves_the_others() -> None:
    async def scenario(world: World) -> None:
        world.network.partition("broker", "client")
        world.network.partition("broker", "third")
        world.network.heal("client", "broker")
        assert await reaches(world, "client", ADDRESS)
        assert not await reaches(world, "third", ADDRESS)
        world.network.partition("client")
        world.network.heal("broker")
        assert await reaches(world, "third", ADDRESS)
        assert not await reaches(world, "client", ADDRESS)

    simulate(scenario)


def test_a_death_is_not_noticed_across_a_partition() -> None:
    async def scenario(world: World, *, is_under_way: bool) -> None:
        wire = await world.open()
        if is_under_way:
            world.broker.kill()
        world.network.partition("broker", "client")
        world.broker.kill()
        await asyncio.sleep(1)
        world.network.heal()
        assert not await is_lost(wire, 50.0)
        await wire.send([call(1)])
        assert await is_lost(wire, 1.0)

    simulate(partial(scenario, is_under_way=False))
    simulate(partial(scenario, is_under_way=True))
