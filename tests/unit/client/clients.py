"""Clients of the brokers in a land: some may write directly, some know addresses alone.

``FakeWay`` is a committer for clients without a land.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from bucketq.client.addresses import AddressFinder
from bucketq.client.discovery import Finder, ObjectFinder
from bucketq.client.launcher import Launcher
from bucketq.client.remote_committer import RemoteCommitter
from bucketq.commit.base import Committer, CommitterLostError
from bucketq.commit.direct_committer import DirectCommitter
from bucketq.commit.objects.register import Register
from bucketq.model.operations import Request
from bucketq.queue.queue import Queue
from bucketq.testing.simulated_clock import SimulatedClock
from tests.unit.broker.land import Land
from tests.unit.commit.worlds import KEY


def client_over(
    finder: Finder,
    clock: SimulatedClock,
    *,
    where: str = "test://queue",
    worker: str = "worker",
    timeout_s: float = 60.0,
) -> Queue[Any]:
    """A client that looks for its broker with a finder."""
    remote = RemoteCommitter(finder, where, clock, timeout_s=timeout_s)
    return Queue(remote, clock, worker=worker, timeout_s=timeout_s)


def remote_of(queue: Queue[Any]) -> RemoteCommitter:
    committer = queue._committer
    assert isinstance(committer, RemoteCommitter)
    return committer


def committer_of(queue: Queue[Any]) -> Committer | None:
    """What a client has found."""
    return remote_of(queue)._committer


class FakeWay:
    """A committer that keeps the requests it is sent."""

    joins = False

    def __init__(self, sent: list[Request], version: int, *, loses: bool) -> None:
        self.version = version
        self.is_open = True
        self._sent = sent
        self._loses = loses

    async def submit(self, request: Request, _: float) -> Any:
        self._sent.append(request)
        if self._loses:
            self.is_open = False
            raise CommitterLostError("reset")
        return ("job",)

    async def close(self) -> None:
        return


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

        async def write_directly() -> DirectCommitter:
            own = Register(self.store.memory, KEY, "test://queue", self.clock)
            direct = DirectCommitter(own, self.clock)
            await direct.open()
            return direct

        return ObjectFinder(
            register.heading,
            self.network.host(host),
            host,
            create=partial(register.open, create=True) if create else None,
            client=host,
            launcher=launcher,
            write_directly=write_directly if may_write else None,
        )

    def client(self, host: str = "client", timeout_s: float = 60.0, **options: Any) -> Queue[Any]:
        finder = self.finder(host, **options)
        return client_over(finder, self.clock, worker=host, timeout_s=timeout_s)

    def remote(self, *addresses: str, queue: str = "jobs", timeout_s: float = 60.0) -> Queue[Any]:
        finder = AddressFinder(addresses, queue, self.network.host("client"), "client")
        where = f"bucketq://{','.join(addresses)}/{queue}"
        return client_over(finder, self.clock, where=where, timeout_s=timeout_s)
