"""A client that ignores the protocol: it sends any message on a stream."""

from __future__ import annotations

import asyncio
import struct
from contextlib import suppress
from typing import Any

import grpc.aio
import h2.config
import h2.connection
import h2.events
import h2.exceptions

from bucketq.rpc.protobuf import bucketq_pb2 as pb
from bucketq.rpc.protobuf.call_codec import SERVICE

NONCE = bytes(range(16))


def push_of(job: str = "j1", payload: bytes = b"1", kind: str = "mail") -> pb.Push:
    """A push of one job."""
    return pb.Push(jobs=[pb.NewJob(id=job, kind=kind, payload=payload)])


class Stream:
    """A session, message by message."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        method: Any = channel.stream_stream(f"/{SERVICE}/Session", None, None)
        self.stream = method()

    async def say(self, **fields: Any) -> None:
        """Send a message; if the broker has ended the stream already, ``hear`` raises why."""
        with suppress(grpc.aio.AioRpcError):
            await self.stream.write(pb.SessionRequest(**fields).SerializeToString())

    async def hear(self) -> pb.SessionResponse:
        """The next message; raises ``AioRpcError`` if the broker has ended the stream."""
        body = await self.stream.read()
        if body is grpc.aio.EOF:  # type: ignore[attr-defined]  # not in the stubs
            raise await self.end()
        return pb.SessionResponse.FromString(body)

    async def end(self) -> grpc.aio.AioRpcError:
        """Why the broker has ended it."""
        return grpc.aio.AioRpcError(
            await self.stream.code(),
            await self.stream.initial_metadata(),
            await self.stream.trailing_metadata(),
            await self.stream.details(),
            None,
        )

    async def ask(self, tag: int, **operation: Any) -> pb.Answer:
        """Send one call, and wait for its answer."""
        await self.say(calls=[pb.Call(tag=tag, ttl_ms=10_000, **operation)])
        while True:
            for answer in (await self.hear()).answers:
                if answer.tag == tag:
                    return answer


async def unary(
    channel: grpc.aio.Channel, verb: str, request: Any, *metadata: tuple[str, str]
) -> bytes:
    """One unary call, in bytes; raises ``AioRpcError``."""
    method: Any = channel.unary_unary(f"/{SERVICE}/{verb}", None, None)
    answer: bytes = await method(request.SerializeToString(), timeout=10, metadata=metadata)
    return answer


class Hoarder:
    """A connection in bare HTTP/2 whose streams begin messages and never finish them."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._wire = h2.connection.H2Connection(h2.config.H2Configuration(header_encoding="utf-8"))
        self._left: dict[int, int] = {}
        """How many bytes each stream has still to send."""
        self._writer: asyncio.StreamWriter | None = None
        self._reading: asyncio.Task[None] | None = None
        self.ended = 0
        """How many of its streams the broker has ended."""
        self.is_closed = False
        """Whether the broker has closed the connection."""

    async def connect(self) -> None:
        host, _, port = self._address.rpartition(":")
        reader, self._writer = await asyncio.open_connection(host, int(port))
        self._wire.initiate_connection()
        self._writer.write(self._wire.data_to_send())
        self._reading = asyncio.get_running_loop().create_task(self._read(reader))

    def begin(self, path: str, declared_bytes: int, sent_bytes: int) -> None:
        """Open a stream, and declare a message of which only a part will be sent."""
        stream = self._wire.get_next_available_stream_id()
        headers = [
            (":method", "POST"),
            (":scheme", "http"),
            (":path", path),
            (":authority", self._address),
            ("content-type", "application/grpc"),
            ("te", "trailers"),
        ]
        self._wire.send_headers(stream, headers)
        self._wire.send_data(stream, struct.pack(">?I", False, declared_bytes))
        self._left[stream] = sent_bytes

    async def send(self, for_s: float) -> int:
        """Send as much as the broker takes, until it takes no more; returns how many bytes."""
        assert self._writer is not None
        sent, now = 0, asyncio.get_running_loop().time
        until = now() + for_s
        while self._left and not self.is_closed and now() < until:
            before = sent
            for stream in list(self._left):
                sent += self._send_some(stream)
            with suppress(ConnectionError):
                self._writer.write(self._wire.data_to_send())
                await self._writer.drain()
            await asyncio.sleep(0 if sent > before else 0.02)
        return sent

    def _send_some(self, stream: int) -> int:
        try:
            room = self._wire.local_flow_control_window(stream)
            size = min(room, self._wire.max_outbound_frame_size, self._left[stream])
            if size > 0:
                self._wire.send_data(stream, bytes(size))
        except h2.exceptions.ProtocolError:
            del self._left[stream]
            return 0
        self._left[stream] -= max(size, 0)
        return max(size, 0)

    async def _read(self, reader: asyncio.StreamReader) -> None:
        with suppress(ConnectionError, h2.exceptions.ProtocolError):
            while data := await reader.read(65536):
                for event in self._wire.receive_data(data):
                    if isinstance(event, h2.events.StreamReset | h2.events.StreamEnded):
                        self.ended += self._left.pop(event.stream_id or 0, None) is not None
                assert self._writer is not None
                self._writer.write(self._wire.data_to_send())
        self.is_closed = True

    async def close(self) -> None:
        if self._writer is not None and self._reading is not None:
            self._writer.transport.abort()
            self._reading.cancel()
            await asyncio.gather(self._reading, return_exceptions=True)
