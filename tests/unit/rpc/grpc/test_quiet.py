"""What gRPC itself writes to standard error, and what makes asyncio write there for it."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from typing import Any

import pytest

from bucketq.rpc.grpc.grpc_client import GrpcTransport
from bucketq.rpc.grpc.grpc_server import GrpcListener
from bucketq.rpc.messages import Hello

_MANY_ENDED_CONNECTIONS = """
import asyncio
import bucketq.rpc.grpc
import grpc.aio
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

async def main():
    for _ in range(20):
        server = grpc.aio.server()
        health_pb2_grpc.add_HealthServicer_to_server(health.aio.HealthServicer(), server)
        port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        channels = [grpc.aio.insecure_channel(f"127.0.0.1:{port}") for _ in range(5)]
        question = health_pb2.HealthCheckRequest(service="")
        watches = [health_pb2_grpc.HealthStub(channel).Watch(question) for channel in channels]
        for watch in watches:
            await watch.read()
        await server.stop(None)
        for channel in channels:
            await channel.close()

asyncio.run(main())
"""


@pytest.mark.parametrize("verbosity", [None, "INFO"])
def test_a_server_that_stops_writes_to_stderr_only_if_asked(verbosity: str | None) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "GRPC_VERBOSITY"}
    if verbosity is not None:
        environment["GRPC_VERBOSITY"] = verbosity
    ended = subprocess.run(
        [sys.executable, "-c", _MANY_ENDED_CONNECTIONS],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert ("goaway" in ended.stderr) is (verbosity == "INFO")


def streams() -> list[asyncio.Task[Any]]:
    """Those of which gRPC has yet to hear how they end."""
    return [task for task in asyncio.all_tasks() if "_AioCall" in repr(task)]


@pytest.mark.parametrize("is_read", [False, True])
async def test_nothing_of_a_closed_connection_is_left_for_another_loop_to_complain_of(
    transport: GrpcTransport, listener: GrpcListener, is_read: bool
) -> None:
    wire = await transport.open(listener.address, Hello(), 60.0)
    assert len(streams()) == 1
    if is_read:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(wire.receive(), 0.01)
    await wire.close()
    assert streams() == []
