"""gRPC as a ``Transport``.

Each conversation and each ping has a channel of its own. Channels that are kept for later remember
that a connection failed, and refuse to try again for a while: a broker that was restarted a moment
ago would look dead, and a ping would tell of the past. A connection costs a few milliseconds, and a
client has few of them.

gRPC objects belong to the loop that runs when they are made; a transport makes none before it is
asked for something.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, cast

import grpc
import grpc.aio
from google.protobuf.message import DecodeError
from grpc.aio import EOF  # type: ignore[attr-defined]  # not in the stubs

from bucketq.errors import (
    InvalidRequestError,
    PayloadTooLargeError,
    QueueNotFoundError,
    SupersededError,
)
from bucketq.rpc import bucketq_pb2 as pb
from bucketq.rpc.address import split_address
from bucketq.rpc.answers import read_answer
from bucketq.rpc.calls import read_pong, read_welcome, write_call, write_hello, write_ping
from bucketq.rpc.errors import error_of, refusal_of
from bucketq.rpc.grpc_listener import MAX_REQUEST_BYTES, SERVICE, GrpcListener, listen
from bucketq.rpc.grpc_session import MAX_RESPONSE_BYTES, MIB
from bucketq.rpc.messages import Answer, Answers, Call, Hello, Ping, Pong, Welcome
from bucketq.rpc.probe import is_deserted
from bucketq.rpc.status import read_refusal
from bucketq.rpc.transport import LinkLostError, NobodyThereError, Service

_MESSAGE_BYTES = 8 * MIB
_MESSAGE_CALLS = 2000
_CALL_BYTES = MAX_REQUEST_BYTES - MIB
"""The largest call that is sent: a larger message would cost the whole conversation."""
_WORTH_MEASURING_BYTES = 2 * MIB
"""Below that an estimate will do, however long the names are that it does not look at."""

_OPTIONS: tuple[tuple[str, int], ...] = (
    ("grpc.max_receive_message_length", MAX_RESPONSE_BYTES + 16 * MIB),
    ("grpc.max_send_message_length", -1),
    # What failed for another channel says nothing about this one.
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1000),
    # Retries are for whoever knows what a request does.
    ("grpc.enable_retries", 0),
    ("grpc.service_config_disable_resolution", 1),
    # A broker's address is meant as it stands.
    ("grpc.enable_http_proxy", 0),
    # A broker whose host is gone is found out while a conversation is open.
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.http2.max_pings_without_data", 0),
)

_BROKEN = (grpc.RpcError, grpc.aio.UsageError, grpc.aio.InternalError, asyncio.InvalidStateError)
"""What gRPC raises on a stream that is over, or that cannot begin."""
_Stream = Any
"""A ``StreamStreamCall`` over bytes."""


class GrpcTransport:
    """Reaches brokers, and is reached, over gRPC."""

    def __init__(self) -> None:
        """Make a transport that has nothing open."""
        self._wires: dict[GrpcWire, None] = {}

    async def ping(self, address: str, ping: Ping, timeout_s: float) -> Pong:
        """Ask whether a broker is there, over a connection of its own."""
        until_s = asyncio.get_running_loop().time() + timeout_s
        channel = _dial(address)
        try:
            method = channel.unary_unary(f"/{SERVICE}/Ping", None, None)
            body = await method(write_ping(ping).SerializeToString(), timeout=timeout_s)
            pong = read_pong(pb.PingResponse.FromString(body))
        except DecodeError as error:
            message = f"whatever listens at {address} is no broker: {error}"
            raise NobodyThereError(message) from error
        except _BROKEN as error:
            failure = await _explain(address, error, until_s)
            if isinstance(failure, LinkLostError):
                raise failure from error
            message = f"no broker of this queue at {address}: {failure}"
            raise NobodyThereError(message) from error
        finally:
            await channel.close(None)
        if ping.incarnation and pong.incarnation != ping.incarnation:
            message = f"{address} serves another queue, {pong.incarnation}"
            raise NobodyThereError(message)
        return pong

    async def open(self, address: str, hello: Hello, timeout_s: float) -> GrpcWire:
        """Begin a conversation over a connection of its own."""
        until_s = asyncio.get_running_loop().time() + timeout_s
        channel = _dial(address)
        wire: GrpcWire | None = None
        try:
            async with asyncio.timeout(timeout_s):
                method: Any = channel.stream_stream(f"/{SERVICE}/Session", None, None)
                stream = method()
                welcome = await _greet(stream, hello)
            wire = GrpcWire(self._wires, address, channel, stream, welcome)
        except TimeoutError as error:
            message = f"no answer from {address} in {timeout_s:g} s"
            raise LinkLostError(message) from error
        except DecodeError as error:
            message = f"whatever listens at {address} is no broker: {error}"
            raise NobodyThereError(message) from error
        except _BROKEN as error:
            raise await _explain(address, error, until_s) from error
        finally:
            if wire is None:
                await channel.close(None)
        return wire

    async def listen(self, address: str, service: Service) -> GrpcListener:
        """Serve at an address; port 0 takes any that is free."""
        return await listen(address, service)

    async def close(self) -> None:
        """End every conversation that is still open. Listeners are closed apart."""
        for wire in list(self._wires):
            await wire.close()


class GrpcWire:
    """One conversation, seen from the client."""

    def __init__(
        self,
        wires: dict[GrpcWire, None],
        address: str,
        channel: grpc.aio.Channel,
        stream: _Stream,
        welcome: Welcome,
    ) -> None:
        """Take a stream on which the greetings have been exchanged."""
        self._wires = wires
        self._address = address
        self._channel = channel
        self._stream = stream
        self._welcome = welcome
        self._version = welcome.version
        self._refused: list[Answer] = []
        self._reading: asyncio.Task[Any] | None = None
        self._wake = asyncio.Event()
        self._writing = asyncio.Lock()
        self._is_closed = False
        wires[self] = None

    @property
    def welcome(self) -> Welcome:
        """What the broker said at the beginning."""
        return self._welcome

    async def send(self, calls: Sequence[Call]) -> None:
        """Send calls, in one message if they fit.

        A call that cannot be sent is answered here with the reason, and harms no other. To be
        cancelled while gRPC takes a message ends the conversation.
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
            await self._stream.write(message.SerializeToString())
        except _BROKEN as error:
            raise self._lost(_say(error)) from error
        except asyncio.CancelledError as error:
            # gRPC says so as well when the stream was cancelled, and not the task that writes.
            task = asyncio.current_task()
            if self._is_closed and task is not None and not task.cancelling():
                raise self._lost("") from error
            raise

    async def receive(self) -> Answers:
        """Wait for the next answers. To be cancelled meanwhile loses none."""
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
                raise self._lost("the broker has ended it")
            message = pb.SessionResponse.FromString(body)
        except asyncio.CancelledError as error:  # Of the stream, by its closing; not of the caller.
            raise self._lost("") from error
        except (*_BROKEN, DecodeError) as error:
            raise self._lost(_say(error)) from error
        self._version = max(self._version, message.version)
        return Answers([read_answer(answer) for answer in message.answers], self._version)

    def _lost(self, why: str) -> LinkLostError:
        end = "was closed here" if self._is_closed else "is over"
        return LinkLostError(
            f"the conversation with {self._address} {end}{f': {why}' if why else ''}"
        )

    async def close(self) -> None:
        """End it. Doing so twice is no error."""
        if self._is_closed:
            return
        self._is_closed = True
        self._wires.pop(self, None)
        self._stream.cancel()
        self._wake.set()
        if self._reading is not None:
            # Nobody asks any more why it ended, and asyncio would complain of that.
            await asyncio.gather(self._reading, return_exceptions=True)
        await self._channel.close(None)


