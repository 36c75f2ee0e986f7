"""The broker's side of gRPC: a server that hands calls to a ``Service``.

A session has two tasks, one that reads and one that writes. Answers collect while a message is
being written and go out together in the next, so that the busier the broker, the fewer messages it
needs. A client that does not read its answers is not listened to either: the reader stops until
the writer has caught up, and flow control does the rest.

Unary calls are conversations of one call.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, NoReturn

import grpc
import grpc.aio
from google.protobuf.message import DecodeError
from grpc.aio import EOF  # type: ignore[attr-defined]
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from bucketq.errors import (
    BucketQError,
    InvalidRequestError,
    OverloadedError,
    PayloadTooLargeError,
)
from bucketq.rpc import bucketq_pb2 as pb
from bucketq.rpc.answers import write_answer, write_value
from bucketq.rpc.calls import (
    DEFAULT_TTL_S,
    read_call,
    read_hello,
    read_ping,
    read_unary,
    write_pong,
    write_welcome,
)
from bucketq.rpc.errors import refusal_of
from bucketq.rpc.messages import Answer, Answers, Call, Hello, Refusal
from bucketq.rpc.probe import parse_address
from bucketq.rpc.status import code_of, details_of, metadata_of
from bucketq.rpc.transport import Conversation, Service

MIB = 1024 * 1024
SERVICE = "bucketq.v1.Queue"
MAX_REQUEST_BYTES = 128 * MIB
"""The largest message that a broker takes."""
MAX_RESPONSE_BYTES = 1024 * MIB
"""The largest that a client takes."""
MAX_CALLS = 20_000
"""How many calls one message may bring."""
_MESSAGE_ANSWERS = 2000
_MESSAGE_BYTES = 4 * MIB
_MAX_WAITING_ANSWERS = 20_000
"""With so many unread, no more calls of this client are read."""
_MAX_STREAMS = 1000
"""Of one connection."""
_RETRY_AFTER_S = 1.0

_OPTIONS: tuple[tuple[str, int], ...] = (
    # Two brokers on one port would each get some of the clients.
    ("grpc.so_reuseport", 0),
    ("grpc.max_receive_message_length", MAX_REQUEST_BYTES),
    ("grpc.max_send_message_length", -1),
    ("grpc.max_concurrent_streams", _MAX_STREAMS),
    # A client whose host is gone is found out, and no client is cut off for asking too often.
    ("grpc.keepalive_time_ms", 20_000),
    ("grpc.keepalive_timeout_ms", 20_000),
    ("grpc.http2.max_ping_strikes", 0),
)

_Context = Any
"""A ``ServicerContext`` over bytes; the stubs know no bytes."""
_log = logging.getLogger(__name__)


class GrpcListener:
    """A service at an address."""

    def __init__(
        self, server: grpc.aio.Server, address: str, sessions: Sessions, checks: Any
    ) -> None:
        """Take a server that runs."""
        self._server = server
        self._address = address
        self._sessions = sessions
        self._checks = checks

    @property
    def address(self) -> str:
        """Where: ``host:port``, with the port that was really bound."""
        return self._address

    async def close(self, grace_s: float = 0.0) -> None:
        """Take no new calls, let what is under way finish for up to ``grace_s``, and stop."""
        await self._checks.enter_graceful_shutdown()
        self._sessions.finish()
        await self._server.stop(grace_s)
        await self._sessions.wait_closed()


async def listen(address: str, service: Service) -> GrpcListener:
    """Serve at an address. Raises ``InvalidRequestError`` where it cannot be bound."""
    parsed = parse_address(address)
    if parsed is None:
        message = f"bad address {address!r}: use host:port, for example 127.0.0.1:0"
        raise InvalidRequestError(message)
    _check_free(*parsed)
    server = grpc.aio.server(options=_OPTIONS)
    sessions = Sessions(service)
    server.add_generic_rpc_handlers(
        (grpc.method_handlers_generic_handler(SERVICE, _handlers(service, sessions)),)
    )
    checks = health.aio.HealthServicer()  # type: ignore[attr-defined]
    health_pb2_grpc.add_HealthServicer_to_server(checks, server)
    await checks.set(SERVICE, health_pb2.HealthCheckResponse.SERVING)
    names = (SERVICE, health.SERVICE_NAME, reflection.SERVICE_NAME)
    reflection.enable_server_reflection(names, server)
    try:
        port = server.add_insecure_port(address)
    except RuntimeError as error:
        message = f"cannot listen at {address}: {error}"
        raise InvalidRequestError(message) from error
    await server.start()
    host = address.rpartition(":")[0]
    return GrpcListener(server, f"{host}:{port}", sessions, checks)


def _check_free(host: str, port: int) -> None:
    """Refuse an address that cannot be bound, before gRPC does so with lines on stderr."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        for family, kind, protocol, _, where in found[:1]:
            with socket.socket(family, kind, protocol) as trial:
                trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                trial.bind(where)
                trial.listen(1)
    except OSError as error:
        message = f"cannot listen at {host}:{port}: {error.strerror or error}"
        raise InvalidRequestError(message) from error


