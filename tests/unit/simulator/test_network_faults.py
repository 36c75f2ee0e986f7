"""Each fault of a message does what its name says."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from bucketq.rpc.messages import Answers
from bucketq.rpc.transport import ConnectionLostError, NoBrokerThereError
from simulator.simulated_network import NetworkFaults
from tests.unit.simulator.echo import SEEDS, World, call, collect, is_lost, simulate

# Faults of messages.


def exchange(faults: NetworkFaults, seed: int, count: int = 20) -> tuple[list[int], list[int]]:
    """Send calls, one every 10 ms, and return what the broker saw and what came back."""

    async def scenario(world: World) -> tuple[list[int], list[int]]:
        wire = await world.open()
        world.network.set_faults(faults)
        try:
            for tag in range(count):
                await wire.send([call(tag)])
                await asyncio.sleep(0.01)
        except ConnectionLostError:
            pass
        answers = await collect(wire)
        return world.echo.received(), answers

    return simulate(scenario, None, seed)


def test_a_lost_message_never_arrives_and_is_not_reported() -> None:
    assert exchange(NetworkFaults(lost=1.0), 0) == ([], [])
    seen = [exchange(NetworkFaults(lost=0.3), seed) for seed in SEEDS]
    for received, answered in seen:
        assert received == sorted(set(received))
        assert answered == sorted(set(answered))
        assert set(answered) <= set(received)
    assert any(len(answered) < len(received) < 20 for received, answered in seen)
    assert all(answered for _, answered in seen)


def test_a_doubled_message_arrives_twice() -> None:
    for seed in SEEDS:
        received, answered = exchange(NetworkFaults(doubled=1.0), seed)
        assert sorted(received) == sorted([*range(20)] * 2)
        assert sorted(answered) == sorted([*range(20)] * 4)


def test_a_doubled_hello_is_one_conversation() -> None:
    async def scenario(world: World) -> None:
        await world.open()
        await world.ping()
        await asyncio.sleep(100)
        assert [entry[1] for entry in world.echo.log] == ["open", "ping"]

    simulate(scenario, NetworkFaults(doubled=1.0))


def test_a_reordered_message_is_overtaken() -> None:
    for seed in SEEDS:
        received, answered = exchange(NetworkFaults(reordered=0.5), seed)
        assert sorted(received) == sorted(answered) == list(range(20))
        assert received != sorted(received)
        assert answered != received


def test_a_late_message_is_overtaken_and_takes_seconds() -> None:
    async def scenario(world: World) -> None:
        wire = await world.open()
        started_s = world.loop.time()
        world.network.set_faults(NetworkFaults(late=1.0, late_s=(4.0, 5.0)))
        await wire.send([call(1)])
        world.network.set_faults(NetworkFaults.none())
        await wire.send([call(2)])
        assert (await wire.receive()).answers[0].tag == 2
        assert world.loop.time() - started_s < 0.1
        assert (await wire.receive()).answers[0].tag == 1
        assert 4 < world.loop.time() - started_s < 5.1

    for seed in SEEDS:
        simulate(scenario, seed=seed)


def test_a_stalled_message_holds_up_those_behind_it() -> None:
    async def scenario(world: World) -> None:
        wire = await world.open()
        started_s = world.loop.time()
        world.network.set_faults(NetworkFaults(stalled=1.0, late_s=(4.0, 5.0)))
        await wire.send([call(1)])
        world.network.set_faults(NetworkFaults.none())
        await wire.send([call(2)])
        assert (await wire.receive()).answers[0].tag == 1
        assert 4 < world.loop.time() - started_s < 5.1
        assert await collect(wire) == [2]

    for seed in SEEDS:
        simulate(scenario, seed=seed)


def test_a_late_pong_is_ignored() -> None:
    async def scenario(world: World) -> None:
        with pytest.raises(ConnectionLostError, match=r"no answer from broker:4001 within 0\.5 s"):
            await world.ping(0.5)
        with pytest.raises(ConnectionLostError, match="no answer"):
            await world.open(0.5)
        world.network.end_faults()
        await asyncio.sleep(100)
        await world.ping()
        assert world.echo.closed() == 1

    for seed in SEEDS:
        simulate(scenario, NetworkFaults(late=1.0), seed)


def breaks(faults: NetworkFaults, seed: int) -> tuple[bool, bool, bool]:
    """Break a connection under a call: did it arrive, and which end has learnt of it?"""

    async def scenario(world: World) -> tuple[bool, bool, bool]:
        wire = await world.open()
        world.network.set_faults(faults)
        await wire.send([call(1)])
        world.network.set_faults(replace(faults, broken=0.0))
        client_knows = await is_lost(wire, 0.5)
        await asyncio.sleep(0.1)
        return world.echo.received() == [1], client_knows, world.echo.closed() == 1

    return simulate(scenario, None, seed)


def test_a_broken_connection_is_known_to_both_ends_and_the_message_arrived_or_not() -> None:
    seen = [breaks(NetworkFaults(broken=1.0), seed) for seed in SEEDS]
    assert {arrived for arrived, *_ in seen} == {False, True}
    assert {(client, broker) for _, client, broker in seen} == {(True, True)}


def test_a_broken_connection_may_be_known_to_one_end_only() -> None:
    for faults in (
        NetworkFaults(broken=1.0, unnoticed=1.0),
        NetworkFaults(broken=1.0, noticed_late=1.0),
    ):
        seen = [breaks(faults, seed) for seed in SEEDS]
        assert {(client, broker) for _, client, broker in seen} == {(True, False), (False, True)}


def test_an_end_that_was_not_notified_notices_when_it_sends() -> None:
    async def scenario(world: World) -> str:
        wire = await world.open()
        world.network.set_faults(NetworkFaults(broken=1.0, unnoticed=1.0))
        await wire.send([call(1)])
        world.network.set_faults(NetworkFaults(unnoticed=1.0))
        await asyncio.sleep(100)
        world.network.end_faults()
        if world.echo.closed():
            await wire.send([call(2)])
            assert await is_lost(wire, 1.0)
            assert 2 not in world.echo.received()
            return "client"
        world.echo.sends[0](Answers([]))
        await asyncio.sleep(1)
        assert world.echo.closed() == 1
        return "broker"

    assert {simulate(scenario, seed=seed) for seed in SEEDS} == {"client", "broker"}


def test_a_connection_that_breaks_at_the_beginning_is_lost() -> None:
    async def scenario(world: World) -> None:
        for ask in (world.ping, world.open):
            started_s = world.loop.time()
            with pytest.raises(ConnectionLostError, match="reset") as caught:
                await ask()
            assert not isinstance(caught.value, NoBrokerThereError)
            assert world.loop.time() - started_s < 0.1

    for seed in SEEDS:
        simulate(scenario, NetworkFaults(broken=1.0), seed)
