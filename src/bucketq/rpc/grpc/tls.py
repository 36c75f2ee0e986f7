"""Reads certificates and keys, and checks them first, because gRPC reports errors poorly.

A client reads its files whenever it connects, and a broker reads its own again when they have
changed. So a certificate is renewed by replacing its files, without a restart.
"""

from __future__ import annotations

import logging
import ssl
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from bucketq.errors import InvalidRequestError
from bucketq.rpc.credentials import FilePath, ServerTls, Tls

_log = logging.getLogger("bucketq.broker")


class Pems(NamedTuple):
    """The contents of a client's files; None: no file was named."""

    ca: bytes | None
    cert: bytes | None
    key: bytes | None


class ServerPems(NamedTuple):
    """The contents of a broker's files."""

    cert: bytes
    key: bytes
    client_ca: bytes | None


def read_client(tls: Tls | None) -> Pems:
    """Read the files of a client. Raises ``InvalidRequestError`` on one that cannot be used."""
    tls = tls or Tls()
    client_context(tls)
    return Pems(_read(tls.ca), _read(tls.cert), _read(tls.key))


def read_server(tls: ServerTls) -> ServerPems:
    """Read the files of a broker. Raises ``InvalidRequestError`` on one that cannot be used."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    _load_chain(context, tls.cert, tls.key)
    if tls.client_ca is not None:
        _load_ca(context, tls.client_ca)
    return ServerPems(_bytes_of(tls.cert), _bytes_of(tls.key), _read(tls.client_ca))


class ServerFiles:
    """The files of a broker, read again when they have changed.

    Raises ``InvalidRequestError`` on one that cannot be used.
    """

    def __init__(self, tls: ServerTls) -> None:
        self._tls = tls
        self._stamp = self._stamps()
        self._is_logged = False
        self.pems = read_server(tls)

    def changed(self) -> ServerPems | None:
        """Return the contents of the files if they are new and valid.

        While the files are being replaced (one is missing, or certificate and key do not match
        yet) the last valid contents stay in use. gRPC calls this from a thread of its own whenever
        a client connects.
        """
        stamp = self._stamps()
        if stamp == self._stamp:
            return None
        try:
            pems = read_server(self._tls)
            if self._stamps() != stamp:
                return None  # They changed meanwhile, and may not match.
        except InvalidRequestError as error:
            if not self._is_logged:
                self._is_logged = True
                _log.warning("still using the previous certificate: %s", error)
            return None
        self.pems, self._stamp, self._is_logged = pems, stamp, False
        _log.info("reloaded the certificate in %s", self._tls.cert)
        return self.pems

    def _stamps(self) -> list[tuple[int, int, int]]:
        """Return what changes whenever a file changes; a missing file has no entry."""
        stamps = []
        for path in (self._tls.cert, self._tls.key, self._tls.client_ca):
            with suppress(OSError):
                if path is not None:
                    found = Path(path).stat()
                    stamps.append((found.st_mtime_ns, found.st_size, found.st_ino))
        return stamps


def client_context(tls: Tls | None) -> ssl.SSLContext:
    """Return a context for ``probe``, which finds out why a handshake fails."""
    tls = tls or Tls()
    context = ssl.create_default_context()
    if tls.ca is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        _load_ca(context, tls.ca)
    if tls.cert is not None:
        _load_chain(context, tls.cert, tls.key)
    context.set_alpn_protocols(["h2"])
    return context


def _read(path: FilePath | None) -> bytes | None:
    return None if path is None else _bytes_of(path)


def _bytes_of(path: FilePath) -> bytes:
    with _explained(f"cannot read {path}"):
        return Path(path).read_bytes()


def _load_ca(context: ssl.SSLContext, path: FilePath) -> None:
    with _explained(f"cannot use the certificates in {path}"):
        context.load_verify_locations(path)


def _load_chain(context: ssl.SSLContext, cert: FilePath, key: FilePath | None) -> None:
    expected = "PEM files that belong together are expected, the key without a password"
    with _explained(f"cannot use the certificate {cert} with the key {key}", expected):
        # Without a password it would ask for one on the terminal.
        context.load_cert_chain(cert, key, password="")


@contextmanager
def _explained(what: str, expected: str = "expected a PEM file") -> Iterator[None]:
    """Convert an error of a file, of which OpenSSL says little, to ``InvalidRequestError``."""
    try:
        yield
    except OSError as error:
        if isinstance(error, ssl.SSLError):
            why = (error.reason or str(error)).replace("_", " ")
        else:
            why = error.strerror or str(error)
        message = f"{what}: {why.lower()}; {expected}"
        raise InvalidRequestError(message) from error
