"""gRPC channels to brokers, each for one connection or ping, and what their failures mean.

gRPC dials the IP addresses that were checked. It must not resolve a name a second time, because
the second answer may differ.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar, cast

import grpc
import grpc.aio

from bucketq.errors import (
    AccessDeniedError,
    InvalidRequestError,
    QueueNotFoundError,
    SupersededError,
)
from bucketq.rpc.address import SECURE, ResolvedAddress, resolve_address
from bucketq.rpc.credentials import Credentials, Tls
from bucketq.rpc.grpc.grpc_stream import MAX_RESPONSE_BYTES, MIB, NO_COMPRESSION
from bucketq.rpc.grpc.probe import is_deserted, speaks_tls, tls_trouble
from bucketq.rpc.grpc.tls import client_context, read_client
from bucketq.rpc.protobuf.refusal_status import read_refusal
from bucketq.rpc.refusals import error_of
from bucketq.rpc.transport import (
    CannotDialError,
    ConnectionLostError,
    NoBrokerThereError,
    UntrustedError,
    WrongProtocolError,
)

A = TypeVar("A")

_OPTIONS: tuple[tuple[str, int], ...] = (
    ("grpc.max_receive_message_length", MAX_RESPONSE_BYTES + 16 * MIB),
    ("grpc.max_send_message_length", -1),
    NO_COMPRESSION,
    # A failure of another channel says nothing about this one.
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1000),
    # Only the caller knows whether a request may be retried.
    ("grpc.enable_retries", 0),
    ("grpc.service_config_disable_resolution", 1),
    # Brokers are dialled directly.
    ("grpc.enable_http_proxy", 0),
    # Detects that the host of a broker is gone while a connection is open.
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.http2.max_pings_without_data", 0),
)


class DialTarget(NamedTuple):
    """An address that was checked, and how to dial it."""

    address: str
    place: ResolvedAddress
    is_secure: bool
    credentials: Credentials

    @property
    def name(self) -> str:
        """The name that the broker's certificate must have."""
        tls = self.credentials.tls
        return tls.name if tls is not None and tls.name else self.place.host

    @property
    def may_show_token(self) -> bool:
        """Whether a token may be sent: nothing on the way can read it, or that is allowed."""
        return self.is_secure or self.place.is_here or self.credentials.insecure

    def dial(self) -> grpc.aio.Channel:
        """Make a channel. It connects on first use."""
        target = self.place.target
        if not self.is_secure:
            options = (*_OPTIONS, ("grpc.default_authority", self.address))
            return grpc.aio.insecure_channel(target, options=options)
        pems = _readable(read_client, self.credentials.tls)
        credentials = grpc.ssl_channel_credentials(pems.ca, pems.key, pems.cert)
        options = (*_OPTIONS, ("grpc.ssl_target_name_override", self.name))
        return grpc.aio.secure_channel(target, credentials, options=options)


def _readable(read: Callable[[Tls | None], A], tls: Tls | None) -> A:
    """Read the files of this client, which were valid at its start and may be so again."""
    try:
        return read(tls)
    except InvalidRequestError as error:
        raise CannotDialError(str(error)) from error


async def dial_target(address: str, credentials: Credentials, timeout_s: float) -> DialTarget:
    """Resolve and check an address; raises what ``resolve_address`` does.

    The address may come from an object that others write, and gRPC would also accept the path of a
    socket or the name of a resolver.
    """
    is_secure, address = address.startswith(SECURE), address.removeprefix(SECURE)
    try:
        async with asyncio.timeout(timeout_s):
            place = await resolve_address(address, credentials.networks)
    except TimeoutError as error:
        message = f"{address} was not resolved in {timeout_s:g} s"
        raise ConnectionLostError(message) from error
    return DialTarget(address, place, is_secure, credentials)


def say(error: Exception) -> str:
    """Return what gRPC reports about a failure."""
    if isinstance(error, grpc.aio.AioRpcError):
        return f"{error.code().name}: {error.details()}"
    return str(error) or type(error).__name__


async def explain(
    line: DialTarget, error: Exception, until_s: float
) -> ConnectionLostError | QueueNotFoundError | SupersededError | AccessDeniedError:
    """Decide what a failure of gRPC means, and whether it is evidence against the broker."""
    address = line.address
    if isinstance(error, grpc.aio.AioRpcError):
        refusal = read_refusal(error.details() or "", cast("Any", error.trailing_metadata() or ()))
        if refusal is not None:
            said = error_of(refusal)
            if isinstance(said, QueueNotFoundError | SupersededError | AccessDeniedError):
                return said
            return ConnectionLostError(f"the broker at {address} rejected the connection: {said}")
        if error.code() is grpc.StatusCode.UNIMPLEMENTED:
            return NoBrokerThereError(f"what listens at {address} is not a broker: {say(error)}")
    left_s = until_s - asyncio.get_running_loop().time()
    if left_s > 0 and await is_deserted(line.place, left_s):
        return NoBrokerThereError(f"no broker listens at {address}: {say(error)}")
    try:
        async with asyncio.timeout_at(until_s):
            misfit = await _misfit(line)
    except (TimeoutError, OSError):
        misfit = None
    return misfit or ConnectionLostError(f"cannot reach {address}: {say(error)}")


async def _misfit(line: DialTarget) -> ConnectionLostError | None:
    """Find out whether TLS is the reason: one side uses it and the other does not, or no trust."""
    ip, port = str(line.place.ips[0]), line.place.port
    if not line.is_secure:
        if not await speaks_tls(ip, port):
            return None
        return WrongProtocolError(
            f"what listens at {line.address} speaks TLS: use bucketqs:// instead of "
            "bucketq://, or pass tls= (BUCKETQ_TLS_CA)"
        )
    try:
        context = _readable(client_context, line.credentials.tls)
        trouble = await tls_trouble(ip, port, context, line.name)
    except WrongProtocolError:
        return WrongProtocolError(
            f"what listens at {line.address} does not speak TLS: start the broker with "
            "--tls-cert and --tls-key, or use bucketq:// and no tls="
        )
    if not trouble:
        return None
    return UntrustedError(
        f"the TLS handshake with the broker at {line.address} fails: {trouble}; see tls= "
        "(BUCKETQ_TLS_CA, BUCKETQ_TLS_NAME, BUCKETQ_TLS_CERT and BUCKETQ_TLS_KEY)"
    )
