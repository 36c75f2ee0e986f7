"""gRPC as a ``Transport``.

Each connection and each ping has a channel of its own. A channel that is reused remembers a failed
connection and does not retry for a while: a broker that has just been restarted would look dead,
and a ping would report the past. A new channel costs a few milliseconds, and a client has few.

gRPC objects belong to the event loop that runs when they are made, so a transport makes none before
it is used.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from hmac import compare_digest
from typing import TYPE_CHECKING, Any

import grpc
import grpc.aio
from google.protobuf.message import DecodeError
from grpc.aio import EOF  # type: ignore[attr-defined]  # not in the stubs
from msgspec.structs import replace

from bucketq.clock import Clock, SystemClock
from bucketq.errors import InvalidRequestError, PayloadTooLargeError
from bucketq.model.tokens import token_digest
from bucketq.rpc.credentials import NONCE_BYTES, Credentials, ServerTls, broker_proof
from bucketq.rpc.grpc.grpc_channel import DialTarget, dial_target, explain, say
from bucketq.rpc.grpc.grpc_stream import MAX_REQUEST_BYTES, MIB
from bucketq.rpc.messages import Answer, Answers, Call, Hello, Ping, Pong, Welcome
from bucketq.rpc.protobuf import bucketq_pb2 as pb
from bucketq.rpc.protobuf.answer_codec import read_answer
from bucketq.rpc.protobuf.call_codec import (
    HELLO,
    PING,
    PING_KEY,
    SERVICE,
    WELCOME,
    read_pong,
    write_call,
)
from bucketq.rpc.refusals import refusal_of
from bucketq.rpc.transport import ConnectionLostError, NoBrokerThereError, Service, UntrustedError

if TYPE_CHECKING:
    from bucketq.rpc.grpc.grpc_server import GrpcListener

_NOTHING = Credentials()
_CLOCK = SystemClock()
_MESSAGE_BYTES = 8 * MIB
"""When calls have so many bytes, they are sent; the rest goes in the next message."""
_MESSAGE_CALLS = 2000
"""The same for their number: brokers decode so many in one go."""
_PART_BYTES = MIB
"""A larger message is sent in parts, unless the broker is older: that takes it in one piece."""
_CALL_BYTES = MAX_REQUEST_BYTES - 16 * MIB
"""The largest call that is sent. Brokers end the connection if a request is larger than
MAX_REQUEST_BYTES, which may contain other calls as well."""
_WORTH_MEASURING_BYTES = 2 * MIB
"""Up to here the estimate of a call's size suffices, although it ignores the names in it."""
_GOODBYE_S = 0.2
"""How long closing waits for the broker: a round trip, unless the broker is gone."""

_BROKEN = (grpc.RpcError, grpc.aio.UsageError, grpc.aio.InternalError, asyncio.InvalidStateError)
"""What gRPC raises for a stream that is over or cannot be opened."""
_Stream = Any
"""A ``StreamStreamCall`` over bytes."""


