"""Whoever can write the object can send clients anywhere; wherever that is, no token is shown."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest
from msgspec.structs import replace

import bucketq
from bucketq import AccessDeniedError
from bucketq.codec.decode import decode
from bucketq.codec.document import Document
from bucketq.codec.heading import read_heading
from bucketq.model.records import BrokerRecord
from bucketq.model.tokens import token_digest
from bucketq.rpc.credentials import Credentials, broker_proof
from bucketq.rpc.grpc.grpc_client import GrpcTransport
from bucketq.rpc.grpc.grpc_server import GrpcListener
from bucketq.rpc.messages import Answers, Call, Hello, Ping, Pong, Welcome
from bucketq.rpc.transport import UntrustedError

SOON_S = 60.0
"""Long before a client gives up, and long enough for a busy machine."""
NOW = datetime(2026, 1, 1, tzinfo=UTC)


class Impostor:
    """Answers as the recorded broker would, and keeps the tokens that it is shown."""

    def __init__(self, record: BrokerRecord, incarnation: str, proof: bytes = b"") -> None:
        self.record = record
        self.incarnation = incarnation
        self.proof = proof
        self.digest = ""
        self.hellos: list[Hello] = []
        self.tokens: list[str] = []
        self.calls: list[Call] = []

    def trusts(self, token: str) -> bool:
        del token
        return True

    def ping(self, ping: Ping) -> Pong:
        del ping
        record = self.record
        return Pong(
            incarnation=self.incarnation, broker=record.id, role="leading", epoch=record.epoch
        )

    def open(self, hello: Hello, send: Callable[[Answers], None]) -> Impostor:
        del send
        self.hellos.append(hello)
        if self.digest:
            self.proof = broker_proof(
                self.digest, hello.nonce, self.incarnation, self.record.id, self.record.epoch
            )
        return self

    @property
    def welcome(self) -> Welcome:
        record = self.record
        return Welcome(
            incarnation=self.incarnation,
            broker=record.id,
            epoch=record.epoch,
            version=1,
            proof=self.proof,
        )

    @property
    def is_admitted(self) -> bool:
        return True

    def show(self, token: str) -> None:
        self.tokens.append(token)

    def receive(self, calls: Sequence[Call]) -> None:
        self.calls.extend(calls)

    def close(self) -> None:
        """Nothing is left to be done."""


def write_broker(url: str, record: BrokerRecord) -> str:
    """Put a broker into the object, as any writer of it can; returns the incarnation."""
    path = Path(url.removeprefix("file://"))
    state = decode(path.read_bytes(), url).state
    state.broker = record
    state.touch_head()
    path.write_bytes(Document(state).prepare("an attack").body)
    return state.incarnation


def recorded(url: str) -> BrokerRecord | None:
    return read_heading(Path(url.removeprefix("file://")).read_bytes(), url).broker


async def refusal(url: str, token: str) -> str:
    async with asyncio.timeout(SOON_S):
        with pytest.raises(AccessDeniedError) as caught:
            async with bucketq.connect(url, token=token, mode="remote", timeout_s=600) as queue:
                await queue.push("mail", 1)
    return str(caught.value)


@asynccontextmanager
async def impostor(url: str) -> AsyncIterator[tuple[Impostor, GrpcListener]]:
    """Somebody else, whom the object names."""
    record = BrokerRecord("127.0.0.1:1", "impostor", 7, NOW)
    service = Impostor(record, write_broker(url, record))
    transport = GrpcTransport()
    listener = await transport.listen("127.0.0.1:0", service)
    service.record = replace(record, address=listener.address)
    write_broker(url, service.record)
    try:
        yield service, listener
    finally:
        await listener.close()
        await transport.close()


async def test_an_impostor_that_the_object_names_learns_neither_token_nor_payload(
    url: str, admin: str
) -> None:
    async with impostor(url) as (thief, _):
        for proof in (b"", bytes(32), b"x" * 1000):
            thief.proof = proof
            assert "does not know token" in await refusal(url, admin)
        assert len(thief.hellos) == 3
        assert all(hello.token == "" for hello in thief.hellos)
        assert all(len(hello.nonce) == 16 for hello in thief.hellos)
        assert len({hello.nonce for hello in thief.hellos}) == 3, "each stream has its own nonce"
        assert (thief.tokens, thief.calls) == ([], [])


async def test_a_proof_that_was_overheard_is_good_for_nothing(url: str, admin: str) -> None:
    async with impostor(url) as (thief, listener):
        thief.digest = token_digest(admin)
        async with bucketq.connect(f"bucketq://{listener.address}/jobs", token=admin):
            pass
        assert thief.tokens == [admin], "a peer that knows the digest can prove it"
        thief.digest = ""
        thief.tokens.clear()
        await refusal(url, admin)
        assert thief.tokens == []


async def test_a_client_that_may_write_leaves_the_impostor_alone_and_writes_directly(
    url: str, admin: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with impostor(url) as (thief, _):
        async with asyncio.timeout(SOON_S), bucketq.connect(url, token=admin) as queue:
            await queue.push("mail", 1)
        assert recorded(url) == thief.record, "no broker took over because of that"
        assert (thief.tokens, thief.calls) == ([], [])
    assert "writing directly" in caplog.text


FORBIDDEN = [
    "169.254.169.254:80",
    "169.254.170.2:80",
    "[fe80::1]:7700",
    "[fd00:ec2::254]:80",
    "[::ffff:169.254.169.254]:80",
    "[64:ff9b::a9fe:a9fe]:80",
    "100.100.100.200:80",
    "192.0.0.192:80",
    "168.63.129.16:80",
    "0.0.0.0:7700",
    "[::]:7700",
    "224.0.0.1:7700",
    "[ff02::1]:7700",
    "255.255.255.255:7700",
    "2852039166:80",  # 169.254.169.254, as one number
    "0xa9fea9fe:80",
    "0251.0376.0251.0376:80",
]


@pytest.mark.parametrize("address", FORBIDDEN)
async def test_no_client_goes_to_an_address_that_no_broker_can_have(
    url: str, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    dialled = dials(monkeypatch)
    write_broker(url, BrokerRecord(address, "impostor", 7, NOW))
    async with asyncio.timeout(SOON_S):
        with pytest.raises(AccessDeniedError, match="is not dialled"):
            async with bucketq.connect(url, mode="remote", timeout_s=600):
                pass
        async with bucketq.connect(url) as queue:
            await queue.push("mail", 1)
    assert dialled == []
    broker = recorded(url)
    assert broker is not None
    assert (broker.address, broker.epoch) == (address, 7), "no broker took over because of that"


NO_ADDRESSES = [
    "unix:/tmp/socket:1",
    "unix-abstract:x:1",
    "dns:///evil.example:1",
    "xds:///evil:1",
    "vsock:3:1",
    "http://127.0.0.1:80",
    "user@127.0.0.1:80",
    "127.0.0.1:80,169.254.169.254:80",
    "127.0.0.1:65536",
    "127.0.0.1:-1",
    "127.0.0.1:\u0661",
    "[fe80::1%lo]:80",
    "tls://127.0.0.1:80",
    "127.0.0.1:80\n",
    "../../etc/passwd:80",
]


async def test_an_invalid_address_is_never_dialled(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dialled = dials(monkeypatch)

    async def push(number: int, address: str) -> None:
        url = (folder / f"queue-{number}.json").as_uri()
        async with bucketq.connect(url, mode="direct"):
            write_broker(url, BrokerRecord(address, "impostor", 7, NOW))
        async with bucketq.connect(url, launch="never") as queue:
            await queue.push("mail", 1)

    # At once: each client looks for a broker for seconds before it writes by itself.
    async with asyncio.timeout(SOON_S), asyncio.TaskGroup() as group:
        for number, address in enumerate(NO_ADDRESSES):
            group.create_task(push(number, address))
    assert dialled == []


async def test_with_networks_given_no_other_address_is_gone_to(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    dialled = dials(monkeypatch)
    write_broker(url, BrokerRecord("198.51.100.7:7700", "impostor", 7, NOW))
    async with asyncio.timeout(SOON_S):
        with pytest.raises(AccessDeniedError, match="BUCKETQ_NETWORKS"):
            async with bucketq.connect(url, mode="remote", networks=["10.0.0.0/8"]):
                pass
        monkeypatch.setenv("BUCKETQ_NETWORKS", "10.0.0.0/8, 192.168.0.0/16")
        with pytest.raises(AccessDeniedError, match="BUCKETQ_NETWORKS"):
            async with bucketq.connect(url, mode="remote"):
                pass
    assert dialled == []


async def test_a_leader_named_by_a_broker_is_checked_as_well(url: str) -> None:
    class Misleading(Impostor):
        def ping(self, ping: Ping) -> Pong:
            del ping
            return Pong(
                incarnation=self.incarnation,
                broker="b",
                role="standing by",
                epoch=7,
                leader="169.254.169.254:80",
            )

    transport = GrpcTransport()
    service = Misleading(BrokerRecord("", "b", 7, NOW), "i")
    listener = await transport.listen("127.0.0.1:0", service)
    try:
        with pytest.raises(bucketq.UnavailableError, match="is not dialled"):
            async with bucketq.connect(f"bucketq://{listener.address}/jobs", timeout_s=2):
                pass
    finally:
        await listener.close()
        await transport.close()
    del url


async def test_a_token_never_goes_to_another_host_in_plaintext(
    admin: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    dialled = dials(monkeypatch)
    transport = GrpcTransport(Credentials(token=admin))
    with pytest.raises(UntrustedError, match="in plaintext"):
        await transport.open("198.51.100.7:7700", Hello(), 1.0)
    assert dialled == []


async def test_a_client_with_tls_uses_no_other_host_without(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    dialled = dials(monkeypatch)
    write_broker(url, BrokerRecord("198.51.100.7:7700", "impostor", 7, NOW))
    async with asyncio.timeout(SOON_S):
        with pytest.raises(AccessDeniedError, match="does not speak TLS"):
            async with bucketq.connect(url, mode="remote", tls=bucketq.Tls()):
                pass
    assert dialled == []


def dials(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Which channels are made from now on."""
    made: list[str] = []

    def note(target: str, *_: object, **__: object) -> None:
        made.append(target)
        raise AssertionError(f"{target} was dialled")

    monkeypatch.setattr("grpc.aio.insecure_channel", note)
    monkeypatch.setattr("grpc.aio.secure_channel", note)
    return made
