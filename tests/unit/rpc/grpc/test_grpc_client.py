"""gRPC as a transport, over a real loopback."""

from __future__ import annotations

import asyncio
import gc
from typing import Any

import pytest
from msgspec import Raw

from bucketq import errors
from bucketq.model import operations as ops
from bucketq.model.base import NewJob
from bucketq.rpc.grpc import grpc_client, grpc_stream
from bucketq.rpc.grpc.grpc_client import GrpcConnection, GrpcTransport
from bucketq.rpc.grpc.grpc_server import GrpcListener
from bucketq.rpc.messages import Answer, Answers, Call, FlushArchive, Hello, Ping
from bucketq.rpc.protobuf.operation_codec import VERBS
from bucketq.rpc.refusals import error_of, refusal_of
from bucketq.rpc.transport import (
    Connection,
    ConnectionLostError,
    Listener,
    NoBrokerThereError,
    Transport,
)
from tests.unit.rpc.protobuf.test_answer_codec import ERRORS
from tests.unit.rpc.samples import ANSWERS, OPERATIONS
from tests.unit.rpc.service import PONG, WELCOME, FakeService


def call(operation: ops.AnyOperation | FlushArchive, tag: int = 1) -> Call:
    if isinstance(operation, FlushArchive):
        return Call(tag, operation, 5.0)
    return Call(tag, ops.Request(operation, "s", 2, 1), 5.0)


def gets(count: int) -> list[Call]:
    return [call(ops.Release(job=f"j{tag}", lease="l"), tag) for tag in range(count)]


SENDERS: dict[str, ops.AnyOperation | FlushArchive] = {
    verb: next(op for op in OPERATIONS if type(op).__name__.lower() == name)
    for verb, name in {
        **{verb: verb.replace("_", "") for verb in VERBS},
        "stats": "readstats",
        "snapshot": "readsnapshot",
        "tokens": "readtokens",
        "consumers": "readconsumers",
        "schedules": "readschedules",
        "limits": "readlimits",
        "batches": "readbatches",
        "workers": "readworkers",
        "drain": "drainworker",
        "audit": "readaudit",
    }.items()
}


async def send_one_by_one(wire: GrpcConnection, calls: list[Call]) -> None:
    for one in calls:
        await wire.send([one])


async def collect(wire: GrpcConnection, count: int) -> list[Answer]:
    got: list[Answer] = []
    while len(got) < count:
        got.extend((await wire.receive()).answers)
    return got


def test_grpc_is_a_transport(transport: GrpcTransport, listener: GrpcListener) -> None:
    seam: Transport = transport
    place: Listener = listener
    assert seam is transport
    assert place is listener


async def test_a_connection_begins_with_hello_and_welcome(
    transport: GrpcTransport, listener: GrpcListener, service: FakeService
) -> None:
    hello = Hello(queue="q", incarnation="i1", broker="b1", client="me")
    wire: Connection = await transport.open(listener.address, hello, 60.0)
    assert wire.welcome == WELCOME
    assert service.connections[0].hello == hello


async def test_every_operation_arrives_as_it_was_sent(
    transport: GrpcTransport, listener: GrpcListener, service: FakeService
) -> None:
    service.error = errors.RejectedError("no")
    wire = await transport.open(listener.address, Hello(), 60.0)
    calls = [call(operation, tag) for tag, operation in enumerate(OPERATIONS)]
    await wire.send(calls)
    await collect(wire, len(calls))
    assert service.connections[0].calls == calls
    assert service.connections[0].messages == [len(calls)]


@pytest.mark.parametrize(("verb", "value"), ANSWERS, ids=[verb for verb, _ in ANSWERS])
async def test_every_answer_arrives_as_it_was_given(
    transport: GrpcTransport, listener: GrpcListener, service: FakeService, verb: str, value: Any
) -> None:
    service.value = value
    wire = await transport.open(listener.address, Hello(), 60.0)
    await wire.send([call(SENDERS[verb], 4)])
    assert await wire.receive() == Answers([Answer(4, value)], version=8)


