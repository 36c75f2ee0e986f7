"""Clients of the brokers in a land: some may write directly, some know addresses alone."""

from __future__ import annotations

from typing import Any

from bucketq.client.client import Client
from bucketq.client.discovery import AddressFinder, ObjectFinder
from bucketq.client.launcher import Launcher
from bucketq.client.routes import DirectRoute
from bucketq.commit.register import Register
from bucketq.queue.direct import DirectQueue
from tests.unit.broker.land import Land
from tests.unit.commit.worlds import KEY


class Realm(Land):
    """A land with clients."""

    def finder(
        self,
        host: str = "client",
        *,
        create: bool = True,
        may_write: bool = False,
        launcher: Launcher | None = None,
    ) -> ObjectFinder:
        register = Register(self.store.memory, KEY, "test://queue", self.clock)

        async def write_directly() -> DirectRoute:
            own = Register(self.store.memory, KEY, "test://queue", self.clock)
            return DirectRoute(await DirectQueue[Any](own, self.clock).__aenter__())

        return ObjectFinder(
            register,
            self.network.host(host),
            host,
            create=create,
            client=host,
            launcher=launcher,
            write_directly=write_directly if may_write else None,
        )

    def client(self, host: str = "client", timeout_s: float = 60.0, **options: Any) -> Client[Any]:
        finder = self.finder(host, **options)
        return Client(finder, "test://queue", self.clock, worker=host, timeout_s=timeout_s)

    def remote(self, *addresses: str, queue: str = "jobs", timeout_s: float = 60.0) -> Client[Any]:
        finder = AddressFinder(addresses, queue, self.network.host("client"), "client")
        where = f"bucketq://{','.join(addresses)}/{queue}"
        return Client(finder, where, self.clock, timeout_s=timeout_s)
