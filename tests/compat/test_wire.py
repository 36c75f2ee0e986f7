"""Clients and brokers of different versions exchange messages of any size.

The first clients send every message in one piece, and the first brokers take it so. Newer ones cut
a large message into parts.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import grpc.aio
import msgspec
import pytest
from msgspec import Raw

from bucketq.model.base import NewJob
from bucketq.model.operations import Push, Request
from bucketq.rpc.grpc import grpc_server
from bucketq.rpc.grpc.grpc_client import GrpcTransport
from bucketq.rpc.grpc.grpc_stream import ServerStream
from bucketq.rpc.messages import Answer, Call, Hello, Welcome
from bucketq.rpc.protobuf import bucketq_pb2 as pb
from bucketq.rpc.protobuf.answer_codec import read_answer, write_answer
from bucketq.rpc.protobuf.call_codec import SERVICE
from tests.unit.rpc import service as services
from tests.unit.rpc.samples import STATS
from tests.unit.rpc.service import FakeService

MIB = 1024 * 1024
OLD_LIMIT_BYTES = 128 * MIB
"""The largest message that the first brokers take."""
OLD_MESSAGE_BYTES = 8 * MIB
"""The first clients send a message when it has so many bytes of calls."""


@pytest.fixture
async def transport() -> AsyncIterator[GrpcTransport]:
    transport = GrpcTransport()
    yield transport
    await transport.close()


def push(size_bytes: int) -> Request:
    payload = Raw(b'"' + b"x" * (size_bytes - 2) + b'"')
    return Request(Push(jobs=(NewJob(id="j", kind="mail", payload=payload),)), "s", 1, 0)


@pytest.mark.parametrize("added", [(), ("release_many",)])
async def test_an_older_broker_gets_a_large_message_in_one_piece(
    transport: GrpcTransport, monkeypatch: pytest.MonkeyPatch, added: tuple[str, ...]
) -> None:
    options = dict(grpc_server._OPTIONS) | {"grpc.max_receive_message_length": OLD_LIMIT_BYTES}
    monkeypatch.setattr(grpc_server, "_OPTIONS", tuple(options.items()))
    monkeypatch.setattr(ServerStream, "_keep_part", ignore)
    older = Welcome(incarnation="i1", broker="b1", epoch=2, version=7, operations=added)
    monkeypatch.setattr(services, "WELCOME", older)
    service = FakeService()
    service.value = ("j",)
    listener = await transport.listen("127.0.0.1:0", service)
    wire = await transport.open(listener.address, Hello(), 5.0)
    for tag, size_mib in enumerate((1, 3, 20)):
        await wire.send([Call(tag, push(size_mib * MIB), 30.0)])
        assert (await wire.receive()).answers == [Answer(tag, ("j",))]
    await wire.close()
    await listener.close()


async def test_a_newer_broker_gets_a_large_message_in_small_ones(
    transport: GrpcTransport, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = dict(grpc_server._OPTIONS) | {"grpc.max_receive_message_length": 2 * MIB}
    monkeypatch.setattr(grpc_server, "_OPTIONS", tuple(options.items()))
    service = FakeService()
    service.value = ("j",)
    listener = await transport.listen("127.0.0.1:0", service)
    wire = await transport.open(listener.address, Hello(), 5.0)
    await wire.send([Call(1, push(20 * MIB), 30.0)])
    assert (await wire.receive()).answers == [Answer(1, ("j",))]
    await wire.close()
    await listener.close()


@pytest.mark.parametrize("size_bytes", [MIB, 3 * MIB, 2 * OLD_MESSAGE_BYTES - MIB])
async def test_an_older_client_may_send_a_large_message_in_one_piece(
    transport: GrpcTransport, size_bytes: int
) -> None:
    """It adds calls until they have 8 MiB: with the last one there may be more."""
    service = FakeService()
    service.value = ("j",)
    listener = await transport.listen("127.0.0.1:0", service)
    channel = grpc.aio.insecure_channel(listener.address)
    method: Any = channel.stream_stream(f"/{SERVICE}/Session", None, None)
    stream = method()
    await stream.write(pb.SessionRequest(hello=pb.Hello()).SerializeToString())
    await stream.read()
    half = pb.Push(jobs=[pb.NewJob(id="j", kind="mail", payload=b"1" * (size_bytes // 2))])
    calls = [pb.Call(tag=tag, session="s", number=tag, push=half) for tag in (1, 2)]
    await stream.write(pb.SessionRequest(calls=calls).SerializeToString())
    found: list[Answer] = []
    while len(found) < len(calls):
        message = pb.SessionResponse.FromString(await stream.read())
        found += map(read_answer, message.answers)
    assert found == [Answer(1, ("j",)), Answer(2, ("j",))]
    stream.cancel()
    await channel.close(None)
    await listener.close()


FIRST_STATS = (
    b'{"version":7,"counts":{"mail":{"queued":2}},"oldest_queued_s":1.5,"bytes":1234,'
    b'"paused":false,"paused_kinds":[],"broker":null,"keys":0,"sessions":1}'
)
"""What the first brokers answer, which know no segments."""


def test_an_older_broker_knows_no_segments() -> None:
    found = read_answer(pb.Answer(tag=1, stats=pb.Document(json=FIRST_STATS))).value
    assert (found.bytes, found.head_bytes) == (1234, 1234)
    assert (found.segments, found.segment_bytes) == (0, 0)


def test_an_older_client_finds_all_that_it_knows_in_the_numbers() -> None:
    written = pb.SessionResponse()
    write_answer(written.answers, Answer(1, STATS), "stats")
    sent = msgspec.json.decode(written.answers[0].stats.json)
    older = msgspec.json.decode(FIRST_STATS)
    assert [name for name in sent if name in older] == [*older]
    newer = {"incarnation", "segments", "segment_bytes", "limited", "held", "partitions", "pushed"}
    newer |= {"delayed", "commit_stats", "samples"}
    assert set(sent) - set(older) == newer
    assert sent["bytes"] == STATS.bytes, "all of the queue, as before"


def ignore(_session: ServerStream, _part: bytes) -> None:
    """An older broker knows no such field."""
    raise AssertionError("an older broker was sent a part")