def _handlers(service: Service, sessions: Sessions) -> dict[str, grpc.RpcMethodHandler[Any, Any]]:
    async def ping(body: bytes, context: _Context) -> bytes:
        try:
            pong = service.ping(read_ping(_parse(pb.PingRequest, body)))
        except BucketQError as error:
            await _abort(context, refusal_of(error))
        return write_pong(pong).SerializeToString()

    unary = {name: _unary(service, name) for name in UNARY}
    return {
        "Session": grpc.stream_stream_rpc_method_handler(sessions.serve),
        "Ping": grpc.unary_unary_rpc_method_handler(ping),
        **{name: grpc.unary_unary_rpc_method_handler(serve) for name, serve in unary.items()},
    }


UNARY: dict[str, tuple[Any, str]] = {
    "Push": (pb.PushRequest, "push"),
    "Claim": (pb.ClaimRequest, "claim"),
    "Heartbeat": (pb.HeartbeatRequest, "heartbeat"),
    "Complete": (pb.CompleteRequest, "complete"),
    "CompleteMany": (pb.CompleteManyRequest, "complete_many"),
    "Fail": (pb.FailRequest, "fail"),
    "Release": (pb.ReleaseRequest, "release"),
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
}
"""Each unary method, the message that it takes, and the field with the operation."""


def _unary(service: Service, name: str) -> Callable[[bytes, _Context], Awaitable[bytes]]:
    shape, verb = UNARY[name]

    async def serve(body: bytes, context: _Context) -> bytes:
        answered: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()

        def send(answers: Answers) -> None:
            if answers.answers and not answered.done():
                answered.set_result(answers.answers[0])

        remaining_s = context.time_remaining()
        conversation: Conversation | None = None
        try:
            request = _parse(shape, body)
            call = read_unary(verb, request, DEFAULT_TTL_S if remaining_s is None else remaining_s)
            target: pb.Target = request.target
            hello = Hello(
                queue=target.queue, incarnation=target.incarnation, client=str(context.peer())
            )
            conversation = service.open(hello, send)
            conversation.receive([call])
            answer = await answered
            if answer.refusal is None:
                return write_value(verb, answer.value)
            refusal = answer.refusal
        except BucketQError as error:
            refusal = refusal_of(error)
        finally:
            if conversation is not None:
                conversation.close()
        return await _abort(context, refusal)

    return serve


async def _abort(context: _Context, refusal: Refusal) -> NoReturn:
    code = grpc.StatusCode[code_of(refusal)]
    await context.abort(code, details_of(refusal), metadata_of(refusal))
    raise AssertionError("abort always raises")


def _parse(shape: Any, body: bytes) -> Any:
    try:
        return shape.FromString(body)
    except DecodeError as error:
        message = f"the message is no {shape.DESCRIPTOR.full_name}: {error}"
        raise InvalidRequestError(message) from error


class Sessions:
    """The sessions that are open at one listener."""

    def __init__(self, service: Service) -> None:
        """Begin with none."""
        self._service = service
        self._open: dict[Session, asyncio.Task[Any] | None] = {}
        self._all_closed = asyncio.Event()
        self._all_closed.set()
        self._finishing = False

    async def serve(self, _requests: object, context: _Context) -> None:
        """Serve one session, from its hello to its end."""
        session = Session(context)
        self._open[session] = asyncio.current_task()
        self._all_closed.clear()
        try:
            if self._finishing:
                session.finish()
            await session.run(self._service)
        finally:
            del self._open[session]
            if not self._open:
                self._all_closed.set()

    def finish(self) -> None:
        """Let each session end when its calls have been answered."""
        self._finishing = True
        for session in self._open:
            session.finish()

    async def wait_closed(self) -> None:
        """Wait until every session has told its conversation that it is over."""
        for task in self._open.values():
            if task is not None:
                task.cancel()
        await self._all_closed.wait()


