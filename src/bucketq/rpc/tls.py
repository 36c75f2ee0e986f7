"""Certificates and keys from their files, checked before a library that says less gets them.

Files are read whenever a connection is made, so that whoever renews a certificate on a client need
not start it again.
"""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import NamedTuple

from bucketq.errors import InvalidRequestError
from bucketq.rpc.credentials import FilePath, ServerTls, Tls


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
    cert, key = Path(tls.cert).read_bytes(), Path(tls.key).read_bytes()
    return ServerPems(cert, key, _read(tls.client_ca))


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
    return None if path is None else Path(path).read_bytes()


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
