"""The gRPC server of a broker, which passes calls to a ``Service``.

Clients of this package open one session each. Unary calls, health checks and reflection are for
clients in other languages and for gRPC tools.
"""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import grpc
import grpc.aio

from bucketq.errors import InvalidRequestError
from bucketq.rpc.address import split_address
from bucketq.rpc.credentials import ServerTls
from bucketq.rpc.grpc.admission import Admission
from bucketq.rpc.grpc.descriptors import most_connections
from bucketq.rpc.grpc.grpc_methods import handlers
from bucketq.rpc.grpc.grpc_stream import MAX_MESSAGE_BYTES, NO_COMPRESSION
from bucketq.rpc.grpc.tls import ServerFiles, ServerPems
from bucketq.rpc.transport import Service

_MAX_STREAMS = 1000
"""Streams of one connection; as many calls as one host may have (``admission``)."""
_LAST_WORDS_S = 0.5
"""How long the server waits until the last statuses are sent: some round trips."""

_OPTIONS: tuple[tuple[str, int], ...] = (
    # Two brokers on one port would each get some of the clients.
    ("grpc.so_reuseport", 0),
    ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
    ("grpc.max_send_message_length", -1),
    ("grpc.max_concurrent_streams", _MAX_STREAMS),
    NO_COMPRESSION,
    # 64 KiB of a stream are buffered before it is read. With probes it would be 4 MiB and more.
    ("grpc.http2.bdp_probe", 0),
    ("grpc.http2.lookahead_bytes", 64 * 1024),
    # A connection without calls uses a descriptor that others need.
    ("grpc.server_handshake_timeout_ms", 10_000),
    ("grpc.max_connection_idle_ms", 10_000),
    # Detects that the host of a client is gone. Clients may ping as often as they like.
    ("grpc.keepalive_time_ms", 20_000),
    ("grpc.keepalive_timeout_ms", 20_000),
    ("grpc.http2.max_ping_strikes", 0),
)


class GrpcListener:
    """A server that was started and listens at an address."""

    def __init__(self, server: grpc.aio.Server, address: str, admission: Admission) -> None:
        self._server = server
        self._address = address
        self._admission = admission

    @property
    def address(self) -> str:
        """``host:port``, with the port that was actually bound."""
        return self._address

    async def close(self, grace_s: float = 0.0) -> None:
        """Reject new calls, let pending ones finish for up to ``grace_s``, and stop.

        Every stream gets its status before connections are closed. If they were closed at once, the
        client's gRPC would take it for a fault and log it.
        """
        await self._admission.close(grace_s)
        await self._server.stop(_LAST_WORDS_S)


async def listen(address: str, service: Service, tls: ServerTls | None = None) -> GrpcListener:
    """Listen at an address. Raises ``InvalidRequestError`` if it cannot be bound."""
    files = None if tls is None else ServerFiles(tls)
    # gRPC binds a socket for each address of a name, and has a limit for each socket.
    sockets = await _count_free(*split_address(address))
    most = ("grpc.max_allowed_incoming_connections", most_connections() // sockets)
    server = grpc.aio.server(options=(*_OPTIONS, most))
    admission = Admission()
    server.add_generic_rpc_handlers(handlers(service, admission))
    try:
        bound = _bind(server, address, files)
    except RuntimeError as error:
        message = f"cannot listen at {address}: {error}"
        raise InvalidRequestError(message) from error
    await server.start()
    return GrpcListener(server, f"{address.rpartition(':')[0]}:{bound}", admission)


def _bind(server: grpc.aio.Server, address: str, files: ServerFiles | None) -> int:
    if files is None:
        return server.add_insecure_port(address)

    def configuration(pems: ServerPems) -> Any:
        return grpc.ssl_server_certificate_configuration([(pems.key, pems.cert)], pems.client_ca)

    def fetch() -> Any:
        changed = files.changed()
        return None if changed is None else configuration(changed)

    demands = files.pems.client_ca is not None
    first = configuration(files.pems)
    return server.add_secure_port(
        address, grpc.dynamic_ssl_server_credentials(first, fetch, demands)
    )


async def _count_free(host: str, port: int) -> int:
    """Return how many addresses a name has; if the first cannot be bound, reject it.

    gRPC would reject it too, but also write to stderr.
    """
    loop = asyncio.get_running_loop()
    try:
        found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, kind, protocol, _, where = found[0]
        with socket.socket(family, kind, protocol) as trial:
            trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            trial.bind(where)
            trial.listen(1)
        return len(found)
    except OSError as error:
        message = f"cannot listen at {host}:{port}: {error.strerror or error}"
        raise InvalidRequestError(message) from error
