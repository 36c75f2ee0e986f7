"""Certificates for the tests: good ones, and each kind of bad one."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

import trustme

from bucketq import Tls


class Pair(NamedTuple):
    """A certificate and its key, in files."""

    cert: Path
    key: Path

    @property
    def options(self) -> list[str]:
        """The options for ``bucketq serve``."""
        return ["--tls-cert", str(self.cert), "--tls-key", str(self.key)]


class Authority:
    """Somebody who signs certificates, and a stranger who does so as well."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._good, bad = trustme.CA(), trustme.CA()
        self.ca, self.other_ca = folder / "ca.pem", folder / "other-ca.pem"
        self._good.cert_pem.write_to_path(self.ca)
        bad.cert_pem.write_to_path(self.other_ca)
        self.broker = self._write("broker", self._good.issue_cert("127.0.0.1", "localhost"))
        self.named = self._write("named", self._good.issue_cert("broker.example"))
        self.client = self._write("client", self._good.issue_cert("worker@example.org"))
        self.stranger = self._write("stranger", bad.issue_cert("worker@example.org"))
        past = datetime(2020, 1, 1, tzinfo=UTC)
        self.expired = self._write("expired", self._good.issue_cert("127.0.0.1", not_after=past))

    @property
    def trust(self) -> Tls:
        """What a client needs to know a broker."""
        return Tls(ca=self.ca)

    def _write(self, name: str, issued: trustme.LeafCert) -> Pair:
        pair = Pair(self._folder / f"{name}.pem", self._folder / f"{name}-key.pem")
        for number, blob in enumerate(issued.cert_chain_pems):
            blob.write_to_path(pair.cert, append=number > 0)
        issued.private_key_pem.write_to_path(pair.key)
        return pair
