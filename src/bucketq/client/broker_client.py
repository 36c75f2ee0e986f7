"""Makes the committers of clients that use brokers, and decides which may start one.

On a store that only this host sees, a client starts a broker if there is none, on a loopback
address. On a store that other hosts share it does not: they could not reach it there, and a broker
that they could reach needs protection. Such a client writes directly until there is a broker.

gRPC is imported when the first broker is dialled, and a broker when this process starts one: a
command that writes directly would spend most of its time on importing them.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING

from bucketq.client.addresses import AddressFinder
from bucketq.client.connect_arguments import (
    BROKERS,
    ConnectArguments,
    Launch,
    archive_writer,
    direct_committer,
    own_register,
)
from bucketq.client.discovery import ObjectFinder
from bucketq.client.launcher import HostLock, InsideLauncher, Launcher, SpawnLauncher
from bucketq.client.remote_committer import RemoteCommitter
from bucketq.clock import Clock
from bucketq.commit.objects.heading_reader import HeadingReader
from bucketq.errors import InvalidRequestError
from bucketq.model.partitions import Partition
from bucketq.rpc.address import secured, split_address, this_host
from bucketq.rpc.credentials import Credentials
from bucketq.rpc.messages import Hello, Ping, Pong
from bucketq.rpc.transport import Connection, Listener, Service, Transport
from bucketq.store.url import Location

if TYPE_CHECKING:
    from bucketq.commit.direct_committer import DirectCommitter

_SCHEME, _SECURE_SCHEME = BROKERS
_INSIDE = "127.0.0.1:0"
"""Other processes of this host can reach a broker of this one, at any free port."""
_IDLE_EXIT_S = 60.0
"""How long a spawned broker without clients runs: scripts that are run one after the other share
it."""

GRPC_USERS: set[int] = set()
"""The process that uses gRPC, once it does. In one forked from it, no message would arrive; one
that is forked after gRPC was imported and before it is used is not affected."""


class TransportOnDemand:
    """A transport that is made when it is first used."""

    def __init__(self, make: Callable[[], Transport]) -> None:
        self._make = make
        self._made: Transport | None = None

    def _transport(self) -> Transport:
        if self._made is None:
            self._made = self._make()
        return self._made

    async def ping(self, address: str, ping: Ping, timeout_s: float) -> Pong:
        """Ask whether a broker of the queue listens at an address."""
        return await self._transport().ping(address, ping, timeout_s)

    async def open(self, address: str, hello: Hello, timeout_s: float) -> Connection:
        """Connect to a broker."""
        return await self._transport().open(address, hello, timeout_s)

    async def listen(self, address: str, service: Service) -> Listener:
        """Serve at an address; port 0 takes any that is free."""
        return await self._transport().listen(address, service)

    async def close(self) -> None:
        """Close every connection, if there ever was one."""
        if self._made is not None:
            await self._made.close()


def open_client(
    location: Location,
    arguments: ConnectArguments,
    clock: Clock,
    *,
    may_write: bool,
    reader: HeadingReader,
) -> RemoteCommitter:
    """Make the committer of a queue whose object this process can read, with ``reader``.

    Unless it ``may_write``, it neither writes directly nor starts a broker.
    """
    credentials = arguments.credentials
    transport = _grpc(credentials, clock)

    async def create() -> None:
        await own_register(location, clock).open(create=True)

    async def write_directly() -> DirectCommitter:
        direct = direct_committer(location, arguments, clock, own_register(location, clock))
        await direct.open()
        return direct

    starts = may_write and location.is_of_this_host
    finder = ObjectFinder(
        reader,
        transport,
        this_host(),
        create=create if arguments.create else None,
        client=arguments.worker,
        is_shared=location.scope == "shared",
        launcher=_launcher(location, clock, transport, arguments.launch) if starts else None,
        write_directly=write_directly if may_write else None,
        wants_tls=credentials.tls is not None,
    )
    return RemoteCommitter(finder, location.url, clock, timeout_s=arguments.timeout_s)


def open_remote(
    url: str, arguments: ConnectArguments, clock: Clock, partition: Partition | None = None
) -> RemoteCommitter:
    """Make a committer without access to the object: ``bucketq://host:port[,…]/queue``."""
    addresses, queue = parse_address(url)
    credentials = arguments.credentials
    is_secure = url.startswith(_SECURE_SCHEME) or credentials.tls is not None
    dialled = tuple(secured(address, tls=is_secure) for address in addresses)
    transport = _grpc(credentials, clock)
    where = url
    if partition is not None and partition.index:
        queue, where = f"{queue}/{partition.index}", f"{url} (partition {partition.index})"
    count = 0 if partition is None else partition.count
    finder = AddressFinder(dialled, queue, transport, arguments.worker, count)
    return RemoteCommitter(finder, where, clock, timeout_s=arguments.timeout_s)


def parse_address(url: str) -> tuple[tuple[str, ...], str]:
    """Split ``bucketq://host:port[,host:port]/queue``; with TLS it is ``bucketqs://``."""
    places, _, queue = url.removeprefix(_SECURE_SCHEME).removeprefix(_SCHEME).partition("/")
    if not places or "@" in places or "/" in queue or "?" in url or "#" in url:
        message = (
            "a bucketq:// address names brokers and a queue, and nothing else; write it like "
            "bucketq://broker1:7700,broker2:7700/jobs"
        )
        raise InvalidRequestError(message)
    addresses = tuple(places.split(","))
    for address in addresses:
        split_address(address)
    return addresses, queue


def _grpc(credentials: Credentials, clock: Clock) -> Transport:
    def make() -> Transport:
        from bucketq.rpc.grpc.grpc_client import GrpcTransport  # noqa: PLC0415 - see above

        GRPC_USERS.add(os.getpid())
        return GrpcTransport(credentials, clock=clock)

    return TransportOnDemand(make)


def _launcher(
    location: Location, clock: Clock, transport: Transport, launch: Launch
) -> Launcher | None:
    if launch == "never":
        return None
    if launch == "spawn":
        url = location.queue_url or location.url  # It serves all partitions.
        return SpawnLauncher(url, HostLock(url), _IDLE_EXIT_S)
    lock = HostLock(location.url)
    from bucketq.broker.broker import Broker  # noqa: PLC0415 - see above
    from bucketq.broker.server import Server  # noqa: PLC0415

    broker = Broker(
        own_register(location, clock),
        clock,
        transport,
        archive=archive_writer(location),
        is_shared=False,
    )
    server = Server(transport, clock, this_host())
    server.add("queue", broker)
    return InsideLauncher(server, broker, lock, _INSIDE)
