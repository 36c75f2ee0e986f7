"""The broker's side of gRPC: a server that hands calls to a ``Service``.

Most of what it serves are sessions. Unary calls are conversations of one call. Health checks and
reflection are there for tools that know gRPC and not bucketq.
"""

from __future__ import annotations

import asyncio
import socket
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import grpc
import grpc.aio
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from bucketq.errors import (
    BucketQError,
    InvalidRequestError,
    OverloadedError,
    UnavailableError,
)
from bucketq.rpc import bucketq_pb2 as pb
from bucketq.rpc.address import split_address
from bucketq.rpc.answers import write_value
from bucketq.rpc.calls import DEFAULT_TTL_S, read_ping, read_unary, write_pong
from bucketq.rpc.credentials import ServerTls
from bucketq.rpc.errors import refusal_of
from bucketq.rpc.grpc_session import (
    MIB,
    NO_COMPRESSION,
    Context,
    Session,
    abort,
    parse,
    stopping,
    turn_away,
)
from bucketq.rpc.messages import Answer, Answers, Hello
from bucketq.rpc.tls import ServerFiles, ServerPems
from bucketq.rpc.transport import Conversation, Service

SERVICE = "bucketq.v1.Queue"
MAX_REQUEST_BYTES = 128 * MIB
"""The largest message that a broker takes."""
_MAX_STREAMS = 1000
"""Of one connection."""
_LAST_WORDS_S = 0.5
"""How long the last statuses may take on their way out."""
MAX_GUESTS = 10_000
"""How many sessions and unary calls one listener has at once."""
MAX_GUESTS_OF_A_HOST = 1000
_RETRY_AFTER_S = 1.0

_OPTIONS: tuple[tuple[str, int], ...] = (
    # Two brokers on one port would each get some of the clients.
    ("grpc.so_reuseport", 0),
    ("grpc.max_receive_message_length", MAX_REQUEST_BYTES),
    ("grpc.max_send_message_length", -1),
    ("grpc.max_concurrent_streams", _MAX_STREAMS),
    NO_COMPRESSION,
    # Whoever connects says something soon, and goes on to.
    ("grpc.server_handshake_timeout_ms", 10_000),
    ("grpc.max_connection_idle_ms", 300_000),
    # A client whose host is gone is found out, and no client is cut off for asking too often.
    ("grpc.keepalive_time_ms", 20_000),
    ("grpc.keepalive_timeout_ms", 20_000),
    ("grpc.http2.max_ping_strikes", 0),
)

UNARY: dict[str, tuple[Any, str]] = {
    "Push": (pb.PushRequest, "push"),
    "Claim": (pb.ClaimRequest, "claim"),
    "Heartbeat": (pb.HeartbeatRequest, "heartbeat"),
    "Complete": (pb.CompleteRequest, "complete"),
    "CompleteMany": (pb.CompleteManyRequest, "complete_many"),
    "Fail": (pb.FailRequest, "fail"),
    "Release": (pb.ReleaseRequest, "release"),
    "Withdraw": (pb.WithdrawRequest, "withdraw"),
    "ReleaseMany": (pb.ReleaseManyRequest, "release_many"),
    "Cancel": (pb.CancelRequest, "cancel"),
    "Redrive": (pb.RedriveRequest, "redrive"),
    "Purge": (pb.PurgeRequest, "purge"),
    "Pause": (pb.PauseRequest, "pause"),
    "Resume": (pb.ResumeRequest, "resume"),
    "Configure": (pb.ConfigureRequest, "configure"),
    "Get": (pb.GetRequest, "get"),
    "List": (pb.ListRequest, "list"),
    "Stats": (pb.StatsRequest, "stats"),
    "Snapshot": (pb.SnapshotRequest, "snapshot"),
    "FlushArchive": (pb.FlushArchiveRequest, "flush_archive"),
    "GrantToken": (pb.GrantTokenRequest, "grant_token"),
    "RevokeToken": (pb.RevokeTokenRequest, "revoke_token"),
    "Tokens": (pb.TokensRequest, "tokens"),
    "OpenConsumer": (pb.OpenConsumerRequest, "open_consumer"),
    "ClaimBatch": (pb.ClaimBatchRequest, "claim_batch"),
    "ReadBatch": (pb.ReadBatchRequest, "read_batch"),
    "AckBatch": (pb.AckBatchRequest, "ack_batch"),
    "ReleaseBatch": (pb.ReleaseBatchRequest, "release_batch"),
    "Consumers": (pb.ConsumersRequest, "consumers"),
    "RemoveConsumer": (pb.RemoveConsumerRequest, "remove_consumer"),
    "Publish": (pb.PublishRequest, "publish"),
}
"""Each unary method, the message that it takes, and the field with the operation."""


