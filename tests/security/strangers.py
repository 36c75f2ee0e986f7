"""What somebody can say to a broker who follows no rules: bare messages on a bare stream."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import grpc.aio

from bucketq.rpc import bucketq_pb2 as pb
from bucketq.rpc.grpc_listener import SERVICE

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
        """Send a message; where the broker has ended it already, ``hear`` tells why."""
        with suppress(grpc.aio.AioRpcError):
            await self.stream.write(pb.SessionRequest(**fields).SerializeToString())

    async def hear(self) -> pb.SessionResponse:
        """The next message; raises ``AioRpcError`` where the broker has ended it."""
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