class Session:
    """One stream: calls in, answers out."""

    def __init__(self, context: _Context) -> None:
        """Take a stream on which nothing was said yet."""
        self._context = context
        self._verbs: dict[int, str] = {}
        """What was asked under each tag that has no answer yet."""
        self._waiting: deque[tuple[Answer, str]] = deque()
        self._version = 0
        self._wake = asyncio.Event()
        self._caught_up = asyncio.Event()
        self._finishing = False

    def finish(self) -> None:
        """End it when nothing is under way any more."""
        self._finishing = True
        self._wake.set()

    async def run(self, service: Service) -> None:
        """Serve the stream until either side ends it."""
        body = await self._context.read()
        if body is EOF:
            return
        try:
            request = _parse(pb.SessionRequest, body)
            if not request.HasField("hello"):
                message = "the first message of a session must carry `hello`"
                raise InvalidRequestError(message)
            conversation = service.open(read_hello(request.hello), self._collect)
        except BucketQError as error:
            await _abort(self._context, refusal_of(error))
        tasks: list[asyncio.Task[None]] = []
        try:
            welcome = pb.SessionResponse(welcome=write_welcome(conversation.welcome))
            await self._context.write(welcome.SerializeToString())
            self._hand_over(conversation, request.calls)
            loop = asyncio.get_running_loop()
            tasks.append(loop.create_task(self._read(conversation)))
            tasks.append(loop.create_task(self._write()))
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            conversation.close()
            for task in tasks:
                task.cancel()
            ended = await asyncio.gather(*tasks, return_exceptions=True)
        for outcome in ended:
            if isinstance(outcome, BucketQError):
                await _abort(self._context, refusal_of(outcome))
            if isinstance(outcome, Exception) and not self._context.done():
                _log.error("a session failed", exc_info=outcome)
                await _abort(self._context, refusal_of(outcome))

    async def _read(self, conversation: Conversation) -> None:
        while True:
            body = await self._context.read()
            if body is EOF:
                return
            self._hand_over(conversation, _parse(pb.SessionRequest, body).calls)
            while len(self._waiting) > _MAX_WAITING_ANSWERS:
                self._caught_up.clear()
                await self._caught_up.wait()

    def _hand_over(self, conversation: Conversation, sent: Iterable[pb.Call]) -> None:
        """Give the broker the calls that can be read; the others are answered here."""
        verbs, calls = self._verbs, list[Call]()
        for index, item in enumerate(sent):
            tag = item.tag
            try:
                if index >= MAX_CALLS or tag in verbs:
                    _refuse_call(index, tag)
                call, verbs[tag] = read_call(item, tag)
            except BucketQError as error:
                self._waiting.append((Answer(tag, None, refusal_of(error)), ""))
                self._wake.set()
                continue
            calls.append(call)
        if calls:
            conversation.receive(calls)

    def _collect(self, answers: Answers) -> None:
        """Take answers for the next message. A second answer to one call goes nowhere."""
        pop, append = self._verbs.pop, self._waiting.append
        for answer in answers.answers:
            verb = pop(answer.tag, None)
            if verb is not None:
                append((answer, verb))
        self._version = max(self._version, answers.version)
        self._wake.set()

    async def _write(self) -> None:
        while True:
            while self._waiting:
                await self._context.write(self._next_message())
                if len(self._waiting) <= _MAX_WAITING_ANSWERS:
                    self._caught_up.set()
            if self._finishing and not self._verbs:
                return
            self._wake.clear()
            await self._wake.wait()

    def _next_message(self) -> bytes:
        waiting = self._waiting
        message = pb.SessionResponse(version=self._version)
        answers = message.answers
        size = count = 0
        while waiting and count < _MESSAGE_ANSWERS and size < _MESSAGE_BYTES:
            answer, verb = waiting.popleft()
            added = write_answer(answers, answer, verb)
            if added > MAX_RESPONSE_BYTES:
                del answers[-1]
                write_answer(answers, Answer(answer.tag, None, _too_large(added)), verb)
                added = 0
            size += added
            count += 1
        return message.SerializeToString()


def _refuse_call(index: int, tag: int) -> NoReturn:
    if index >= MAX_CALLS:
        message = f"more than {MAX_CALLS:,} calls in one message: send several"
        raise OverloadedError(message, retry_after_s=_RETRY_AFTER_S)
    message = f"tag {tag} belongs to a call that is still waiting for its answer"
    raise InvalidRequestError(message)


def _too_large(size_bytes: int) -> Refusal:
    message = (
        f"the answer has {size_bytes:,} bytes, {MAX_RESPONSE_BYTES:,} fit in one message: ask for "
        "fewer jobs at once"
    )
    return refusal_of(PayloadTooLargeError(message))