async def test_every_error_arrives_as_the_class_that_it_was(
    transport: GrpcTransport, listener: GrpcListener, service: FakeService
) -> None:
    wire = await transport.open(listener.address, Hello(), 60.0)
    for kind in ERRORS:
        service.error = kind("what happened")
        await wire.send([call(ops.Get(job="j"))])
        (answer,) = (await wire.receive()).answers
        assert answer.refusal is not None
        assert type(error_of(answer.refusal)) is kind


async def test_answers_may_come_in_any_order_and_in_any_pieces(
    transport: GrpcTransport, listener: GrpcListener, service: FakeService
) -> None:
    service.answers_at_once = False
    wire = await transport.open(listener.address, Hello(), 60.0)
    await wire.send(gets(5))
    connection = service.connections[0]
    await connection.heard.wait()
    connection.send(Answers([Answer(3)], version=9))
    assert await wire.receive() == Answers([Answer(3)], version=9)
    connection.send(Answers([Answer(4), Answer(0)], version=10))
    connection.send(Answers([Answer(2), Answer(1)], version=11))
    assert await wire.receive() == Answers([Answer(4), Answer(0), Answer(2), Answer(1)], version=11)


async def test_an_answer_to_nothing_and_a_second_answer_go_nowhere(
    transport: GrpcTransport, listener: GrpcListener, service: FakeService
) -> None:
    service.answers_at_once = False
    wire = await transport.open(listener.address, Hello(), 60.0)
    await wire.send(gets(1))
    connection = service.connections[0]
    await connection.heard.wait()
    connection.send(Answers([Answer(77), Answer(0), Answer(0)], version=9))
    assert await wire.receive() == Answers([Answer(0)], version=9)


async def test_a_sign_of_life_is_a_message_without_answers(
    transport: GrpcTransport, listener: GrpcListener, service: FakeService
) -> None:
    wire = await transport.open(listener.address, Hello(), 60.0)
    service.connections[0].send(Answers([], version=12))
    assert await wire.receive() == Answers([], version=12)


async def test_ten_thousand_calls_are_cut_into_messages_and_all_answered(
    transport: GrpcTransport, listener: GrpcListener, service: FakeService
) -> None:
    wire = await transport.open(listener.address, Hello(), 60.0)
    await wire.send(gets(10_000))
    answers = await collect(wire, 10_000)
    assert [answer.tag for answer in answers] == list(range(10_000))
    assert service.connections[0].messages == [2000] * 5


async def test_large_calls_go_in_messages_of_their_own(
    transport: GrpcTransport, listener: GrpcListener, service: FakeService
) -> None:
    payload = Raw(b'"' + b"x" * 3_000_000 + b'"')
    push = ops.Push(jobs=(NewJob(id="j", kind="k", payload=payload),))
    service.value = ("j",)
    wire = await transport.open(listener.address, Hello(), 60.0)
    await wire.send([call(push, tag) for tag in range(6)])
    await collect(wire, 6)
    assert service.connections[0].messages == [3, 3]


async def test_large_answers_go_in_messages_of_their_own(
    transport: GrpcTransport, listener: GrpcListener, service: FakeService
) -> None:
    service.answers_at_once = False
    wire = await transport.open(listener.address, Hello(), 60.0)
    await wire.send([call(ops.Push(jobs=()), tag) for tag in range(6)])
    connection = service.connections[0]
    await connection.heard.wait()
    ids = tuple("x" * 30 for _ in range(60_000))
    connection.send(Answers([Answer(tag, ids) for tag in range(6)], version=9))
    sizes = [len((await wire.receive()).answers) for _ in range(3)]
    assert sizes == [2, 2, 2]


