"""Before it has shown a token, a client can neither fill a broker nor silence it."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import grpc.aio
import pytest

import bucketq
from bucketq.model.tokens import parse_token
from bucketq.rpc.grpc.admission import MAX_UNAUTHENTICATED
from bucketq.rpc.grpc.grpc_client import GrpcTransport
from bucketq.rpc.grpc.grpc_stream import MAX_MESSAGE_BYTES
from bucketq.rpc.messages import Ping
from bucketq.rpc.protobuf import bucketq_pb2 as pb
from tests.chaos.fleet import BUCKETQ, BrokerProcess, Fleet
from tests.security.strangers import NONCE, Hoarder, Stream
from tests.security.test_limits import memory_bytes
from tests.servers.process import Child

MIB = 1024 * 1024
HTTP2 = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
NO_SETTINGS = bytes(3) + b"\4" + bytes(5)
PATHS = (
    "/bucketq.v1.Queue/Session",
    "/bucketq.v1.Queue/Push",
    "/bucketq.v1.Queue/Ping",
    "/grpc.health.v1.Health/Check",
    "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
)


class LimitedBroker(BrokerProcess):
    """A broker whose process may have few descriptors."""

    def __init__(
        self, limit: str, words: Sequence[str], log: Path, environ: dict[str, str]
    ) -> None:
        script = f'ulimit {limit} && exec "$@"'
        command = ["/bin/sh", "-c", script, "sh", *BUCKETQ, "serve", *words]
        Child.__init__(self, command, log, environ)
        self.log = log
        self.is_stopped = self._is_to_end = False


def serve_with(processes: Fleet, limit: str, url: str) -> BrokerProcess:
    log = processes.folder / "limited.log"
    broker = LimitedBroker(limit, [f"jobs={url}"], log, processes.environ)
    processes.brokers.append(broker)
    broker.wait_until_leading()
    broker.wait_until_serving()
    return broker


def descriptors_of(broker: BrokerProcess) -> int:
    return len(list(Path(f"/proc/{broker.pid}/fd").iterdir()))


@pytest.fixture
async def connect(broker: BrokerProcess) -> AsyncIterator[Callable[[], Any]]:
    """Connections of an attacker, each its own."""
    async with AsyncExitStack() as stack:

        def open_one() -> Any:
            options = [("grpc.use_local_subchannel_pool", 1)]
            channel = grpc.aio.insecure_channel(broker.address, options=options)
            stack.push_async_callback(channel.close, None)
            return channel

        yield open_one


async def push_with(token: str, broker: BrokerProcess, timeout_s: float = 30.0) -> None:
    place = f"bucketq://{broker.address}/jobs"
    async with bucketq.connect(place, token=token, timeout_s=timeout_s) as queue:
        await queue.push("mail", "still here")


async def name_a_token(channel: Any, token_id: str) -> Stream:
    stream = Stream(channel)
    await stream.say(hello=pb.Hello(queue="jobs", token_id=token_id, nonce=NONCE))
    return stream


async def end_of(stream: Stream) -> str:
    """How the broker ends a session in which no token was shown."""
    try:
        while True:
            await stream.hear()
    except grpc.aio.AioRpcError as error:
        return error.code().name


@pytest.mark.parametrize("connections", [1, 12])
async def test_sessions_that_never_show_a_token_end_and_lock_no_client_out(
    admin: str, broker: BrokerProcess, connect: Callable[[], Any], connections: int
) -> None:
    streams = [
        await name_a_token(channel, parse_token(admin))
        for channel in [connect() for _ in range(connections)]
        for _ in range(1000 // connections)
    ]
    await push_with(admin, broker)
    async with asyncio.timeout(60):
        ends = [await end_of(stream) for stream in streams]
    # gRPC calls it internal if a stream was refused before it had sent anything.
    assert set(ends) <= {"UNAVAILABLE", "RESOURCE_EXHAUSTED", "INTERNAL"}
    await push_with(admin, broker)


async def test_pings_are_answered_while_strangers_hold_every_place(
    admin: str, broker: BrokerProcess, connect: Callable[[], Any]
) -> None:
    """Otherwise they could have a broker that is alive replaced."""
    stopped = asyncio.Event()

    async def besiege() -> None:
        channel = connect()
        while not stopped.is_set():
            held = [await name_a_token(channel, parse_token(admin)) for _ in range(16)]
            await asyncio.gather(*(end_of(stream) for stream in held))

    transport = GrpcTransport()
    siege = [asyncio.ensure_future(besiege()) for _ in range(6)]
    try:
        for _ in range(50):
            pong = await transport.ping(broker.address, Ping(queue="jobs"), 10.0)
            assert pong.role == "leading"
    finally:
        stopped.set()
        for attacker in siege:
            attacker.cancel()
        await asyncio.gather(*siege, return_exceptions=True)
        await transport.close()


def hoards() -> list[pytest.ParameterSet]:
    """Messages that are too large, and many that are not, on each path.

    In ordinary runs large ones on one path, since their size is limited for all at once, and many
    on one path of ours and on one that is not.
    """
    sizes = {"large": (100 * MIB, 1, 4), "many": (MAX_MESSAGE_BYTES, 12, 20)}
    ordinary = {("large", PATHS[0]), *(("many", PATHS[n]) for n in (0, 3))}
    return [
        pytest.param(
            path,
            *numbers,
            marks=[] if (name, path) in ordinary else pytest.mark.full,
            id=f"{name}-{path}",
        )
        for name, numbers in sizes.items()
        for path in PATHS
    ]


@pytest.mark.parametrize(("path", "declared_bytes", "connections", "streams"), hoards())
async def test_unfinished_messages_cost_little_memory(
    admin: str,
    broker: BrokerProcess,
    path: str,
    declared_bytes: int,
    connections: int,
    streams: int,
) -> None:
    before = memory_bytes(broker)
    hoarders = [Hoarder(broker.address) for _ in range(connections)]
    try:
        for hoarder in hoarders:
            await hoarder.connect()
            for _ in range(streams):
                hoarder.begin(path, declared_bytes, declared_bytes - 1)
        await asyncio.gather(*(hoarder.send(5.0) for hoarder in hoarders))
        # What one stranger may send, for each of them, and as much again for copies.
        assert memory_bytes(broker) - before < 2 * MAX_UNAUTHENTICATED * MAX_MESSAGE_BYTES
        await push_with(admin, broker)
    finally:
        for hoarder in hoarders:
            await hoarder.close()


async def test_idle_connections_leave_the_storage_its_descriptors(
    processes: Fleet, url: str, admin: str
) -> None:
    broker = serve_with(processes, "-n 256", url)
    host, _, port = broker.address.rpartition(":")
    place = f"bucketq://{broker.address}/jobs"
    opened: list[socket.socket] = []
    try:
        async with bucketq.connect(place, token=admin, timeout_s=30) as queue:
            await queue.push("mail", 0)
            for _ in range(400):
                opened.append(socket.create_connection((host, int(port)), timeout=5))
                opened[-1].sendall(HTTP2 + NO_SETTINGS)
            in_bounds = 0
            async with asyncio.timeout(20):
                # On a busy machine many are accepted before the first of them is refused.
                while in_bounds < 100:
                    is_left = 192 <= descriptors_of(broker) < 224
                    in_bounds = in_bounds + 1 if is_left else 0
                    await asyncio.sleep(0.01)
            for number in range(20):
                await queue.push("mail", number)
    finally:
        for one in opened:
            one.close()
    await push_with(admin, broker)
    assert broker.epochs == [1]


async def test_a_connection_without_a_token_is_closed_when_it_is_idle(
    admin: str, broker: BrokerProcess
) -> None:
    idle = Hoarder(broker.address)
    await idle.connect()
    try:
        async with asyncio.timeout(60):
            while not idle.is_closed:  # noqa: ASYNC110 - there is no event to wait for
                await asyncio.sleep(0.1)
    finally:
        await idle.close()
    await push_with(admin, broker)


def test_serve_raises_the_soft_limit_of_descriptors(processes: Fleet, url: str) -> None:
    broker = serve_with(processes, "-Sn 200", url)
    limits = Path(f"/proc/{broker.pid}/limits").read_text()
    [line] = [line for line in limits.splitlines() if line.startswith("Max open files")]
    soft, hard = line.split()[3:5]
    assert int(soft) == min(int(hard), 65_536)
