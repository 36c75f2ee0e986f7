"""TLS between a client and a real broker: who is known, who is not, and how soon that is said."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

import bucketq
from bucketq import AccessDeniedError, Tls
from bucketq.codec.heading import read_heading
from bucketq.errors import InvalidRequestError
from bucketq.rpc.grpc.grpc_client import GrpcTransport
from bucketq.rpc.messages import Ping
from bucketq.rpc.transport import WrongProtocolError
from tests.chaos.fleet import BrokerProcess, Fleet
from tests.security.certificates import Authority, Pair

SOON_S = 60.0
"""Long before a client gives up, and long enough for a busy machine."""


def serving(processes: Fleet, url: str, pair: Pair, *words: str) -> BrokerProcess:
    broker = processes.serve(f"jobs={url}", *pair.options, *words)
    broker.wait_until_leading()
    broker.wait_until_serving()
    return broker


async def refused(url: str, tls: Tls | None, mode: str = "auto") -> str:
    """The error of a client that is not let in, which must come long before its time is over."""
    async with asyncio.timeout(SOON_S):
        with pytest.raises(AccessDeniedError) as caught:
            async with bucketq.connect(url, tls=tls, mode=mode, timeout_s=600):  # type: ignore[call-overload]  # any mode
                pass
    return str(caught.value)


async def test_a_client_that_trusts_the_authority_is_served(
    processes: Fleet, url: str, authority: Authority
) -> None:
    broker = serving(processes, url, authority.broker)
    for address in (f"bucketqs://{broker.address}/jobs", f"bucketq://{broker.address}/jobs", url):
        async with bucketq.connect(address, tls=authority.trust, mode="remote") as queue:
            await queue.push("mail", 1)
            stats = await queue.stats()
            assert stats.broker is not None
            assert stats.broker.tls


async def test_the_environment_says_how_a_broker_is_known(
    processes: Fleet, url: str, authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = serving(processes, url, authority.broker)
    monkeypatch.setenv("BUCKETQ_TLS_CA", str(authority.ca))
    async with bucketq.connect(f"bucketq://{broker.address}/jobs") as queue:
        await queue.push("mail", 1)


def test_the_object_records_that_its_broker_speaks_tls(
    processes: Fleet, url: str, authority: Authority
) -> None:
    broker = serving(processes, url, authority.broker)
    path = Path(url.removeprefix("file://"))
    record = read_heading(path.read_bytes(), url).broker
    assert record is not None
    assert (record.address, record.tls) == (broker.address, True)


@pytest.mark.parametrize("tls", [None, "other_ca"], ids=["the system", "another authority"])
async def test_a_client_that_trusts_another_ca_is_rejected_at_once(
    processes: Fleet, url: str, authority: Authority, tls: str | None
) -> None:
    broker = serving(processes, url, authority.broker)
    trust = Tls(ca=authority.other_ca) if tls else None
    said = await refused(f"bucketqs://{broker.address}/jobs", trust)
    assert "certificate cannot be trusted" in said
    assert "BUCKETQ_TLS_CA" in said
    assert "certificate cannot be trusted" in await refused(url, trust, "remote")


async def test_an_expired_certificate_is_not_trusted(
    processes: Fleet, url: str, authority: Authority
) -> None:
    broker = serving(processes, url, authority.expired)
    assert "expired" in await refused(f"bucketqs://{broker.address}/jobs", authority.trust)


async def test_a_certificate_must_have_the_name_of_the_broker(
    processes: Fleet, url: str, authority: Authority
) -> None:
    broker = serving(processes, url, authority.named)
    address = f"bucketqs://{broker.address}/jobs"
    assert "127.0.0.1" in await refused(address, authority.trust)
    other = Tls(ca=authority.ca, name="other.example")
    assert "other.example" in await refused(address, other)
    named = Tls(ca=authority.ca, name="broker.example")
    async with bucketq.connect(address, tls=named) as queue:
        await queue.push("mail", 1)


async def test_a_broker_that_knows_clients_by_certificate_lets_no_others_in(
    processes: Fleet, url: str, authority: Authority
) -> None:
    options = ("--tls-client-ca", str(authority.ca))
    broker = serving(processes, url, authority.broker, *options)
    address = f"bucketqs://{broker.address}/jobs"
    assert "client certificate" in await refused(address, authority.trust)
    stranger = Tls(ca=authority.ca, cert=authority.stranger.cert, key=authority.stranger.key)
    assert "client certificate" in await refused(address, stranger)
    known = Tls(ca=authority.ca, cert=authority.client.cert, key=authority.client.key)
    async with bucketq.connect(address, tls=known) as queue:
        await queue.push("mail", 1)


async def test_a_plaintext_client_gets_an_error_that_names_tls(
    processes: Fleet, url: str, authority: Authority
) -> None:
    broker = serving(processes, url, authority.broker)
    assert "bucketqs://" in await refused(f"bucketq://{broker.address}/jobs", None)
    transport = GrpcTransport()
    with pytest.raises(WrongProtocolError):
        await transport.ping(broker.address, Ping(), 5.0)


async def test_a_tls_client_gets_an_error_if_the_broker_speaks_plaintext(
    broker: BrokerProcess, authority: Authority
) -> None:
    said = await refused(f"bucketqs://{broker.address}/jobs", authority.trust)
    assert "--tls-cert" in said


async def test_a_client_that_may_write_does_so_if_it_does_not_trust_the_broker(
    processes: Fleet, url: str, authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    broker = serving(processes, url, authority.broker)
    async with asyncio.timeout(SOON_S), bucketq.connect(url, launch="inside") as queue:
        await queue.push("mail", 1)
        await queue.push("mail", 2)
        stats = await queue.stats()
    assert stats.broker is not None
    assert (stats.broker.address, stats.broker.epoch) == (broker.address, 1), "it was left alone"
    # Not what gRPC may still have to say of connections of other tests.
    [logged] = [record for record in caplog.records if record.name.startswith("bucketq")]
    assert "writing directly" in logged.getMessage()
    assert "BUCKETQ_TLS_CA" in logged.getMessage()


async def test_a_broker_that_cannot_check_the_leaders_certificate_stands_by_for_it(
    processes: Fleet, url: str, authority: Authority
) -> None:
    first = serving(processes, url, authority.broker)
    second = processes.serve(f"jobs={url}", *authority.broker.options)
    second.wait_until(lambda: "cannot find out whether its broker is alive" in second.text())
    assert "BUCKETQ_TLS_CA" in second.text()
    async with bucketq.connect(url, tls=authority.trust, mode="remote") as queue:
        await queue.push("mail", 1)
    assert (first.epochs, second.epochs) == ([1], [])


def test_a_broker_that_knows_the_authority_takes_over_from_one_that_is_gone(
    processes: Fleet, url: str, authority: Authority
) -> None:
    words = ("--tls-client-ca", str(authority.ca))
    first = serving(processes, url, authority.broker, *words)
    second = processes.serve(f"jobs={url}", *authority.broker.options, *words)
    second.wait_until(lambda: "standing by" in second.text())
    second.wait_until_serving()
    assert second.epochs == []
    first.kill()
    second.wait_until_leading(2)


def test_a_broker_that_is_started_again_with_another_certificate_follows_itself(
    processes: Fleet, url: str, authority: Authority
) -> None:
    first = serving(processes, url, authority.broker)
    first.kill()
    second = processes.serve(f"jobs={url}", *authority.named.options, "--listen", first.address)
    second.wait_until_leading(2)


@pytest.mark.parametrize("broken", ["cert", "key", "ca", "pair"])
def test_files_that_cannot_be_used_are_refused_before_anything_is_dialled(
    authority: Authority, tmp_path: Path, broken: str
) -> None:
    nonsense = tmp_path / "nonsense.pem"
    nonsense.write_text("-----BEGIN CERTIFICATE-----\nnonsense\n-----END CERTIFICATE-----\n")
    good = authority.client
    tls = {
        "cert": Tls(cert=nonsense, key=good.key),
        "key": Tls(cert=good.cert, key=tmp_path / "missing.pem"),
        "ca": Tls(ca=nonsense),
        "pair": Tls(cert=good.cert, key=authority.broker.key),
    }[broken]
    with pytest.raises(InvalidRequestError, match="cannot use the certificate"):
        bucketq.connect("bucketqs://127.0.0.1:1/jobs", tls=tls)
    with pytest.raises(InvalidRequestError, match="both"):
        bucketq.connect("bucketqs://127.0.0.1:1/jobs", tls=Tls(cert=good.cert))
