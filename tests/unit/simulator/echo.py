"""A service that echoes, and worlds in which it is reached over the simulated network."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from bucketq.model.operations import ReadStats, Request
from bucketq.rpc.messages import Answer, Answers, Call, Hello, Ping, Pong, Welcome
from bucketq.rpc.transport import (
    Connection,
    ConnectionLostError,
    ServedConnection,
    Service,
)
from bucketq.testing.simulated_process import Process
from bucketq.testing.virtual_loop import VirtualLoop, run
from simulator.simulated_network import (
    NetworkFaults,
    SimulatedNetwork,
)
from simulator.simulated_transport import SimulatedTransport

T = TypeVar("T")

SEEDS = range(40)
ADDRESS = "broker:4001"
HELLO = Hello(queue="q")
PING = Ping(queue="q")


@dataclass
class Echo:
    """A service that answers each call with its own tag, and records what it was sent."""

    loop: VirtualLoop
    name: str = "echo"
    refusal: Exception | None = None
    log: list[tuple[Any, ...]] = field(default_factory=list)
    sends: list[Callable[[Answers], None]] = field(default_factory=list)

    def trusts(self, token: str) -> bool:
        del token
        return True

    def ping(self, ping: Ping) -> Pong:
        self.note("ping", ping.queue)
        if self.refusal is not None:
            raise self.refusal
        return Pong(incarnation="i", broker=self.name, role="leading", epoch=1)

    def open(self, hello: Hello, send: Callable[[Answers], None]) -> ServedConnection:
        self.note("open", hello.queue)
        if self.refusal is not None:
            raise self.refusal
        self.sends.append(send)
        return EchoConnection(self, send)

    def note(self, *what: Any) -> None:
        self.log.append((self.loop.current_process().name, *what))

    def received(self) -> list[int]:
        """The tags of all calls, in the order of their arrival."""
        return [tag for _, what, *tags in self.log if what == "receive" for tag in tags]

    def closed(self) -> int:
        return sum(entry[1] == "close" for entry in self.log)


@dataclass
class EchoConnection:
    service: Echo
    send: Callable[[Answers], None]

    @property
    def welcome(self) -> Welcome:
        return Welcome(incarnation="i", broker=self.service.name, epoch=1, version=1)

    @property
    def is_admitted(self) -> bool:
        return True

    def show(self, token: str) -> None:
        self.service.note("show", token)

    def receive(self, calls: Sequence[Call]) -> None:
        self.service.note("receive", *(call.tag for call in calls))
        self.send(Answers([Answer(call.tag, value=call.tag) for call in calls]))

    def close(self) -> None:
        self.service.note("close")


def call(tag: int) -> Call:
    return Call(tag, Request(ReadStats()), 10.0)


@dataclass
class World:
    """A broker in a process of its own, on a host of its own, and a client in the driver."""

    loop: VirtualLoop
    network: SimulatedNetwork
    echo: Echo
    broker: Process
    client: SimulatedTransport

    async def open(self, timeout_s: float = 5.0) -> Connection:
        return await self.client.open(ADDRESS, HELLO, timeout_s)

    async def ping(self, timeout_s: float = 5.0) -> Pong:
        return await self.client.ping(ADDRESS, PING, timeout_s)


def serve(
    network: SimulatedNetwork, service: Service, host: str = "broker", port: int = 0
) -> Process:
    """Spawn a process that serves until it is killed."""

    async def main() -> None:
        await network.host(host).listen(f"{host}:{port}", service)
        await asyncio.Event().wait()

    return network.loop.spawn(host, main)


def simulate(
    scenario: Callable[[World], Coroutine[Any, Any, T]],
    faults: NetworkFaults | None = None,
    seed: int = 0,
) -> T:
    """Run a scenario while a broker listens at ``ADDRESS``; ``faults`` begin once it does."""

    async def main(loop: VirtualLoop) -> T:
        network = SimulatedNetwork(loop)
        echo = Echo(loop)
        broker = serve(network, echo)
        await asyncio.sleep(1)
        network.set_faults(faults or NetworkFaults.none())
        result = await scenario(World(loop, network, echo, broker, network.host("client")))
        assert network.errors == []
        return result

    return run(main, seed=seed)


async def collect(wire: Connection, for_s: float = 100.0) -> list[int]:
    """Receive whatever comes within a time, and return the tags."""
    tags: list[int] = []
    try:
        async with asyncio.timeout(for_s):
            while True:
                tags += [answer.tag for answer in (await wire.receive()).answers]
    except (TimeoutError, ConnectionLostError):
        return tags


async def is_lost(wire: Connection, within_s: float = 100.0) -> bool:
    """Whether a client notices that its connection is over, without sending anything."""
    try:
        async with asyncio.timeout(within_s):
            while True:
                await wire.receive()
    except TimeoutError:
        return False
    except ConnectionLostError:
        return True