class GrpcListener:
    """A service at an address."""

    def __init__(self, server: grpc.aio.Server, address: str, floor: _Floor, checks: Any) -> None:
        """Take a server that runs."""
        self._server = server
        self._address = address
        self._floor = floor
        self._checks = checks

    @property
    def address(self) -> str:
        """Where: ``host:port``, with the port that was really bound."""
        return self._address

    async def close(self, grace_s: float = 0.0) -> None:
        """Take no new calls, let what is under way finish for up to ``grace_s``, and stop.

        Every stream gets its status before the connections go. To cut them instead would be taken
        for a fault by the other side, which says so on its stderr.
        """
        await self._checks.enter_graceful_shutdown()
        await self._floor.close(grace_s)
        await self._server.stop(_LAST_WORDS_S)


async def listen(address: str, service: Service, tls: ServerTls | None = None) -> GrpcListener:
    """Serve at an address. Raises ``InvalidRequestError`` where it cannot be bound."""
    files = None if tls is None else ServerFiles(tls)
    await _check_free(*split_address(address))
    server = grpc.aio.server(options=_OPTIONS)
    floor = _Floor(service)
    server.add_generic_rpc_handlers(
        (grpc.method_handlers_generic_handler(SERVICE, _handlers(floor)),)
    )
    checks = health.aio.HealthServicer()  # type: ignore[attr-defined]  # not in the stubs
    health_pb2_grpc.add_HealthServicer_to_server(checks, server)
    await checks.set(SERVICE, health_pb2.HealthCheckResponse.SERVING)
    names = (SERVICE, health.SERVICE_NAME, reflection.SERVICE_NAME)
    reflection.enable_server_reflection(names, server)
    try:
        port = _bind(server, address, files)
    except RuntimeError as error:
        message = f"cannot listen at {address}: {error}"
        raise InvalidRequestError(message) from error
    await server.start()
    return GrpcListener(server, f"{address.rpartition(':')[0]}:{port}", floor, checks)


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


async def _check_free(host: str, port: int) -> None:
    """Refuse an address that cannot be bound, before gRPC does so with lines on stderr."""
    loop = asyncio.get_running_loop()
    try:
        found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, kind, protocol, _, where = found[0]
        with socket.socket(family, kind, protocol) as trial:
            trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            trial.bind(where)
            trial.listen(1)
    except OSError as error:
        message = f"cannot listen at {host}:{port}: {error.strerror or error}"
        raise InvalidRequestError(message) from error


class _Floor:
    """Everything that is being said at one listener, so that it can be brought to an end."""

    def __init__(self, service: Service) -> None:
        """Begin with nobody there."""
        self.service = service
        self._present: dict[Session | _UnaryCall, str] = {}
        """Who is there, and of which host."""
        self._hosts: Counter[str] = Counter()
        self._empty = asyncio.Event()
        self._empty.set()
        self._closing = False

    def enter(self, guest: Session | _UnaryCall, peer: str) -> None:
        """Let somebody in. Raises ``UnavailableError`` where it is too late.

        Raises ``OverloadedError`` where too many are there, of all hosts or of this one.
        """
        if self._closing:
            raise stopping()
        host = peer.rpartition(":")[0]
        if len(self._present) >= MAX_GUESTS or self._hosts[host] >= MAX_GUESTS_OF_A_HOST:
            message = (
                f"too many conversations: {len(self._present):,} at this broker, "
                f"{self._hosts[host]:,} of this host; {MAX_GUESTS:,} and {MAX_GUESTS_OF_A_HOST:,} "
                "are allowed: let the callers of a process share a connection"
            )
            raise OverloadedError(message, retry_after_s=_RETRY_AFTER_S)
        self._present[guest] = host
        self._hosts[host] += 1
        self._empty.clear()

    def leave(self, guest: Session | _UnaryCall) -> None:
        """Note that somebody has left."""
        host = self._present.pop(guest)
        self._hosts[host] -= 1
        if not self._hosts[host]:
            del self._hosts[host]
        if not self._present:
            self._empty.set()

    async def close(self, grace_s: float) -> None:
        """Let nobody in, wait until all have what they asked for, and send the others away."""
        self._closing = True
        for guest in list(self._present):
            guest.finish()
        with suppress(TimeoutError):
            async with asyncio.timeout(grace_s):
                await self._empty.wait()
        for guest in list(self._present):
            guest.stop()
        await self._empty.wait()


