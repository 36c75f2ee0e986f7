"""A service behind a real gRPC server, and a transport that reaches it; nothing may be left."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import grpc.aio
import pytest

from bucketq.rpc.grpc import grpc_channel
from bucketq.rpc.grpc.grpc_client import GrpcTransport
from bucketq.rpc.grpc.grpc_server import GrpcListener
from tests.unit.rpc.service import FakeService


@pytest.fixture
def service() -> FakeService:
    return FakeService()


@pytest.fixture
def set_channel_option(monkeypatch: pytest.MonkeyPatch) -> Callable[[str, int], None]:
    """Give the channels that are made from now on another value of an option of gRPC."""

    def set_option(name: str, value: int) -> None:
        others = (option for option in grpc_channel._OPTIONS if option[0] != name)
        monkeypatch.setattr(grpc_channel, "_OPTIONS", (*others, (name, value)))

    return set_option


@pytest.fixture
async def transport() -> AsyncIterator[GrpcTransport]:
    transport = GrpcTransport()
    yield transport
    await transport.close()
    left = asyncio.all_tasks() - {asyncio.current_task()}
    if left:  # gRPC's own, which end as soon as its core knows that a stream was cancelled.
        _, left = await asyncio.wait(left, timeout=60)
    assert not left, f"tasks were left over: {left}"


@pytest.fixture
async def listener(transport: GrpcTransport, service: FakeService) -> AsyncIterator[GrpcListener]:
    listener = await transport.listen("127.0.0.1:0", service)
    yield listener
    await listener.close()
    assert all(connection.closed.is_set() for connection in service.connections)


@pytest.fixture
async def channel(listener: GrpcListener) -> AsyncIterator[Any]:
    """What a client in another language has."""
    channel = grpc.aio.insecure_channel(listener.address)
    yield channel
    await channel.close(None)