class GrpcTransport:
    """Dials brokers and listens for clients over gRPC."""

    def __init__(
        self,
        credentials: Credentials = _NOTHING,
        *,
        server_tls: ServerTls | None = None,
        clock: Clock = _CLOCK,
    ) -> None:
        """Make a transport without connections.

        ``server_tls`` is the certificate for listening (None: plaintext), ``clock`` the source of
        nonces.
        """
        self._credentials = credentials
        self._server_tls = server_tls
        self._clock = clock
        self._wires: dict[GrpcConnection, None] = {}

    async def ping(self, address: str, ping: Ping, timeout_s: float) -> Pong:
        """Ask whether a broker of the queue listens at an address."""
        until_s = asyncio.get_running_loop().time() + timeout_s
        line = await dial_target(address, self._credentials, timeout_s)
        channel = line.dial()
        try:
            method = channel.unary_unary(f"/{SERVICE}/Ping", None, None)
            request = PING.encode(ping).SerializeToString()
            body = await method(request, timeout=timeout_s, metadata=((PING_KEY, request),))
            pong = read_pong(pb.PingResponse.FromString(body))
        except DecodeError as error:
            raise _not_a_broker(address, error) from error
        except _BROKEN as error:
            # Not assigned to a name: a frame that references its own error is a reference cycle.
            raise _no_answer(await explain(line, error, until_s), address) from error
        finally:
            await channel.close(None)
        if ping.incarnation and pong.incarnation != ping.incarnation:
            message = f"{address} serves another queue, {pong.incarnation}"
            raise NoBrokerThereError(message)
        return pong

    async def open(self, address: str, hello: Hello, timeout_s: float) -> GrpcConnection:
        """Connect to a broker."""
        until_s = asyncio.get_running_loop().time() + timeout_s
        line = await dial_target(address, self._credentials, timeout_s)
        if self._credentials.token and not line.may_show_token:
            message = (
                f"the token would go to {line.address} in plaintext: use TLS (bucketqs:// or "
                "tls=), or pass insecure=True (BUCKETQ_INSECURE=1)"
            )
            raise UntrustedError(message)
        channel = line.dial()
        wire: GrpcConnection | None = None
        try:
            async with asyncio.timeout(timeout_s):
                method: Any = channel.stream_stream(f"/{SERVICE}/Session", None, None)
                stream = method()
                welcome = await self._greet(line, stream, hello)
            wire = GrpcConnection(self._wires, address, channel, stream, welcome)
        except TimeoutError as error:
            message = f"no answer from {address} in {timeout_s:g} s"
            raise ConnectionLostError(message) from error
        except DecodeError as error:
            raise _not_a_broker(address, error) from error
        except _BROKEN as error:
            raise await explain(line, error, until_s) from error
        finally:
            if wire is None:
                await channel.close(None)
        return wire

    async def _greet(self, line: DialTarget, stream: _Stream, hello: Hello) -> Welcome:
        """Exchange the first messages, and show the token to a broker that has proved itself."""
        token = self._credentials.token
        if not token:
            return await _greet(stream, hello)
        nonce = self._clock.entropy(NONCE_BYTES)
        hello = replace(hello, token_id=self._credentials.token_id, nonce=nonce)
        welcome = await _greet(stream, hello)
        proof = broker_proof(
            token_digest(token), nonce, welcome.incarnation, welcome.broker, welcome.epoch
        )
        if not compare_digest(proof, welcome.proof):
            message = (
                f"what listens at {line.address} does not know token {hello.token_id}: it is "
                "wrong, has expired or was revoked, or this is not a broker of the queue; see "
                "token= (BUCKETQ_TOKEN)"
            )
            raise UntrustedError(message)
        await _write_first(stream, pb.SessionRequest(token=token))
        return welcome

    async def listen(self, address: str, service: Service) -> GrpcListener:
        """Listen at an address; port 0 takes any free port."""
        # Clients, which are many, do not import what only a server needs.
        from bucketq.rpc.grpc.grpc_server import listen  # noqa: PLC0415

        return await listen(address, service, self._server_tls)

    async def close(self) -> None:
        """Close every connection that is still open. Listeners are closed separately."""
        for wire in list(self._wires):
            await wire.close()


