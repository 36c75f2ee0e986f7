"""What proves that no broker listens at an address, and what does not."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import grpc.aio
import pytest

from bucketq.rpc.address import resolve_address
from bucketq.rpc.grpc.grpc_client import GrpcTransport
from bucketq.rpc.grpc.grpc_server import GrpcListener
from bucketq.rpc.grpc.probe import is_deserted
from bucketq.rpc.messages import Hello, Ping
from bucketq.rpc.transport import ConnectionLostError, NoBrokerThereError

TOO_LONG_S = 3600.0
"""A deadline that a test does not live to see: only evidence ends the call."""

Talk = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def stranger(talk: Talk) -> AsyncIterator[str]:
    """Something that listens and is not a broker."""
    writers: list[asyncio.StreamWriter] = []
    tasks: list[asyncio.Task[None]] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)
        task = asyncio.current_task()
        assert task is not None
        tasks.append(task)
        try:
            await talk(reader, writer)
        except (OSError, asyncio.CancelledError):
            return

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()
    yield f"{host}:{port}"
    server.close()
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks)
    for writer in writers:
        writer.transport.abort()
    await server.wait_closed()


def says(words: bytes) -> Talk:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(words)
        await writer.drain()
        writer.close()

    return talk


async def says_nothing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    del writer
    await reader.read()


async def hangs_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.read(1)
    writer.close()


@pytest.fixture
def free_address() -> str:
    with socket.socket() as trial:
        trial.bind(("127.0.0.1", 0))
        host, port = trial.getsockname()
        return f"{host}:{port}"


async def test_an_address_that_refuses_is_evidence_and_quick(
    transport: GrpcTransport, free_address: str
) -> None:
    by_name = free_address.replace("127.0.0.1", "localhost")
    for dial in (
        transport.ping(free_address, Ping(), TOO_LONG_S),
        transport.open(free_address, Hello(), TOO_LONG_S),
        transport.ping(by_name, Ping(), TOO_LONG_S),
    ):
        async with asyncio.timeout(60):
            with pytest.raises(NoBrokerThereError):
                await dial


@pytest.mark.parametrize(
    "words", [b"SSH-2.0-OpenSSH\r\n", b"HTTP/1.1 400 Bad Request\r\n\r\n", b"?!\n"]
)
async def test_something_else_that_listens_is_evidence(
    transport: GrpcTransport, words: bytes
) -> None:
    async with stranger(says(words)) as address:
        async with asyncio.timeout(60):
            with pytest.raises(NoBrokerThereError):
                await transport.ping(address, Ping(), TOO_LONG_S)
            with pytest.raises(NoBrokerThereError):
                await transport.open(address, Hello(), TOO_LONG_S)


async def test_grpc_without_our_service_is_evidence(transport: GrpcTransport) -> None:
    server = grpc.aio.server()
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    with pytest.raises(NoBrokerThereError):
        await transport.ping(f"127.0.0.1:{port}", Ping(), 60.0)
    with pytest.raises(NoBrokerThereError):
        await transport.open(f"127.0.0.1:{port}", Hello(), 60.0)
    await server.stop(None)


async def test_silence_is_not_evidence(transport: GrpcTransport) -> None:
    async with stranger(says_nothing) as address:
        with pytest.raises(ConnectionLostError) as pinged:
            await transport.ping(address, Ping(), 0.1)
        with pytest.raises(ConnectionLostError) as opened:
            await transport.open(address, Hello(), 0.1)
    assert not isinstance(pinged.value, NoBrokerThereError)
    assert not isinstance(opened.value, NoBrokerThereError)


@pytest.mark.parametrize(
    "talk", [hangs_up, says(b"\x15\x03\x03\x00\x02\x02\x46")], ids=["hangs up", "wants TLS"]
)
async def test_a_peer_that_may_be_a_broker_is_not_evidence(
    transport: GrpcTransport, talk: Talk
) -> None:
    async with stranger(talk) as address:
        with pytest.raises(ConnectionLostError) as caught:
            await transport.ping(address, Ping(), 1.0)
        assert not isinstance(caught.value, NoBrokerThereError)


@pytest.mark.parametrize(
    "address", ["", "nonsense", "unix:/tmp/socket", "dns:///x:1", "h:99999", "a b:1"]
)
async def test_an_invalid_address_is_never_dialled(transport: GrpcTransport, address: str) -> None:
    with pytest.raises(NoBrokerThereError):
        await transport.ping(address, Ping(), 1.0)
    with pytest.raises(NoBrokerThereError):
        await transport.open(address, Hello(), 1.0)


async def test_an_unknown_name_is_not_evidence(transport: GrpcTransport) -> None:
    with pytest.raises(ConnectionLostError) as caught:
        await transport.ping("no-such-host.invalid:7700", Ping(), 60.0)
    assert not isinstance(caught.value, NoBrokerThereError)


async def test_a_broker_that_is_there_is_not_taken_for_deserted(listener: GrpcListener) -> None:
    assert not await is_deserted(await resolve_address(listener.address, ()), 60.0)
