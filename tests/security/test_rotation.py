"""Certificates are replaced under running brokers and clients, and nothing is started again."""

from __future__ import annotations

import asyncio
import shutil
import signal
import socket
import ssl
import time
from pathlib import Path

import pytest
import trustme

import bucketq
from bucketq import Tls, UnavailableError
from bucketq.errors import InvalidRequestError
from bucketq.rpc.credentials import ServerTls
from bucketq.rpc.grpc.tls import ServerFiles
from tests.chaos.fleet import BrokerProcess, Fleet
from tests.security.certificates import Pair
from tests.security.test_tls import serving


class Renewed:
    """An authority whose certificates are replaced in the files that hold them."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._authority = trustme.CA()
        self.ca = folder / "ca.pem"
        self.pair = Pair(folder / "cert.pem", folder / "key.pem")
        self._authority.cert_pem.write_to_path(self.ca)
        self.issue()

    def issue(self) -> None:
        """Put a new pair in place, one file after the other."""
        for name, body in self._pems().items():
            (self._folder / name).write_bytes(body)

    def issue_key_only(self) -> None:
        """Stop halfway: a new key, and the certificate of the old one."""
        self.pair.key.write_bytes(self._pems()["key.pem"])

    def _pems(self) -> dict[str, bytes]:
        issued = self._authority.issue_cert("127.0.0.1")
        chain = b"".join(blob.bytes() for blob in issued.cert_chain_pems)
        return {"cert.pem": chain, "key.pem": issued.private_key_pem.bytes()}

    def shown_at(self, address: str) -> str:
        """The serial number of the certificate that a new connection is shown."""
        context = ssl.create_default_context(cafile=str(self.ca))
        context.load_cert_chain(self.pair.cert, self.pair.key)
        context.set_alpn_protocols(["h2"])
        host, _, port = address.rpartition(":")
        with (
            socket.create_connection((host, int(port)), 10) as plain,
            context.wrap_socket(plain, server_hostname=host) as secure,
        ):
            shown = secure.getpeercert()
            assert shown is not None
            return str(shown["serialNumber"])


@pytest.fixture
def renewed(folder: Path) -> Renewed:
    place = folder / "tls"
    place.mkdir()
    return Renewed(place)


async def test_new_connections_see_the_new_certificate_and_old_ones_live_on(
    processes: Fleet, url: str, renewed: Renewed
) -> None:
    options = ("--tls-client-ca", str(renewed.ca))
    broker = serving(processes, url, renewed.pair, *options)
    tls = Tls(ca=renewed.ca, cert=renewed.pair.cert, key=renewed.pair.key)
    address = f"bucketqs://{broker.address}/jobs"
    async with bucketq.connect(address, tls=tls) as queue:
        await queue.push("mail", 1)
        route = queue._committer._committer  # type: ignore[attr-defined]
        before = renewed.shown_at(broker.address)
        assert renewed.shown_at(broker.address) == before
        renewed.issue()
        after = renewed.shown_at(broker.address)
        assert after != before
        await queue.push("mail", 2)
        assert queue._committer._committer is route  # type: ignore[attr-defined]
        async with bucketq.connect(address, tls=tls) as other:
            assert (await other.stats()).total("queued") == 2
    assert "reloaded the certificate" in broker.text()


def test_a_certificate_without_its_key_leaves_the_last_one_in_use(
    processes: Fleet, url: str, renewed: Renewed, folder: Path
) -> None:
    broker = serving(processes, url, renewed.pair)
    kept = folder / "kept"
    shutil.copytree(renewed.ca.parent, kept)
    with_kept = Renewed.__new__(Renewed)
    with_kept.ca, with_kept.pair = kept / "ca.pem", Pair(kept / "cert.pem", kept / "key.pem")
    before = with_kept.shown_at(broker.address)
    renewed.issue_key_only()
    for _ in range(3):
        assert with_kept.shown_at(broker.address) == before
    renewed.pair.cert.unlink()
    assert with_kept.shown_at(broker.address) == before
    renewed.issue()
    assert with_kept.shown_at(broker.address) != before
    assert broker.text().count("still using the previous certificate") == 1


def test_files_are_read_again_only_when_they_have_changed(renewed: Renewed) -> None:
    tls = ServerTls(cert=renewed.pair.cert, key=renewed.pair.key, client_ca=renewed.ca)
    files = ServerFiles(tls)
    assert files.changed() is None
    renewed.issue()
    changed = files.changed()
    assert changed is not None
    assert changed.cert == renewed.pair.cert.read_bytes()
    assert files.changed() is None
    renewed.ca.unlink()
    assert files.changed() is None
    assert files.pems == changed
    with pytest.raises(InvalidRequestError, match="cannot use the certificate"):
        ServerFiles(tls)


def test_a_standby_outlives_the_rotation_of_its_files_and_takes_over_later(
    processes: Fleet, url: str, renewed: Renewed
) -> None:
    words = ("--tls-client-ca", str(renewed.ca))
    first = serving(processes, url, renewed.pair, *words)
    second = processes.serve(f"jobs={url}", *renewed.pair.options, *words)
    second.wait_until_serving()
    second.wait_until(lambda: "standing by" in second.text())
    away = renewed.ca.with_suffix(".away")
    for path in (renewed.ca, renewed.pair.key):
        path.rename(away)
        second.wait_until(lambda: "cannot find out whether its broker is alive" in second.text())
        # Long enough for several pings; however many there were, it is still there.
        time.sleep(1.5)
        away.rename(path)
        second.wait_until(lambda: "this has passed" in second.text())
    assert second.returncode is None
    assert second.epochs == []
    first.kill()
    second.wait_until_leading(2)


async def test_calls_time_out_while_the_authority_is_missing_and_the_broker_is_frozen(
    processes: Fleet, url: str, renewed: Renewed
) -> None:
    broker: BrokerProcess = serving(processes, url, renewed.pair)
    address = f"bucketqs://{broker.address}/jobs"
    async with bucketq.connect(address, tls=Tls(ca=renewed.ca), timeout_s=6) as queue:
        await queue.push("mail", 1)
        broker.send(signal.SIGSTOP)
        away = renewed.ca.with_suffix(".away")
        renewed.ca.rename(away)
        async with asyncio.timeout(60):
            with pytest.raises(UnavailableError):
                await queue.push("mail", 2)
        away.rename(renewed.ca)
        broker.send(signal.SIGCONT)
        async with asyncio.timeout(60):
            await queue.push("mail", 3)


def test_a_wrong_path_is_an_error_at_the_start(
    processes: Fleet, url: str, renewed: Renewed
) -> None:
    missing = Pair(renewed.pair.cert, renewed.pair.key.with_name("missing.pem"))
    done = processes.command("serve", url, *missing.options)
    assert done.returncode != 0
    assert "missing.pem" in done.stderr