def _refuse_size(size_bytes: int) -> None:
    message = (
        f"the request has {size_bytes:,} bytes, {_CALL_BYTES:,} fit in one message: "
        "send it in several"
    )
    raise PayloadTooLargeError(message)


def _dial(address: str) -> grpc.aio.Channel:
    """Make a channel, which does not connect yet.

    gRPC would take an address for the path of a socket or the name of a resolver just as gladly,
    and this one was read from an object that others write.
    """
    try:
        split_address(address)
    except InvalidRequestError as error:
        message = f"no broker can listen there: {error}"
        raise NobodyThereError(message) from error
    return grpc.aio.insecure_channel(address, options=_OPTIONS)


async def _greet(stream: _Stream, hello: Hello) -> Welcome:
    """Exchange the first messages; raises what gRPC raises."""
    first = pb.SessionRequest(hello=write_hello(hello)).SerializeToString()
    with suppress(asyncio.InvalidStateError):  # It is over already; reading tells why.
        await stream.write(first)
    body = await stream.read()
    if body is EOF:
        message = "the stream ended without a welcome"
        raise DecodeError(message)
    response = pb.SessionResponse.FromString(body)
    if not response.HasField("welcome"):
        message = "the first message has no welcome"
        raise DecodeError(message)
    return read_welcome(response.welcome)


def _say(error: Exception) -> str:
    if isinstance(error, grpc.aio.AioRpcError):
        return f"{error.code().name}: {error.details()}"
    return str(error) or type(error).__name__


async def _explain(
    address: str, error: Exception, until_s: float
) -> LinkLostError | QueueNotFoundError | SupersededError:
    """What it means that gRPC failed: whose word is it, and is it evidence?"""
    if isinstance(error, grpc.aio.AioRpcError):
        refusal = read_refusal(error.details() or "", cast("Any", error.trailing_metadata() or ()))
        if refusal is not None:
            said = error_of(refusal)
            if isinstance(said, QueueNotFoundError | SupersededError):
                return said
            return LinkLostError(f"the broker at {address} refused: {said}")
        if error.code() is grpc.StatusCode.UNIMPLEMENTED:
            return NobodyThereError(f"what listens at {address} is no broker: {_say(error)}")
    left_s = until_s - asyncio.get_running_loop().time()
    if left_s > 0 and await is_deserted(address, left_s):
        return NobodyThereError(f"no broker listens at {address}: {_say(error)}")
    return LinkLostError(f"cannot reach {address}: {_say(error)}")
