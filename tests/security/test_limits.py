"""Everything has a limit: a client beyond one gets an error, and other clients are not affected."""

from __future__ import annotations

import asyncio
import gzip
import struct
import zlib
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import h2.config
import h2.connection
import h2.events
import pytest

import bucketq
from bucketq.rpc.grpc import admission
from bucketq.rpc.grpc.admission import MAX_ACTIVE_OF_A_HOST
from bucketq.rpc.grpc.grpc_client import GrpcTransport
from bucketq.rpc.grpc.grpc_stream import MAX_MESSAGE_BYTES
from bucketq.rpc.messages import Hello, Ping
from bucketq.rpc.protobuf import bucketq_pb2 as pb
from bucketq.rpc.protobuf.call_codec import SERVICE
from bucketq.rpc.transport import ConnectionLostError
from tests.chaos.fleet import BrokerProcess
from tests.security.strangers import Stream, push_of, unary
from tests.unit.rpc.service import FakeService

TARGET = pb.Target(queue="jobs")
MIB = 1024 * 1024


def memory_bytes(broker: BrokerProcess) -> int:
    """The most memory that a process has ever had."""
    for line in Path(f"/proc/{broker.pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    raise AssertionError("no such line")


async def is_well(broker: BrokerProcess, url: str) -> bool:
    """Whether the broker serves others, and the object can be read."""
    async with bucketq.connect(f"bucketq://{broker.address}/jobs", timeout_s=10) as queue:
        await queue.push("mail", "still here")
    async with bucketq.connect(url, mode="direct") as direct:
        return bool((await direct.jobs(limit=100)).jobs)


async def status(ending: Any) -> tuple[str, str]:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await ending
    return caught.value.code().name, caught.value.details() or ""


@pytest.mark.parametrize("depth", [101, 5_000, 400_000])
async def test_a_payload_nested_too_deeply_harms_only_its_sender(
    broker: BrokerProcess, url: str, channel: Any, depth: int
) -> None:
    payload = b"[" * depth + b"]" * depth
    request = pb.PushRequest(target=TARGET, push=push_of("deep", payload))
    code, _ = await status(unary(channel, "Push", request))
    assert code == "INVALID_ARGUMENT"
    assert await is_well(broker, url)


async def test_a_result_nested_too_deeply_harms_only_its_sender(
    broker: BrokerProcess, url: str, channel: Any
) -> None:
    async with bucketq.connect(f"bucketq://{broker.address}/jobs") as queue:
        await queue.push("mail", 1)
        [job] = await queue.claim()
    result = b"[" * 30_000 + b"]" * 30_000
    complete = pb.Complete(job=job.id, lease=job.lease.lease, result=result)
    request = pb.CompleteRequest(target=TARGET, complete=complete)
    code, _ = await status(unary(channel, "Complete", request))
    assert code == "INVALID_ARGUMENT"
    assert await is_well(broker, url)


async def test_settings_nested_too_deeply_harm_only_their_sender(
    broker: BrokerProcess, url: str, channel: Any
) -> None:
    changes = b'{"lease_s":' + b"[" * 100_000 + b"]" * 100_000 + b"}"
    request = pb.ConfigureRequest(target=TARGET, configure=pb.Configure(changes=changes))
    code, _ = await status(unary(channel, "Configure", request))
    assert code == "INVALID_ARGUMENT"
    assert await is_well(broker, url)


async def test_a_message_that_is_too_large_ends_its_stream_and_no_other(
    broker: BrokerProcess, url: str, channel: Any
) -> None:
    before = memory_bytes(broker)
    request = pb.PushRequest(target=TARGET, push=push_of("large", bytes(MAX_MESSAGE_BYTES + 1)))
    code, _ = await status(unary(channel, "Push", request))
    assert code == "RESOURCE_EXHAUSTED"
    assert memory_bytes(broker) - before < 64 * MIB, "it was not even taken in"
    assert await is_well(broker, url)


async def test_a_compressed_message_is_refused_and_not_unpacked(
    broker: BrokerProcess, url: str
) -> None:
    """A gigabyte of zeros is one megabyte on the wire."""
    bomb = zeros_in_gzip(1024)
    assert len(bomb) < 2 * MIB
    before = memory_bytes(broker)
    for encoding in ("gzip", "identity", None):
        ended = await send_by_hand(broker.address, bomb, encoding)
        assert ended not in {None, "0"}, f"a message marked as {encoding} was taken"
    assert memory_bytes(broker) - before < 64 * MIB
    assert await is_well(broker, url)


def zeros_in_gzip(size_mib: int) -> bytes:
    """So many MiB of zeros: one of them is compressed, and its bytes are repeated."""
    packing = zlib.compressobj(9, zlib.DEFLATED, -zlib.MAX_WBITS)
    block = packing.compress(bytes(MIB)) + packing.flush(zlib.Z_FULL_FLUSH)
    checksum = 0
    for _ in range(size_mib):
        checksum = zlib.crc32(bytes(MIB), checksum)
    end = struct.pack("<II", checksum, size_mib * MIB & 0xFFFF_FFFF)
    header = gzip.compress(b"")[:10]
    return header + block * size_mib + packing.flush(zlib.Z_FINISH) + end


async def send_by_hand(address: str, body: bytes, encoding: str | None) -> str | None:
    """Send a message that is marked as compressed, over bare HTTP/2; returns its gRPC status."""
    host, _, port = address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    wire = h2.connection.H2Connection(h2.config.H2Configuration(header_encoding="utf-8"))
    wire.initiate_connection()
    headers = [
        (":method", "POST"),
        (":scheme", "http"),
        (":path", f"/{SERVICE}/Push"),
        (":authority", address),
        ("content-type", "application/grpc"),
        ("te", "trailers"),
        *([("grpc-encoding", encoding)] if encoding else []),
    ]
    wire.send_headers(1, headers)
    left = struct.pack(">?I", True, len(body)) + body
    found: str | None = None
    try:
        async with asyncio.timeout(60):
            while found is None:
                room = min(wire.local_flow_control_window(1), wire.max_outbound_frame_size)
                if left and room:
                    part, left = left[:room], left[room:]
                    wire.send_data(1, part, end_stream=not left)
                writer.write(wire.data_to_send())
                await writer.drain()
                if left and wire.local_flow_control_window(1):
                    continue
                data = await reader.read(65536)
                if not data:
                    return "closed"
                found = grpc_status(wire, data)
    except (ConnectionError, h2.exceptions.ProtocolError):
        return "closed"
    finally:
        writer.transport.abort()
    return found


def grpc_status(wire: h2.connection.H2Connection, data: bytes) -> str | None:
    for event in wire.receive_data(data):
        if isinstance(event, h2.events.StreamReset | h2.events.ConnectionTerminated):
            return "reset"
        if isinstance(event, h2.events.ResponseReceived | h2.events.TrailersReceived):
            for name, value in event.headers or ():
                if name in ("grpc-status", b"grpc-status"):
                    return str(value)
    return None


async def test_a_host_has_so_many_conversations_and_no_more(
    broker: BrokerProcess, url: str, channel: Any
) -> None:
    other = grpc.aio.insecure_channel(
        broker.address, options=[("grpc.use_local_subchannel_pool", 1)]
    )
    try:
        for taken in (channel, other):
            streams = [Stream(taken) for _ in range(MAX_ACTIVE_OF_A_HOST // 2)]
            for stream in streams:
                await stream.say(hello=pb.Hello(queue="jobs"))
            for stream in streams:
                await stream.hear()
            streams.clear()
        code = "INTERNAL"
        while code == "INTERNAL":  # So it is called if it was refused before it had sent anything.
            one_more = Stream(other)
            await one_more.say(hello=pb.Hello(queue="jobs"))
            code, details = await status(one_more.hear())
        assert (code, "too many connections" in details) == ("RESOURCE_EXHAUSTED", True)
        assert await unary(other, "Ping", pb.PingRequest(queue="jobs"))
    finally:
        await other.close(None)
    await channel.close(None)
    assert await is_well(broker, url), "they have left, and others are served"


async def refusal(transport: GrpcTransport, address: str) -> str:
    """Why no connection can be begun."""
    while True:
        with pytest.raises(ConnectionLostError) as caught:
            await transport.open(address, Hello(), 60.0)
        # So gRPC calls what was refused before it had sent anything.
        if "Internal error from Core" not in str(caught.value):
            return str(caught.value)


async def test_all_hosts_together_have_so_many_conversations_and_no_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(admission, "MAX_ACTIVE", 3)
    transport = GrpcTransport()
    listener = await transport.listen("127.0.0.1:0", FakeService())
    try:
        wires = [await transport.open(listener.address, Hello(), 60.0) for _ in range(3)]
        assert "too many connections" in await refusal(transport, listener.address)
        await wires[0].close()
        async with asyncio.timeout(60):
            while True:
                try:
                    await transport.open(listener.address, Hello(), 60.0)
                    break
                except Exception:  # noqa: BLE001 - until the broker knows that one has left
                    await asyncio.sleep(0.05)
    finally:
        await transport.close()
        await listener.close()


async def test_claims_that_wait_have_a_limit(broker: BrokerProcess, url: str, channel: Any) -> None:
    stream = Stream(channel)
    await stream.say(hello=pb.Hello(queue="jobs"))
    await stream.hear()
    claim = pb.Claim(worker="w", secret="0" * 32, limit=1, wait_s=50, kinds=["never"])
    for start in range(1, 10_001, 2000):
        calls = [pb.Call(tag=tag, ttl_ms=60_000, claim=claim) for tag in range(start, start + 2000)]
        await stream.say(calls=calls)
        # Once this is answered, they wait.
        await stream.ask(100_000 + start, stats=pb.ReadStats())
    answer = await stream.ask(10_001, claim=claim)
    assert answer.error.kind == "OverloadedError"
    assert await is_well(broker, url)


async def test_a_batch_has_a_limit(broker: BrokerProcess, url: str, channel: Any) -> None:
    jobs = [pb.NewJob(id=f"j{number}", kind="mail", payload=b"1") for number in range(10_001)]
    request = pb.PushRequest(target=TARGET, push=pb.Push(jobs=jobs))
    code, details = await status(unary(channel, "Push", request))
    assert (code, "10000" in details) == ("INVALID_ARGUMENT", True)
    claim = pb.Claim(worker="w", secret="0" * 32, limit=10_001)
    code, _ = await status(unary(channel, "Claim", pb.ClaimRequest(target=TARGET, claim=claim)))
    assert code == "INVALID_ARGUMENT"
    assert await is_well(broker, url)


async def test_a_connection_without_calls_is_closed(
    broker: BrokerProcess, url: str, channel: Any
) -> None:
    host, _, port = broker.address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    silent = Stream(channel)
    await silent.stream.wait_for_connection()
    try:
        async with asyncio.timeout(90):
            code, details = await status(silent.hear())
            assert (code, "hello" in details) == ("INVALID_ARGUMENT", True)
            while await reader.read(1000):
                pass  # The broker's own greeting, and then the end.
    finally:
        writer.transport.abort()
    assert await is_well(broker, url)


async def test_a_message_full_of_reads_delays_no_other_client(
    broker: BrokerProcess, url: str, channel: Any
) -> None:
    place = f"bucketq://{broker.address}/jobs"
    async with bucketq.connect(place, timeout_s=60) as queue:
        await queue.push_many([bucketq.JobSpec(kind="mail", payload=1) for _ in range(1000)])
        before = memory_bytes(broker)
        stream = Stream(channel)
        await stream.say(hello=pb.Hello(queue="jobs"))
        await stream.hear()
        listing = pb.List(limit=1000)
        calls = [pb.Call(tag=tag, ttl_ms=60_000, list=listing) for tag in range(20_000)]
        await stream.say(calls=calls)
        await stream.hear()
        transport, answered = GrpcTransport(), 0
        for number in range(5):
            await queue.push("mail", number)
            await transport.ping(broker.address, Ping(queue="jobs"), 10.0)
        await transport.close()
        # They are read now; a client that asks for 20,000 lists at once may have to retry.
        async with asyncio.timeout(60):
            while answered < 100:
                answered += len((await stream.hear()).answers)
        stream.stream.cancel()
    assert memory_bytes(broker) - before < 400 * MIB
    assert broker.epochs == [1]
    assert await is_well(broker, url)
