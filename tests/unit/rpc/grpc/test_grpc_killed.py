"""A broker in a process of its own, killed or stopped, as its clients see it."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest

from bucketq.model import operations as ops
from bucketq.rpc.grpc.grpc_client import GrpcTransport
from bucketq.rpc.messages import Call, Hello, Ping
from bucketq.rpc.transport import ConnectionLostError, NoBrokerThereError
from tests.unit.rpc.service import PONG

CALL = Call(1, ops.Request(ops.Release(job="j", lease="l"), "s", 2, 1), 5.0)

_SERVE = """
import asyncio, sys
from bucketq.rpc.grpc.grpc_client import GrpcTransport
from tests.unit.rpc.service import FakeService

async def main():
    listener = await GrpcTransport().listen(sys.argv[1], FakeService())
    print(listener.address, flush=True)
    await asyncio.Event().wait()

asyncio.run(main())
"""


@pytest.fixture
def broker_process() -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A broker in a process of its own, and its address."""
    command = [sys.executable, "-c", _SERVE, "127.0.0.1:0"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment, text=True) as process:
        assert process.stdout is not None
        try:
            yield process, process.stdout.readline().strip()
        finally:
            process.kill()


async def test_a_killed_broker_is_noticed_at_once(
    transport: GrpcTransport,
    broker_process: tuple[subprocess.Popen[str], str],
    set_channel_option: Callable[[str, int], None],
) -> None:
    """Its connections end, which is enough: no keepalive has to be missed first."""
    set_channel_option("grpc.keepalive_time_ms", 3_600_000)
    process, address = broker_process
    wire = await transport.open(address, Hello(), 60.0)
    waiting = asyncio.ensure_future(wire.receive())
    await asyncio.sleep(0)
    process.kill()
    async with asyncio.timeout(60):
        with pytest.raises(ConnectionLostError):
            await waiting
        with pytest.raises(ConnectionLostError):
            await wire.send([CALL])
    process.wait()
    with pytest.raises(NoBrokerThereError):
        await transport.ping(address, Ping(), 60.0)


async def test_a_stopped_broker_process_is_not_evidence(
    transport: GrpcTransport, broker_process: tuple[subprocess.Popen[str], str]
) -> None:
    process, address = broker_process
    process.send_signal(signal.SIGSTOP)
    with pytest.raises(ConnectionLostError) as caught:
        await transport.ping(address, Ping(), 0.2)
    assert not isinstance(caught.value, NoBrokerThereError)
    process.send_signal(signal.SIGCONT)
    assert await transport.ping(address, Ping(), 60.0) == PONG
