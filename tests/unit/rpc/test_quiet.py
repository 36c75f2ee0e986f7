"""What gRPC itself writes to standard error."""

import os
import subprocess
import sys

import pytest

_MANY_ENDED_CONNECTIONS = """
import asyncio
import bucketq.rpc
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
def test_a_server_that_stops_is_no_news_on_stderr_unless_asked_for(verbosity: str | None) -> None:
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
