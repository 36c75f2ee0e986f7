"""Unary calls, and what tools expect of a gRPC server."""

from __future__ import annotations

import asyncio
from typing import Any

import grpc
import grpc.aio
import pytest
from google.protobuf.unknown_fields import UnknownFieldSet
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from bucketq import errors
from bucketq.model import operations as ops
from bucketq.rpc.grpc import grpc_methods
from bucketq.rpc.grpc.grpc_client import GrpcTransport
from bucketq.rpc.grpc.grpc_methods import UNARY
from bucketq.rpc.protobuf import bucketq_pb2 as pb
from bucketq.rpc.protobuf.call_codec import SERVICE
from bucketq.rpc.protobuf.refusal_status import read_refusal
from bucketq.rpc.refusals import error_of
from tests.unit.rpc.protobuf.test_answer_codec import ERRORS
from tests.unit.rpc.samples import ANSWERS
from tests.unit.rpc.service import FakeService


async def test_every_verb_has_a_unary_call(channel: Any, service: FakeService) -> None:
    values = dict(ANSWERS)
    for name, (shape, verb) in UNARY.items():
        service.value = values[verb]
        method = channel.unary_unary(f"/{SERVICE}/{name}", None, None)
        request = shape(target=pb.Target(queue="q", incarnation="i1"))
        request.id.session, request.id.number, request.id.acknowledged_below = "s", 4, 2
        getattr(request, verb).SetInParent()
        body = await method(request.SerializeToString(), timeout=20)
        connection = service.connections[-1]
        assert (connection.hello.queue, connection.hello.incarnation) == ("q", "i1")
        assert connection.closed.is_set()
        (call,) = connection.calls
        assert 15 < call.ttl_s < 21  # gRPC rounds it up
        if isinstance(call.request, ops.Request):
            assert call.request == ops.Request(call.request.operation, "s", 4, 2)
        declared = pb.DESCRIPTOR.services_by_name["Queue"].methods_by_name[name]
        answer = getattr(pb, declared.output_type.name).FromString(body)
        assert not UnknownFieldSet(answer)


@pytest.mark.parametrize("kind", ERRORS, ids=lambda kind: kind.__name__)
async def test_every_error_of_a_unary_call_has_its_own_status(
    channel: Any, service: FakeService, kind: type[errors.BucketQError]
) -> None:
    service.error = kind("what happened")
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await channel.unary_unary(f"/{SERVICE}/Get", None, None)(
            pb.GetRequest(get=pb.Get(job="j")).SerializeToString()
        )
    metadata: Any = caught.value.trailing_metadata()
    refusal = read_refusal(caught.value.details() or "", metadata)
    assert refusal is not None
    assert type(error_of(refusal)) is kind
    assert str(error_of(refusal)) == "what happened"
    assert service.connections[0].closed.is_set()


async def test_a_unary_call_without_an_operation_is_refused(
    channel: Any, service: FakeService
) -> None:
    for body in (b"", b"\xff"):
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await channel.unary_unary(f"/{SERVICE}/Push", None, None)(body)
        assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert service.connections == []


async def test_a_unary_call_for_a_queue_that_is_not_here_is_refused(
    channel: Any, service: FakeService
) -> None:
    service.at_open = errors.SupersededError("gone", leader="10.0.0.2:7700")
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await channel.unary_unary(f"/{SERVICE}/Stats", None, None)(
            pb.StatsRequest(stats=pb.ReadStats()).SerializeToString()
        )
    assert caught.value.code() is grpc.StatusCode.ABORTED
    metadata: Any = caught.value.trailing_metadata()
    assert dict(metadata)["bucketq-leader"] == "10.0.0.2:7700"


async def test_a_unary_call_that_the_broker_dropped_is_unknown(
    channel: Any, service: FakeService, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(grpc_methods, "DEFAULT_TTL_S", 0.01)
    service.answers_at_once = False
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await channel.unary_unary(f"/{SERVICE}/Pause", None, None)(
            pb.PauseRequest(pause=pb.Pause()).SerializeToString()
        )
    assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
    assert service.connections[0].closed.is_set()


async def test_a_unary_caller_who_leaves_closes_the_connection(
    channel: Any, service: FakeService
) -> None:
    service.answers_at_once = False
    method = channel.unary_unary(f"/{SERVICE}/Pause", None, None)
    waiting = method(pb.PauseRequest(pause=pb.Pause()).SerializeToString())
    async with asyncio.timeout(60):
        connection = await service.next_connection()
        waiting.cancel()
        await connection.closed.wait()


async def test_a_unary_call_that_is_not_answered_in_time_is_unknown(
    channel: Any, service: FakeService
) -> None:
    service.answers_at_once = False
    method = channel.unary_unary(f"/{SERVICE}/Pause", None, None)
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await method(pb.PauseRequest(pause=pb.Pause()).SerializeToString(), timeout=0.1)
    assert caught.value.code() in {
        grpc.StatusCode.DEADLINE_EXCEEDED,
        grpc.StatusCode.UNAVAILABLE,
    }


async def test_a_listener_that_closes_ends_unary_calls_that_wait(
    transport: GrpcTransport, service: FakeService
) -> None:
    service.answers_at_once = False
    listener = await transport.listen("127.0.0.1:0", service)
    async with grpc.aio.insecure_channel(listener.address) as channel:
        method: Any = channel.unary_unary(f"/{SERVICE}/Pause", None, None)
        waiting = method(pb.PauseRequest(pause=pb.Pause()).SerializeToString())
        await service.next_connection()
        await listener.close()
        with pytest.raises(grpc.aio.AioRpcError, match="stopping"):
            await waiting


async def test_the_health_of_a_broker_can_be_asked_for(channel: Any) -> None:
    stub = health_pb2_grpc.HealthStub(channel)
    for name in ("", SERVICE):
        answer = await stub.Check(health_pb2.HealthCheckRequest(service=name))
        assert answer.status == health_pb2.HealthCheckResponse.SERVING


async def test_a_tool_that_knows_nothing_can_ask_what_is_served(channel: Any) -> None:
    stub = reflection_pb2_grpc.ServerReflectionStub(channel)
    questions = [
        reflection_pb2.ServerReflectionRequest(list_services=""),
        reflection_pb2.ServerReflectionRequest(file_containing_symbol=SERVICE),
    ]
    listed, described = [answer async for answer in stub.ServerReflectionInfo(iter(questions))]
    assert SERVICE in [service.name for service in listed.list_services_response.service]
    files = described.file_descriptor_response.file_descriptor_proto
    assert pb.DESCRIPTOR.serialized_pb in files
