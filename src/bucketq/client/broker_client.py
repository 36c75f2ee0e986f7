"""From an address to a client of a broker: who may start one, and who has to do without.

On a store that only this host sees, a client starts a broker where there is none, and binds it to
the loopback. On a store that other hosts share it does not, for others could not reach it there,
and a broker that they could reach needs protection; it writes directly until a broker is there.
"""

from __future__ import annotations

import os
from typing import Literal

from bucketq.archive import ArchiveWriter, Layout
from bucketq.broker.broker import Broker
from bucketq.broker.server import Server
from bucketq.client.addresses import AddressFinder
from bucketq.client.discovery import ObjectFinder
from bucketq.client.launcher import HostLock, InsideLauncher, Launcher, SpawnLauncher
from bucketq.client.remote import RemoteCommitter
from bucketq.clock import Clock
from bucketq.commit.direct import DirectCommitter
from bucketq.commit.register import Register
from bucketq.errors import InvalidRequestError
from bucketq.rpc.address import secured, split_address, this_host
from bucketq.rpc.credentials import Credentials
from bucketq.rpc.grpc.grpc_client import GrpcTransport
from bucketq.rpc.transport import Transport
from bucketq.store.url import Location

Launch = Literal["inside", "spawn", "never"]

SCHEME = "bucketq://"
SECURE_SCHEME = "bucketqs://"
_INSIDE = "127.0.0.1:0"
_IDLE_EXIT_S = 60.0

PROCESS = os.getpid()
"""The process that gRPC belongs to: in one that is forked from it, nothing would ever arrive."""


def open_client(
    location: Location,
    clock: Clock,
    *,
    may_write: bool,
    launch: Launch,
    create: bool,
    credentials: Credentials,
    timeout_s: float,
    worker: str,
) -> RemoteCommitter:
    """Make the committer of a queue whose object this process can read.

    Args:
        location: The store and the key of the queue's object.
        clock: Time and entropy.
        may_write: Whether it may do without a broker, or start one.
        launch: How a broker is started, where one may be.
        create: Whether to create the queue where there is none.
        credentials: What is shown to brokers, and demanded of them.
        timeout_s: How long an operation is tried before its outcome is called unknown.
        worker: The name under which jobs are claimed.
    """
    transport = GrpcTransport(credentials, clock=clock)
    register = Register(location.store, location.key, location.url, clock)
    starts = may_write and location.is_of_this_host

    async def write_directly() -> DirectCommitter:
        direct = DirectCommitter(
            Register(location.store, location.key, location.url, clock),
            clock,
            timeout_s=timeout_s,
            create=create,
            archive=ArchiveWriter(location.store, Layout.of(location.store.url, location.key)),
        )
        await direct.open()
        return direct

    launcher = _launcher(location, clock, transport, launch) if starts else None
    finder = ObjectFinder(
        register,
        transport,
        this_host(),
        create=create,
        client=worker,
        is_shared=location.scope == "shared",
        launcher=launcher,
        write_directly=write_directly if may_write else None,
        wants_tls=credentials.tls is not None,
    )
    return RemoteCommitter(finder, location.url, clock, timeout_s=timeout_s)


def open_remote(
    url: str,
    clock: Clock,
    *,
    credentials: Credentials,
    timeout_s: float,
    worker: str,
) -> RemoteCommitter:
    """Make a committer without access to the object: ``bucketq://host:port[,…]/queue``."""
    addresses, queue = parse_address(url)
    is_secure = url.startswith(SECURE_SCHEME) or credentials.tls is not None
    dialled = tuple(secured(address, tls=is_secure) for address in addresses)
    finder = AddressFinder(dialled, queue, GrpcTransport(credentials, clock=clock), worker)
    return RemoteCommitter(finder, url, clock, timeout_s=timeout_s)


def parse_address(url: str) -> tuple[tuple[str, ...], str]:
    """Take ``bucketq://host:port[,host:port]/queue`` apart; with TLS it is ``bucketqs://``."""
    places, _, queue = url.removeprefix(SECURE_SCHEME).removeprefix(SCHEME).partition("/")
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


def _launcher(
    location: Location, clock: Clock, transport: Transport, launch: Launch
) -> Launcher | None:
    if launch == "never":
        return None
    lock = HostLock(location.url)
    if launch == "spawn":
        return SpawnLauncher(location.url, lock, _IDLE_EXIT_S)
    broker = Broker(
        Register(location.store, location.key, location.url, clock),
        clock,
        transport,
        archive=ArchiveWriter(location.store, Layout.of(location.store.url, location.key)),
        is_shared=False,
    )
    server = Server(transport, clock, this_host())
    server.add("queue", broker)
    return InsideLauncher(server, broker, lock, _INSIDE)