class GrpcConnection:
    """One connection, seen from the client."""

    def __init__(
        self,
        wires: dict[GrpcConnection, None],
        address: str,
        channel: grpc.aio.Channel,
        stream: _Stream,
        welcome: Welcome,
    ) -> None:
        """Take a stream on which the first messages were exchanged."""
        self._wires = wires
        self._address = address
        self._channel = channel
        self._stream = stream
        self._welcome = welcome
        self._sends_parts = "parts" in welcome.operations
        self._version = welcome.version
        self._refused: list[Answer] = []
        self._reading: asyncio.Task[Any] | None = None
        self._wake = asyncio.Event()
        self._writing = asyncio.Lock()
        self._is_closed = False
        wires[self] = None

    @property
    def welcome(self) -> Welcome:
        """The first answer of the broker."""
        return self._welcome

    async def send(self, calls: Sequence[Call]) -> None:
        """Send calls, in one message if they fit.

        A call that cannot be encoded or is too large is answered here, and affects no other. If the
        caller is cancelled while gRPC takes a message, the connection ends.
        """
        async with self._writing:
            message, size = pb.SessionRequest(), 0
            sent = message.calls
            for call in calls:
                try:
                    added = write_call(sent, call)
                    if added > _WORTH_MEASURING_BYTES:
                        added = sent[-1].ByteSize()
                    if added > _CALL_BYTES:
                        del sent[-1]
                        _refuse_size(added)
                except (InvalidRequestError, PayloadTooLargeError) as error:
                    self._refused.append(Answer(call.tag, None, refusal_of(error)))
                    self._wake.set()
                    continue
                size += added
                if size > _MESSAGE_BYTES or len(sent) >= _MESSAGE_CALLS:
                    await self._write(message)
                    message, size = pb.SessionRequest(), 0
                    sent = message.calls
            if sent:
                await self._write(message)
            elif self._is_closed or self._stream.done():
                raise self._lost("")

    async def _write(self, message: pb.SessionRequest) -> None:
        if self._is_closed:
            raise self._lost("")
        try:
            body = message.SerializeToString()
            if len(body) <= _PART_BYTES or not self._sends_parts:
                await self._stream.write(body)
                return
            for start in range(0, len(body), _PART_BYTES):
                end = start + _PART_BYTES
                part = pb.SessionRequest(part=body[start:end], more=end < len(body))
                await self._stream.write(part.SerializeToString())
        except _BROKEN as error:
            raise self._lost(say(error)) from error
        except asyncio.CancelledError as error:
            # gRPC raises it as well if the stream was cancelled, and not the task that writes.
            task = asyncio.current_task()
            if self._is_closed and task is not None and not task.cancelling():
                raise self._lost("") from error
            raise

    async def receive(self) -> Answers:
        """Wait for the next answers. None is lost if the caller is cancelled."""
        while True:
            if self._refused:
                refused, self._refused = self._refused, []
                return Answers(refused, self._version)
            if self._is_closed:
                raise self._lost("")
            if self._reading is None:
                self._reading = asyncio.get_running_loop().create_task(self._stream.read())
                self._reading.add_done_callback(lambda _: self._wake.set())
            if self._reading.done():
                read, self._reading = self._reading, None
                return self._read(read)
            self._wake.clear()
            await self._wake.wait()

    def _read(self, read: asyncio.Task[Any]) -> Answers:
        try:
            body = read.result()
            if body is EOF:
                raise self._lost("the broker has closed it")
            message = pb.SessionResponse.FromString(body)
        except (
            asyncio.CancelledError
        ) as error:  # The stream was closed; the caller was not cancelled.
            raise self._lost("") from error
        except (*_BROKEN, DecodeError) as error:
            raise self._lost(say(error)) from error
        self._version = max(self._version, message.version)
        return Answers([read_answer(answer) for answer in message.answers], self._version)

    def _lost(self, why: str) -> ConnectionLostError:
        end = "was closed by this client" if self._is_closed else "is over"
        return ConnectionLostError(
            f"the connection to {self._address} {end}{f': {why}' if why else ''}"
        )

    async def close(self) -> None:
        """Close it. May be called twice."""
        if self._is_closed:
            return
        self._is_closed = True
        self._wires.pop(self, None)
        self._wake.set()
        try:
            await self._say_goodbye()
        finally:
            self._stream.cancel()
            if self._reading is not None:
                # Its error is of no interest, and asyncio would log it if it was not retrieved.
                await asyncio.gather(self._reading, return_exceptions=True)
            await self._channel.close(None)

    async def _say_goodbye(self) -> None:
        """Let the broker end the stream, if it does so soon.

        If this side cancels it, gRPC may process that after the event loop was closed, and the next
        loop of the process would log an error.
        """
        if self._stream.done() or self._writing.locked():
            return
        with suppress(TimeoutError, *_BROKEN):
            async with asyncio.timeout(_GOODBYE_S):
                await self._stream.done_writing()
                await self._stream.code()


def _not_a_broker(address: str, error: DecodeError) -> NoBrokerThereError:
    return NoBrokerThereError(f"what listens at {address} is not a broker: {error}")


def _no_answer(failure: Exception, address: str) -> ConnectionLostError:
    """Decide what the failure of a ping means."""
    if isinstance(failure, ConnectionLostError):
        return failure
    return NoBrokerThereError(f"no broker of this queue at {address}: {failure}")


def _refuse_size(size_bytes: int) -> None:
    message = (
        f"the request has {size_bytes:,} bytes, {_CALL_BYTES:,} fit in one message: "
        "send it in several"
    )
    raise PayloadTooLargeError(message)


async def _write_first(stream: _Stream, message: pb.SessionRequest) -> None:
    with suppress(asyncio.InvalidStateError):  # It is over already; reading reports why.
        await stream.write(message.SerializeToString())


async def _greet(stream: _Stream, hello: Hello) -> Welcome:
    """Exchange the first messages; raises what gRPC raises."""
    await _write_first(stream, pb.SessionRequest(hello=HELLO.encode(hello)))
    body = await stream.read()
    if body is EOF:
        message = "the stream ended without a welcome"
        raise DecodeError(message)
    response = pb.SessionResponse.FromString(body)
    if not response.HasField("welcome"):
        message = "the first message has no welcome"
        raise DecodeError(message)
    return WELCOME.read(response.welcome)