class _UnaryCall:
    """A conversation of one call."""

    def __init__(self) -> None:
        """Begin without an answer."""
        self.answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()

    def send(self, answers: Answers) -> None:
        """Take the answer."""
        if answers.answers and not self.answer.done():
            self.answer.set_result(answers.answers[0])

    def finish(self) -> None:
        """End it when it is answered, which it does anyway."""

    def stop(self) -> None:
        """End it now."""
        if not self.answer.done():
            self.answer.set_exception(stopping())


def _handlers(floor: _Floor) -> dict[str, grpc.RpcMethodHandler[Any, Any]]:
    async def ping(body: bytes, context: Context) -> bytes:
        try:
            pong = floor.service.ping(read_ping(parse(pb.PingRequest, body)))
        except BucketQError as error:
            await abort(context, refusal_of(error))
        return write_pong(pong).SerializeToString()

    async def session(_requests: object, context: Context) -> None:
        guest = Session(context)
        try:
            floor.enter(guest, str(context.peer()))
        except BucketQError as error:
            await abort(context, refusal_of(error))
        try:
            await guest.run(floor.service)
        finally:
            floor.leave(guest)

    unary = {name: _unary(floor, *shape) for name, shape in UNARY.items()}
    return {
        "Session": grpc.stream_stream_rpc_method_handler(session),
        "Ping": grpc.unary_unary_rpc_method_handler(ping),
        **{name: grpc.unary_unary_rpc_method_handler(serve) for name, serve in unary.items()},
    }


def _unary(floor: _Floor, shape: Any, verb: str) -> Callable[[bytes, Context], Awaitable[bytes]]:
    async def converse(body: bytes, context: Context, guest: _UnaryCall) -> bytes:
        remaining_s = context.time_remaining()
        ttl_s = DEFAULT_TTL_S if remaining_s is None else remaining_s
        request = parse(shape, body)
        call = read_unary(verb, request, ttl_s)
        target: pb.Target = request.target
        hello = Hello(
            queue=target.queue,
            incarnation=target.incarnation,
            client=str(context.peer()),
            token=_token_of(context),
        )
        conversation: Conversation = floor.service.open(hello, guest.send)
        try:
            conversation.receive([call])
            async with asyncio.timeout(ttl_s):
                answer = await guest.answer
        except TimeoutError as error:
            # A broker does not answer what it has dropped.
            message = f"no answer in {ttl_s:g} s: send the same request again"
            raise UnavailableError(message) from error
        finally:
            conversation.close()
        if answer.refusal is not None:
            await abort(context, answer.refusal)
        return write_value(verb, answer.value)

    async def serve(body: bytes, context: Context) -> bytes:
        guest = _UnaryCall()
        try:
            floor.enter(guest, str(context.peer()))
        except BucketQError as error:
            await abort(context, refusal_of(error))
        try:
            return await converse(body, context, guest)
        except BucketQError as error:
            failure = error
        finally:
            floor.leave(guest)
        return await turn_away(context, failure)

    return serve


def _token_of(context: Context) -> str:
    """The token that a unary call shows in its metadata: ``authorization: Bearer <token>``."""
    for key, value in context.invocation_metadata() or ():
        if key == "authorization" and isinstance(value, str):
            scheme, _, token = value.partition(" ")
            if scheme.lower() == "bearer":
                return token.strip()
    return ""
