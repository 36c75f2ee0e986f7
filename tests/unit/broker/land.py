"""Hosts on a simulated network, with brokers and clients of one queue, on virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from bucketq.broker.broker import Broker
from bucketq.broker.server import Server
from bucketq.commit.objects.register import Register
from bucketq.model.records import BrokerRecord
from bucketq.rpc.messages import Ping, Pong
from bucketq.testing.simulated_process import Process
from bucketq.testing.virtual_loop import current_loop
from simulator.simulated_network import SimulatedNetwork
from tests.unit.commit.worlds import KEY, World


def now_s() -> float:
    return asyncio.get_running_loop().time()


async def until(is_so: Callable[[], bool], limit_s: float = 60.0) -> None:
    """Look twenty times a second until something is so."""
    async with asyncio.timeout(limit_s):
        while not is_so():  # noqa: ASYNC110 - it is looked at, not told
            await asyncio.sleep(0.05)


class Land(World):
    """A store that fails as it is told, and a network between hosts."""

    def __init__(self) -> None:
        super().__init__()
        self.network = SimulatedNetwork(current_loop(), latency_s=(0.001, 0.002))
        self.brokers: dict[str, Broker] = {}

    def broker(self, host: str, *, healthy: bool = False, **options: Any) -> Broker:
        """A broker that does not live yet; with a ``healthy`` one nothing is wrong in storage."""
        store = self.store.memory if healthy else self.store
        register = Register(store, KEY, "test://queue", self.clock)
        transport = self.network.host(host)
        broker = Broker(register, self.clock, transport, archive=None, **options)
        self.brokers[host] = broker
        return broker

    def server(self, host: str, **options: Any) -> Server:
        server = Server(self.network.host(host), self.clock, host)
        server.add("jobs", self.broker(host, **options))
        return server

    @asynccontextmanager
    async def serving(self, host: str, **options: Any) -> AsyncIterator[Broker]:
        """A broker that stands by or leads, in the process of the test."""
        server = self.server(host, **options)
        await server.start(f"{host}:0")
        try:
            yield self.brokers[host]
        finally:
            await server.stop()

    def spawn(self, host: str, **options: Any) -> Process:
        """A broker in a process of its own, which can be killed and frozen."""

        async def main() -> None:
            server = self.server(host, **options)
            await server.start(f"{host}:0")
            await server.until_over()

        return current_loop().spawn(host, main)

    async def until_led_by(self, host: str, limit_s: float = 60.0) -> float:
        """Wait until a host leads; returns how long that took."""
        began = now_s()
        await until(lambda: host in self.brokers and self.brokers[host].leader is not None, limit_s)
        return now_s() - began

    async def record(self) -> BrokerRecord:
        broker = (await self.state()).broker
        assert broker is not None
        return broker

    async def ping(self, host: str) -> Pong:
        address = next(a for a in self.network.addresses() if a.startswith(f"{host}:"))
        return await self.network.host("prober").ping(address, Ping(), 1.0)