async def test_a_call_that_is_too_large_is_answered_so_and_harms_no_other(
    transport: GrpcTransport, listener: GrpcListener, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(grpc_client, "_CALL_BYTES", 10_000)
    monkeypatch.setattr(grpc_client, "_WORTH_MEASURING_BYTES", 5_000)
    wire = await transport.open(listener.address, Hello(), 60.0)
    huge = ops.Complete(job="j", lease="l", result=Raw(b'"' + b"x" * 20_000 + b'"'))
    await wire.send([call(ops.Pause(), 1), call(huge, 2), call(ops.Resume(), 3)])
    answers = {answer.tag: answer for answer in await collect(wire, 3)}
    assert answers[1] == Answer(1)
    assert answers[3] == Answer(3)
    refusal = answers[2].refusal
    assert refusal is not None
    assert refusal.kind == "PayloadTooLargeError"
    assert "10,000" in refusal.message


async def test_an_answer_that_is_too_large_is_refused_and_harms_no_other(
    transport: GrpcTransport,
    listener: GrpcListener,
    service: FakeService,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(grpc_stream, "MAX_RESPONSE_BYTES", 10_000)
    service.value = tuple("x" * 30 for _ in range(1000))
    wire = await transport.open(listener.address, Hello(), 60.0)
    await wire.send([call(ops.Push(jobs=()))])
    (answer,) = await collect(wire, 1)
    assert answer.refusal is not None
    assert answer.refusal.kind == "PayloadTooLargeError"


async def test_a_call_that_cannot_be_written_wakes_a_receiver_that_waits_already(
    transport: GrpcTransport, listener: GrpcListener, service: FakeService
) -> None:
    wire = await transport.open(listener.address, Hello(), 60.0)
    waiting = asyncio.ensure_future(wire.receive())
    await wire.send([call(ops.Tidy(), 5)])
    (answer,) = (await waiting).answers
    assert answer.tag == 5
    assert answer.refusal is not None
    assert answer.refusal.kind == "InvalidRequestError"
    assert service.connections[0].calls == []


async def test_a_cancelled_receiver_loses_no_answer(
    transport: GrpcTransport, listener: GrpcListener, service: FakeService
) -> None:
    service.answers_at_once = False
    wire = await transport.open(listener.address, Hello(), 60.0)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(wire.receive(), 0.01)
    await wire.send(gets(1))
    connection = service.connections[0]
    await connection.heard.wait()
    connection.send(Answers([Answer(0)]))
    assert (await wire.receive()).answers == [Answer(0)]


async def test_nothing_is_lost_if_answers_are_slower_than_calls(
    transport: GrpcTransport,
    listener: GrpcListener,
    service: FakeService,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(grpc_stream, "_MAX_WAITING_ANSWERS", 10)
    service.value = ("x" * 100_000,)
    wire = await transport.open(listener.address, Hello(), 60.0)
    sending = asyncio.ensure_future(
        send_one_by_one(wire, [call(ops.Push(jobs=()), tag) for tag in range(300)])
    )
    answers = await collect(wire, 300)
    await sending
    assert [answer.tag for answer in answers] == list(range(300))


@pytest.mark.parametrize(
    "error",
    [errors.QueueNotFoundError("no such"), errors.SupersededError("gone", leader="h:1")],
    ids=repr,
)
async def test_a_broker_that_cannot_begin_says_why(
    transport: GrpcTransport,
    listener: GrpcListener,
    service: FakeService,
    error: errors.BucketQError,
) -> None:
    service.at_open = error
    with pytest.raises(type(error)) as caught:
        await transport.open(listener.address, Hello(), 60.0)
    assert refusal_of(caught.value) == refusal_of(error)


async def test_a_broker_that_fails_to_begin_is_a_lost_link_and_no_evidence(
    transport: GrpcTransport, listener: GrpcListener, service: FakeService
) -> None:
    service.at_open = errors.OverloadedError("too many")
    with pytest.raises(ConnectionLostError, match="too many") as caught:
        await transport.open(listener.address, Hello(), 60.0)
    assert not isinstance(caught.value, NoBrokerThereError)


async def test_a_connection_is_closed_when_its_client_leaves(
    transport: GrpcTransport, listener: GrpcListener, service: FakeService
) -> None:
    wire = await transport.open(listener.address, Hello(), 60.0)
    await wire.close()
    await wire.close()
    async with asyncio.timeout(60):
        await service.connections[0].closed.wait()


async def test_a_closed_wire_says_so(transport: GrpcTransport, listener: GrpcListener) -> None:
    wire = await transport.open(listener.address, Hello(), 60.0)
    waiting = asyncio.ensure_future(wire.receive())
    await asyncio.sleep(0)
    await wire.close()
    with pytest.raises(ConnectionLostError, match="closed by this client"):
        await waiting
    with pytest.raises(ConnectionLostError, match="closed by this client"):
        await wire.receive()
    with pytest.raises(ConnectionLostError, match="closed by this client"):
        await wire.send(gets(1))
    with pytest.raises(ConnectionLostError, match="closed by this client"):
        await wire.send([])


async def test_a_sender_that_waits_for_a_slow_broker_fails_when_the_connection_is_closed(
    transport: GrpcTransport,
    listener: GrpcListener,
    service: FakeService,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(grpc_stream, "_MAX_WAITING_ANSWERS", 0)
    service.value = ("x" * 1_000_000,)
    wire = await transport.open(listener.address, Hello(), 60.0)
    result = Raw(b'"' + b"x" * 100_000 + b'"')
    sending = asyncio.ensure_future(
        send_one_by_one(
            wire,
            [call(ops.Push(jobs=()), tag) for tag in range(100)]
            + [call(ops.Complete(job="j", lease="l", result=result), 100 + i) for i in range(500)],
        )
    )
    done, _ = await asyncio.wait([sending], timeout=0.3)
    assert not done
    await wire.close()
    with pytest.raises(ConnectionLostError, match="closed by this client"):
        await sending


async def test_an_unread_end_of_a_connection_is_not_logged_by_asyncio(
    transport: GrpcTransport, service: FakeService
) -> None:
    complaints: list[dict[str, Any]] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: complaints.append(context))
    listener = await transport.listen("127.0.0.1:0", service)
    wire = await transport.open(listener.address, Hello(), 60.0)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(wire.receive(), 0.01)
    await listener.close()
    assert wire._reading is not None
    await asyncio.wait([wire._reading])
    await wire.close()
    del wire
    gc.collect()
    assert complaints == []


async def test_closing_the_transport_ends_its_connections(
    transport: GrpcTransport, listener: GrpcListener, service: FakeService
) -> None:
    wire = await transport.open(listener.address, Hello(), 60.0)
    await transport.close()
    with pytest.raises(ConnectionLostError):
        await wire.receive()
    async with asyncio.timeout(60):
        await service.connections[0].closed.wait()


async def test_a_ping_is_answered(transport: GrpcTransport, listener: GrpcListener) -> None:
    assert await transport.ping(listener.address, Ping(incarnation="i1"), 60.0) == PONG
    assert await transport.ping(listener.address, Ping(queue="q"), 60.0) == PONG


@pytest.mark.parametrize(
    "error", [errors.QueueNotFoundError("no such"), errors.SupersededError("gone")], ids=repr
)
async def test_a_ping_that_meets_no_broker_of_this_queue_is_evidence(
    transport: GrpcTransport,
    listener: GrpcListener,
    service: FakeService,
    error: errors.BucketQError,
) -> None:
    service.at_ping = error
    with pytest.raises(NoBrokerThereError):
        await transport.ping(listener.address, Ping(queue="q"), 60.0)


async def test_a_ping_that_meets_another_incarnation_is_evidence(
    transport: GrpcTransport, listener: GrpcListener
) -> None:
    with pytest.raises(NoBrokerThereError, match="another queue"):
        await transport.ping(listener.address, Ping(incarnation="other"), 60.0)


async def test_a_ping_that_fails_at_the_other_side_is_not_evidence(
    transport: GrpcTransport,
    listener: GrpcListener,
    service: FakeService,
    caplog: pytest.LogCaptureFixture,
) -> None:
    service.at_ping = ZeroDivisionError("a fault")
    with pytest.raises(ConnectionLostError) as caught:
        await transport.ping(listener.address, Ping(), 60.0)
    assert not isinstance(caught.value, NoBrokerThereError)
    assert "a fault" in caplog.text
