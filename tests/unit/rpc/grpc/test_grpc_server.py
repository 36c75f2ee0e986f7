"""Where a broker listens: addresses, endings, and what strangers may do."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import grpc
import grpc.aio
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from bucketq import errors
from bucketq.model import operations as ops
from bucketq.rpc.grpc import admission, grpc_server, grpc_stream
from bucketq.rpc.grpc.grpc_client import GrpcTransport
from bucketq.rpc.grpc.grpc_server import GrpcListener
from bucketq.rpc.messages import Answer, Answers, Call, Hello, Ping
from bucketq.rpc.protobuf import bucketq_pb2 as pb
from bucketq.rpc.protobuf.answer_codec import read_answer
from bucketq.rpc.protobuf.call_codec import PING_KEY, SERVICE
from bucketq.rpc.refusals import error_of
from bucketq.rpc.transport import ConnectionLostError, NoBrokerThereError
from tests.unit.rpc.service import PONG, FakeService

CALL = pb.Call(tag=3, pause=pb.Pause())
HOUR_MS = 3_600_000
RELEASE = ops.Request(ops.Release(job="j", lease="l"), "s", 1, 0)


def session(channel: Any) -> Any:
    return channel.stream_stream(f"/{SERVICE}/Session", None, None)()


async def greeted(channel: Any) -> Any:
    stream = session(channel)
    await stream.write(pb.SessionRequest(hello=pb.Hello()).SerializeToString())
    await stream.read()
    return stream


async def answers_of(stream: Any) -> list[Answer]:
    message = pb.SessionResponse.FromString(await stream.read())
    return [read_answer(answer) for answer in message.answers]


async def test_port_zero_takes_a_free_port_and_reports_it(listener: GrpcListener) -> None:
    host, _, port = listener.address.rpartition(":")
    assert host == "127.0.0.1"
    assert int(port) > 0


@pytest.mark.parametrize("host", ["localhost", "0.0.0.0"])
async def test_a_name_and_all_interfaces_can_be_listened_at(
    transport: GrpcTransport, service: FakeService, host: str
) -> None:
    listener = await transport.listen(f"{host}:0", service)
    port = listener.address.rpartition(":")[2]
    assert listener.address == f"{host}:{port}"
    assert await transport.ping(f"127.0.0.1:{port}", Ping(), 60.0) == PONG
    await listener.close()


async def test_a_port_cannot_be_shared(
    transport: GrpcTransport,
    listener: GrpcListener,
    service: FakeService,
    capfd: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(errors.InvalidRequestError, match="in use"):
        await transport.listen(listener.address, service)
    assert capfd.readouterr().err == ""


async def test_grpc_itself_does_not_share_a_port_either(
    transport: GrpcTransport,
    listener: GrpcListener,
    service: FakeService,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def looks_free(host: str, port: int) -> int:
        del host, port
        return 1

    monkeypatch.setattr(grpc_server, "_count_free", looks_free)
    with pytest.raises(errors.InvalidRequestError, match="cannot listen"):
        await transport.listen(listener.address, service)


@pytest.mark.parametrize(
    "address", ["", "nonsense", "unix:/tmp/socket", "127.0.0.1:99999", "203.0.113.1:0", "a b:1"]
)
async def test_an_address_that_cannot_be_bound_is_refused(
    transport: GrpcTransport, service: FakeService, address: str
) -> None:
    with pytest.raises(errors.InvalidRequestError):
        await transport.listen(address, service)


async def test_a_restarted_broker_is_reachable_at_once_on_its_old_port(
    transport: GrpcTransport, service: FakeService, set_channel_option: Callable[[str, int], None]
) -> None:
    """A dial that failed delays none that follows, however long gRPC waits between two."""
    set_channel_option("grpc.initial_reconnect_backoff_ms", HOUR_MS)
    set_channel_option("grpc.max_reconnect_backoff_ms", HOUR_MS)
    listener = await transport.listen("127.0.0.1:0", service)
    wire = await transport.open(listener.address, Hello(), 60.0)
    for _ in range(3):
        await listener.close()
        with pytest.raises(ConnectionLostError):
            await wire.receive()
        for _ in range(3):
            with pytest.raises(NoBrokerThereError):
                await transport.ping(listener.address, Ping(), 60.0)
            with pytest.raises(NoBrokerThereError):
                await transport.open(listener.address, Hello(), 60.0)
        listener = await transport.listen(listener.address, service)
        assert await transport.ping(listener.address, Ping(), 60.0) == PONG
        wire = await transport.open(listener.address, Hello(), 60.0)
    await listener.close()


async def test_a_listener_that_closes_lets_pending_calls_finish(
    transport: GrpcTransport, service: FakeService
) -> None:
    service.answers_at_once = False
    listener = await transport.listen("127.0.0.1:0", service)
    busy = await transport.open(listener.address, Hello(), 60.0)
    idle = await transport.open(listener.address, Hello(), 60.0)
    await busy.send([Call(1, RELEASE, 30.0)])
    connection = service.connections[0]
    await connection.heard.wait()
    closing = asyncio.ensure_future(listener.close(grace_s=30.0))
    with pytest.raises(ConnectionLostError, match="stopping"):
        await idle.receive()
    with pytest.raises(ConnectionLostError):
        await transport.open(listener.address, Hello(), 60.0)
    connection.send(Answers([Answer(1)]))
    assert (await busy.receive()).answers == [Answer(1)]
    async with asyncio.timeout(60):
        await closing
    with pytest.raises(ConnectionLostError, match="stopping"):
        await busy.receive()
    assert connection.closed.is_set()


async def test_a_listener_waits_no_longer_than_its_grace(
    transport: GrpcTransport, service: FakeService, capfd: pytest.CaptureFixture[str]
) -> None:
    service.answers_at_once = False
    listener = await transport.listen("127.0.0.1:0", service)
    wire = await transport.open(listener.address, Hello(), 60.0)
    await wire.send([Call(1, RELEASE, 30.0)])
    await service.connections[0].heard.wait()
    async with asyncio.timeout(60):
        await listener.close(grace_s=0.01)
    await listener.close()
    with pytest.raises(ConnectionLostError, match="stopping"):
        await wire.receive()
    assert service.connections[0].closed.is_set()
    assert capfd.readouterr().err == ""


async def test_a_listener_closes_on_a_client_that_never_said_hello(
    transport: GrpcTransport, service: FakeService
) -> None:
    listener = await transport.listen("127.0.0.1:0", service)
    async with grpc.aio.insecure_channel(listener.address) as channel:
        stream = session(channel)
        await stream.wait_for_connection()
        async with asyncio.timeout(60):
            await listener.close()


async def test_a_client_that_never_says_hello_is_sent_away(
    channel: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(admission, "TOKEN_S", 0.01)
    with pytest.raises(grpc.aio.AioRpcError, match="hello") as caught:
        await session(channel).read()
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT


@pytest.mark.parametrize(
    "body", [b"", b"\xff\xff", pb.SessionRequest(calls=[{}]).SerializeToString()]
)
async def test_a_session_must_begin_with_hello(
    channel: Any, service: FakeService, body: bytes
) -> None:
    stream = session(channel)
    await stream.write(body)
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await stream.read()
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert service.connections == []


async def test_a_client_that_leaves_without_notice_does_no_harm(
    channel: Any, service: FakeService
) -> None:
    stream = session(channel)
    await stream.done_writing()
    assert await stream.read() == grpc.aio.EOF  # type: ignore[attr-defined]
    stream = await greeted(channel)
    await stream.done_writing()
    assert await stream.read() == grpc.aio.EOF  # type: ignore[attr-defined]
    assert service.connections[0].closed.is_set()


async def test_calls_may_come_along_with_hello(channel: Any) -> None:
    stream = session(channel)
    call = pb.Call(tag=3, pause=pb.Pause())
    await stream.write(pb.SessionRequest(hello=pb.Hello(), calls=[call]).SerializeToString())
    first = pb.SessionResponse.FromString(await stream.read())
    assert first.welcome.broker == "b1"
    assert await answers_of(stream) == [Answer(3)]
    stream.cancel()


async def test_an_invalid_call_in_a_message_fails_alone(channel: Any, service: FakeService) -> None:
    stream = await greeted(channel)
    later = pb.Call(tag=3)
    later.MergeFromString(b"\xf2\x07\x00")
    calls = [
        pb.Call(tag=1, pause=pb.Pause()),
        pb.Call(tag=2),
        later,
        pb.Call(tag=4, claim=pb.Claim(wait_s=float("nan"))),
        pb.Call(tag=5, configure=pb.Configure(changes=b"{")),
        pb.Call(tag=1, resume=pb.Resume()),
        pb.Call(tag=6, pause=pb.Pause()),
    ]
    await stream.write(pb.SessionRequest(calls=calls).SerializeToString())
    answers = await answers_of(stream)
    refused = [answer.tag for answer in answers if answer.refusal is not None]
    assert refused == [2, 3, 4, 5, 1]
    assert {answer.refusal.kind for answer in answers if answer.refusal} == {"InvalidRequestError"}
    assert [answer.tag for answer in answers if answer.refusal is None] == [1, 6]
    assert service.connections[0].messages == [2]
    stream.cancel()


async def test_calls_beyond_the_limit_of_a_message_are_rejected_with_a_hint(
    channel: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(grpc_stream, "MAX_CALLS", 2)
    stream = await greeted(channel)
    calls = [pb.Call(tag=tag, pause=pb.Pause()) for tag in range(3)]
    await stream.write(pb.SessionRequest(calls=calls).SerializeToString())
    answers = {answer.tag: answer for answer in await answers_of(stream)}
    assert answers[0] == Answer(0)
    assert answers[1] == Answer(1)
    assert answers[2].refusal is not None
    assert type(error_of(answers[2].refusal)) is errors.OverloadedError
    stream.cancel()


async def test_bytes_that_are_no_message_end_their_own_session_only(
    transport: GrpcTransport, listener: GrpcListener, channel: Any
) -> None:
    wire = await transport.open(listener.address, Hello(), 60.0)
    stream = await greeted(channel)
    await stream.write(b"\xff\xff\xff")
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await stream.read()
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    await wire.send([Call(1, RELEASE, 5.0)])
    assert (await wire.receive()).answers == [Answer(1)]


async def test_a_message_that_is_too_large_ends_its_own_session_only(
    transport: GrpcTransport, service: FakeService, monkeypatch: pytest.MonkeyPatch
) -> None:
    small = [option for option in grpc_server._OPTIONS if "receive" not in option[0]]
    limit = ("grpc.max_receive_message_length", 10_000)
    monkeypatch.setattr(grpc_server, "_OPTIONS", (*small, limit))
    listener = await transport.listen("127.0.0.1:0", service)
    other = await transport.open(listener.address, Hello(), 60.0)
    async with grpc.aio.insecure_channel(listener.address) as channel:
        stream = await greeted(channel)
        await stream.write(bytes(20_000))
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await stream.read()
        assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    await other.send([Call(1, RELEASE, 5.0)])
    assert (await other.receive()).answers == [Answer(1)]
    await listener.close()


async def test_a_fault_of_the_broker_ends_the_session_and_is_logged(
    transport: GrpcTransport,
    listener: GrpcListener,
    service: FakeService,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def fail(call: Call) -> Answer:
        raise ZeroDivisionError(f"a fault at {call.tag}")

    service.answer = fail  # type: ignore[method-assign]
    wire = await transport.open(listener.address, Hello(), 60.0)
    await wire.send([Call(1, RELEASE, 5.0)])
    with pytest.raises(ConnectionLostError, match="a fault at 1"):
        await wire.receive()
    assert "a session failed" in caplog.text


async def test_calls_that_the_broker_dropped_are_forgotten(
    transport: GrpcTransport,
    listener: GrpcListener,
    service: FakeService,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(grpc_stream, "_MANY", 0)
    monkeypatch.setattr(grpc_stream, "_LATE_S", -60.0)
    service.answers_at_once = False
    wire = await transport.open(listener.address, Hello(), 60.0)
    for tag in (1, 2, 3):
        connection = service.connections[0]
        connection.heard.clear()
        await wire.send([Call(tag, RELEASE, 5.0)])
        await connection.heard.wait()
    connection.send(Answers([Answer(1), Answer(3)]))
    assert (await wire.receive()).answers == [Answer(3)]


async def test_a_client_that_never_shows_its_token_is_sent_away(
    channel: Any, service: FakeService, monkeypatch: pytest.MonkeyPatch
) -> None:
    service.is_open = False
    monkeypatch.setattr(admission, "TOKEN_S", 0.2)
    stream = await greeted(channel)
    with pytest.raises(grpc.aio.AioRpcError, match="token") as caught:
        await stream.read()
    assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
    assert service.connections[0].closed.is_set()


async def test_a_client_that_shows_its_token_stays(
    channel: Any, service: FakeService, monkeypatch: pytest.MonkeyPatch
) -> None:
    service.is_open = False
    stream = await greeted(channel)
    await stream.write(pb.SessionRequest(token="t").SerializeToString())
    connection = service.connections[0]
    await stream.write(pb.SessionRequest(calls=[CALL]).SerializeToString())
    assert await answers_of(stream) == [Answer(3)]
    assert connection.shown == ["t"]
    stream.cancel()


async def test_calls_that_come_before_the_token_reach_no_broker(
    channel: Any, service: FakeService
) -> None:
    service.is_open = False
    stream = await greeted(channel)
    await stream.write(pb.SessionRequest(calls=[CALL]).SerializeToString())
    [answer] = await answers_of(stream)
    assert answer.refusal is not None
    assert answer.refusal.kind == "AccessDeniedError"
    await stream.write(pb.SessionRequest(calls=[CALL] * 101).SerializeToString())
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await stream.read()
    assert caught.value.code() is grpc.StatusCode.UNAUTHENTICATED
    assert service.connections[0].calls == []


async def test_a_request_in_parts_is_put_together(channel: Any, service: FakeService) -> None:
    stream = await greeted(channel)
    body = pb.SessionRequest(calls=[CALL]).SerializeToString()
    for index, more in enumerate([True] * (len(body) - 1) + [False]):
        part = pb.SessionRequest(part=body[index : index + 1], more=more)
        await stream.write(part.SerializeToString())
    assert await answers_of(stream) == [Answer(3)]
    assert service.connections[0].messages == [1]
    stream.cancel()


async def test_a_request_in_parts_has_a_limit(
    channel: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(grpc_stream, "MAX_REQUEST_BYTES", 1000)
    stream = await greeted(channel)
    for _ in range(3):
        await stream.write(pb.SessionRequest(part=bytes(400), more=True).SerializeToString())
    with pytest.raises(grpc.aio.AioRpcError, match="1,000 are allowed"):
        await stream.read()


async def test_parts_of_a_client_that_left_are_not_counted_any_more(
    channel: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(admission, "MAX_PARTS_BYTES", 1000)
    for _ in range(3):
        stream = await greeted(channel)
        await stream.write(pb.SessionRequest(part=bytes(900), more=True).SerializeToString())
        await stream.write(pb.SessionRequest(part=bytes(900), more=True).SerializeToString())
        with pytest.raises(grpc.aio.AioRpcError, match="900 bytes of unfinished"):
            await stream.read()


async def test_a_ping_may_bring_its_request_in_metadata(channel: Any, service: FakeService) -> None:
    method = channel.unary_unary(f"/{SERVICE}/Ping", None, None)
    for metadata in ((), ((PING_KEY, pb.PingRequest().SerializeToString()),)):
        assert pb.PingResponse.FromString(await method(b"", metadata=metadata)).broker == "b1"
    service.at_ping = errors.QueueNotFoundError("no such queue")
    with pytest.raises(grpc.aio.AioRpcError, match="no such queue") as caught:
        await method(b"", metadata=((PING_KEY, b""),))
    assert caught.value.code() is grpc.StatusCode.NOT_FOUND


async def test_the_health_of_a_broker_cannot_be_watched(channel: Any) -> None:
    watch = health_pb2_grpc.HealthStub(channel).Watch(health_pb2.HealthCheckRequest())
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await watch.read()
    assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED


async def test_sessions_and_calls_without_a_token_are_few_on_one_connection(
    channel: Any, service: FakeService, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(admission, "MAX_UNAUTHENTICATED_EACH", 2)
    service.is_open = False
    held = [await greeted(channel) for _ in range(2)]
    push = channel.unary_unary(f"/{SERVICE}/Push", None, None)
    health = channel.unary_unary("/grpc.health.v1.Health/Check", None, None)
    for refused in (session(channel).read(), push(b""), health(b"")):
        with pytest.raises(grpc.aio.AioRpcError, match="this connection") as caught:
            await refused
        assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    await held[0].write(pb.SessionRequest(token="t", calls=[CALL]).SerializeToString())
    assert await answers_of(held[0]) == [Answer(3)]
    assert await health(b"")
    for stream in held:
        stream.cancel()
