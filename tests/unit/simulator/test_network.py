"""The simulated network without faults: connections, addresses, errors of a service, replay."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from bucketq.errors import (
    BucketQError,
    InvalidRequestError,
    OverloadedError,
    QueueNotFoundError,
    SupersededError,
)
from bucketq.model.operations import Configure, Request
from bucketq.rpc.messages import Answer, Answers, Call, Hello, Ping, Welcome
from bucketq.rpc.transport import (
    Connection,
    ConnectionLostError,
    Listener,
    NoBrokerThereError,
    ServedConnection,
    Transport,
)
from bucketq.testing.virtual_loop import VirtualLoop, run
from simulator.simulated_network import (
    MESSAGE_FAULTS,
    NOTICE_FAULTS,
    NetworkFaults,
    SimulatedNetwork,
)
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

# Without faults.


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


# Addresses.


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
            with pytest.raises(InvalidRequestError, match="no address of broker"):
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
        # Whoever asks for it by number may have it.
        serve(world.network, Echo(world.loop, "other"), port=4001)
        await asyncio.sleep(1)
        assert (await world.ping()).broker == "other"

    simulate(scenario)


def test_an_address_may_be_reused_by_something_that_is_not_a_broker() -> None:
    async def scenario(world: World) -> None:
        world.broker.kill()
        world.network.squat(ADDRESS)
        for ask in (world.ping, world.open):
            with pytest.raises(NoBrokerThereError, match="no broker"):
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


def test_any_other_refusal_is_a_lost_link() -> None:
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


# The whole.


async def _storm(world: World) -> dict[str, int]:
    """Talk through a bad day, in which brokers die and come back."""
    network, loop = world.network, world.loop

    async def talk() -> None:
        client = network.host(loop.current_process().name)
        while True:
            try:
                address = (network.addresses() or [ADDRESS])[0]
                await client.ping(address, PING, 2.0)
                wire = await client.open(address, HELLO, 2.0)
                for tag in range(20):
                    await wire.send([call(tag)])
                    await asyncio.wait_for(wire.receive(), 2.0)
                await wire.close()
            except (ConnectionLostError, TimeoutError):
                await asyncio.sleep(0.1)

    clients = [loop.spawn(f"client{number}", talk) for number in range(3)]
    broker = world.broker
    for round_ in range(60):
        await asyncio.sleep(5)
        if round_ % 3 == 0:
            broker.kill()
            broker = serve(network, world.echo)
        elif round_ % 3 == 1:
            broker.freeze(for_s=1.0)
            network.partition("broker", "client1", "in")
        else:
            network.heal()
    for client in clients:
        client.kill()
    return network.injected


def test_the_harsh_preset_injects_every_fault_and_calm_ends_them() -> None:
    async def scenario(world: World) -> None:
        await _storm(world)
        names = (*MESSAGE_FAULTS, *NOTICE_FAULTS, "power_cut", "lost_with_sender", "reused_port")
        assert set(world.network.injected) == {*names, "partition"}
        world.network.partition("client")
        world.network.end_faults()
        (address,) = world.network.addresses()
        await asyncio.sleep(20)
        before = sum(world.network.injected.values())
        received = len(world.echo.received())
        wire = await world.client.open(address, HELLO, 1.0)
        for tag in range(300):
            await wire.send([call(tag)])
        assert await collect(wire) == list(range(300))
        assert world.echo.received()[received:] == list(range(300))
        assert sum(world.network.injected.values()) == before

    simulate(scenario, NetworkFaults.harsh())


def test_calm_ends_power_cuts() -> None:
    async def scenario(world: World) -> None:
        world.broker.kill()
        with pytest.raises(ConnectionLostError, match="no answer"):
            await world.ping()
        world.network.end_faults()
        with pytest.raises(NoBrokerThereError):
            await world.ping()

    simulate(scenario, NetworkFaults(power_cut=1.0, power_cut_s=(100.0, 100.0)))


_REPLAY = """
import sys
from simulator.simulated_network import NetworkFaults
from tests.unit.simulator import test_network as t

async def scenario(world):
    garbage = [object() for _ in range(int(sys.argv[1]))]  # moves what is allocated next
    injected = await t._storm(world)
    return world.echo.log, injected, world.loop.fingerprint, world.loop.steps

print(t.simulate(scenario, NetworkFaults.harsh(), int(sys.argv[2])))
"""


def _replay(hash_seed: int, garbage: int, seed: int) -> bytes:
    environment = os.environ | {
        "PYTHONHASHSEED": str(hash_seed),
        "PYTHONPATH": os.pathsep.join(sys.path),
    }
    command = [sys.executable, "-c", _REPLAY, str(garbage), str(seed)]
    done = subprocess.run(command, env=environment, capture_output=True, check=True)
    assert done.stderr == b""
    assert len(done.stdout) > 10_000
    return done.stdout


def test_a_seed_replays_to_the_letter_under_any_hash_seed_and_memory_layout() -> None:
    first = _replay(1, 0, seed=5)
    assert _replay(2, 777, seed=5) == first
    assert _replay(1, 0, seed=6) != first


def test_the_dead_send_nothing_when_they_are_unwound() -> None:
    kept: list[SimulatedNetwork] = []

    async def scenario(world: World) -> None:
        kept.append(world.network)

        async def talk() -> None:
            wire = await world.open()
            try:
                await wire.receive()
            finally:
                await wire.close()
                await world.ping()

        client = world.loop.spawn("client", talk)
        await asyncio.sleep(1)
        client.kill()
        await asyncio.sleep(1)

    simulate(scenario)
    VirtualLoop().close()  # the next loop buries the dead of the last
    assert kept[0].injected == {}
    assert kept[0].errors == []


def test_rates_must_be_probabilities() -> None:
    with pytest.raises(ValueError, match="rates of lost"):
        NetworkFaults(lost=-0.1)
    with pytest.raises(ValueError, match="rates of lost"):
        replace(NetworkFaults.harsh(), broken=0.95)
    with pytest.raises(ValueError, match="rates of unnoticed"):
        NetworkFaults(unnoticed=0.6, noticed_late=0.6)
    with pytest.raises(ValueError, match="rates of power_cut"):
        NetworkFaults(power_cut=1.1)
    assert not issubclass(ConnectionLostError, BucketQError)
