"""Certificates and keys from their files, checked before a library that says less gets them.

A client reads its files whenever it connects, and a broker reads its own again when they have
changed. So a certificate is renewed by replacing the files, and nothing needs to be restarted.
"""

from __future__ import annotations

import logging
import ssl
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from bucketq.errors import InvalidRequestError
from bucketq.rpc.credentials import FilePath, ServerTls, Tls

_log = logging.getLogger("bucketq.broker")


class Pems(NamedTuple):
    """What the files hold; None: none was named."""

    ca: bytes | None
    cert: bytes | None
    key: bytes | None


class ServerPems(NamedTuple):
    """What the files of a broker hold."""

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
    """The files of a broker, read again when they have changed."""

    def __init__(self, tls: ServerTls) -> None:
        """Read them. Raises ``InvalidRequestError`` on one that cannot be used."""
        self._tls = tls
        self._stamp = self._stamps()
        self._is_logged = False
        self.pems = read_server(tls)

    def changed(self) -> ServerPems | None:
        """Return what the files hold, if that is new and can be used.

        While they are being replaced (one is missing, or certificate and key do not belong
        together yet) the last ones that could be used are kept. gRPC calls this from a thread
        of its own whenever a client connects.
        """
        stamp = self._stamps()
        if stamp == self._stamp:
            return None
        try:
            pems = read_server(self._tls)
            if self._stamps() != stamp:
                return None  # They changed meanwhile, and may not belong together.
        except InvalidRequestError as error:
            if not self._is_logged:
                self._is_logged = True
                _log.warning("serving on with the certificate that was read before: %s", error)
            return None
        self.pems, self._stamp, self._is_logged = pems, stamp, False
        _log.info("the certificate in %s was read again", self._tls.cert)
        return self.pems

    def _stamps(self) -> list[tuple[int, int, int]]:
        """What tells one content of the files from another; a missing file has none."""
        stamps = []
        for path in (self._tls.cert, self._tls.key, self._tls.client_ca):
            with suppress(OSError):
                if path is not None:
                    found = Path(path).stat()
                    stamps.append((found.st_mtime_ns, found.st_size, found.st_ino))
        return stamps


def client_context(tls: Tls | None) -> ssl.SSLContext:
    """What Python's own TLS needs to ask the question that gRPC answers too shortly."""
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
    try:
        return Path(path).read_bytes()
    except OSError as error:
        message = f"cannot read {path}: {_why(error)}; a PEM file is wanted"
        raise InvalidRequestError(message) from error


def _load_ca(context: ssl.SSLContext, path: FilePath) -> None:
    try:
        context.load_verify_locations(path)
    except OSError as error:
        message = f"cannot use the certificates in {path}: {_why(error)}; a PEM file is wanted"
        raise InvalidRequestError(message) from error


def _load_chain(context: ssl.SSLContext, cert: FilePath, key: FilePath | None) -> None:
    try:
        # Without a password it would ask for one on the terminal.
        context.load_cert_chain(cert, key, password="")
    except OSError as error:
        message = (
            f"cannot use the certificate {cert} with the key {key}: {_why(error)}; PEM files that "
            "belong together are wanted, the key without a password"
        )
        raise InvalidRequestError(message) from error


def _why(error: OSError) -> str:
    if isinstance(error, ssl.SSLError):
        return (error.reason or str(error)).lower().replace("_", " ")
    return (error.strerror or str(error)).lower()
