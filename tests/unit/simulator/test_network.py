"""The simulated network without faults: connections and what is sent over them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

import pytest

from bucketq.model.operations import Configure, Request
from bucketq.rpc.messages import Answer, Answers, Call, Hello, Welcome
from bucketq.rpc.transport import Connection, ServedConnection, Transport
from bucketq.testing.virtual_loop import VirtualLoop, run
from simulator.simulated_network import NetworkFaults, SimulatedNetwork
from tests.unit.simulator.echo import (
    ADDRESS,
    HELLO,
    PING,
    SEEDS,
    Echo,
    EchoConnection,
    World,
    call,
    collect,
    is_lost,
    serve,
    simulate,
)


def test_without_faults_it_is_a_transport() -> None:
    async def scenario(world: World) -> None:
        seam: Transport = world.client
        pong = await seam.ping(ADDRESS, PING, 5.0)
        assert pong.broker == "echo"
        wire: Connection = await seam.open(ADDRESS, HELLO, 5.0)
        assert wire.welcome == Welcome(incarnation="i", broker="echo", epoch=1, version=1)
        await wire.send([call(1), call(2)])
        await wire.send([call(3)])
        assert [a.tag for a in (await wire.receive()).answers] == [1, 2]
        assert [a.value for a in (await wire.receive()).answers] == [3]
        await wire.close()
        await wire.close()
        await asyncio.sleep(1)
        assert [entry[1:] for entry in world.echo.log] == [
            ("ping", "q"),
            ("open", "q"),
            ("receive", 1, 2),
            ("receive", 3),
            ("close",),
        ]
        assert world.network.injected == {}
        await seam.close()
        assert (await seam.ping(ADDRESS, PING, 5.0)).broker == "echo"

    simulate(scenario)


def test_closing_a_transport_ends_what_this_process_has_dialled_from_this_host() -> None:
    async def scenario(world: World) -> None:
        async def talk() -> bool:
            return await is_lost(await world.open(), 5.0)

        neighbour = world.loop.spawn("neighbour", talk)
        wires = [await world.open(), await world.network.host("third").open(ADDRESS, HELLO, 5.0)]
        listener = await world.client.listen("client:0", world.echo)
        await world.client.close()
        assert await is_lost(wires[0], 1.0)
        assert not await is_lost(wires[1], 1.0)
        assert not await neighbour.wait()
        assert listener.address in world.network.addresses()
        assert (await world.ping()).broker == "echo"

    simulate(scenario)


def test_a_service_runs_inside_the_process_that_listens() -> None:
    async def scenario(world: World) -> None:
        wire = await world.open()
        await wire.send([call(1)])
        await world.ping()
        await wire.close()
        await asyncio.sleep(1)
        assert {entry[0] for entry in world.echo.log} == {"broker"}
        assert len(world.echo.log) == 4

    simulate(scenario)


def test_without_faults_messages_arrive_in_order_both_ways() -> None:
    async def scenario(world: World) -> None:
        wire = await world.open()
        for tag in range(200):
            await wire.send([call(tag)])
        assert await collect(wire) == list(range(200))
        assert world.echo.received() == list(range(200))

    for seed in range(10):
        simulate(scenario, seed=seed)


def test_two_connections_do_not_wait_for_each_other() -> None:
    async def scenario(world: World) -> list[int]:
        wires = [await world.open(), await world.open()]
        for tag in range(30):
            await wires[tag % 2].send([call(tag)])
        await asyncio.sleep(1)
        return world.echo.received()

    orders = [simulate(scenario, seed=seed) for seed in SEEDS]
    assert all(sorted(order) == list(range(30)) for order in orders)
    assert any(order != list(range(30)) for order in orders)


def test_a_broker_may_answer_before_it_says_welcome() -> None:
    async def main(loop: VirtualLoop) -> None:
        class Hasty(Echo):
            def open(self, hello: Hello, send: Callable[[Answers], None]) -> ServedConnection:
                send(Answers([Answer(7)]))
                return super().open(hello, send)

        network = SimulatedNetwork(loop)
        serve(network, Hasty(loop))
        await asyncio.sleep(1)
        wire = await network.host("client").open(ADDRESS, HELLO, 5.0)
        assert (await wire.receive()).answers == [Answer(7)]

    run(main)


def test_the_two_sides_share_nothing_that_can_be_changed() -> None:
    async def scenario(world: World) -> None:
        seen: list[Call] = []
        wire = await world.open()
        changes = {"limits": {"a": [1]}}
        batch = [Call(1, Request(Configure(changes=changes)), 1.0)]
        answers = Answers([Answer(1, value={"list": [1]})])
        world.network.set_faults(NetworkFaults(doubled=1.0))

        class Keeper(EchoConnection):
            def receive(self, calls: Sequence[Call]) -> None:
                seen.extend(calls)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(EchoConnection, "receive", Keeper.receive)
            await wire.send(batch)
            batch.clear()
            changes["limits"]["a"].append(2)
            world.echo.sends[0](answers)
            answers.answers.append(Answer(2))
            answers.answers[0].value["list"].append(2)
            await asyncio.sleep(100)
        first, second = (each.request.operation for each in seen)  # type: ignore[union-attr]
        assert isinstance(first, Configure)
        assert isinstance(second, Configure)
        assert first.changes == second.changes == {"limits": {"a": [1]}}
        assert first.changes["limits"] is not second.changes["limits"]
        for _ in range(2):
            received = await wire.receive()
            assert received.answers == [Answer(1, value={"list": [1]})]
            received.answers.clear()

    simulate(scenario)


def test_a_cancelled_receive_loses_no_answer() -> None:
    async def scenario(world: World) -> None:
        wire = await world.open()
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(wire.receive(), 1.0)
        await wire.send([call(1)])
        assert await collect(wire) == [1]

    simulate(scenario)


def test_a_cancelled_send_has_left_or_not() -> None:
    async def scenario(world: World) -> bool:
        wire = await world.open()
        task = asyncio.create_task(wire.send([call(1)]))
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.sleep(1)
        return world.echo.received() == [1]

    assert {simulate(scenario, seed=seed) for seed in SEEDS} == {False, True}
