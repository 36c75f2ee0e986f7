"""What a client shows to brokers, and what it demands of them before it shows anything.

A token goes only to a peer that has proved that it can read the queue's tokens (``broker_proof``),
and over plaintext only on the own host, unless somebody says ``insecure``. Nothing here does I/O.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from hmac import digest as hmac_digest
from ipaddress import IPv4Network, IPv6Network, ip_network
from os import PathLike

from msgspec import Struct

from bucketq.errors import InvalidRequestError
from bucketq.model.tokens import parse_token

Network = IPv4Network | IPv6Network
FilePath = str | PathLike[str]

NONCE_BYTES = 16
_PURPOSE = b"bucketq-broker-1"
"""What a proof is for, so that it is good for nothing else."""


class Tls(Struct, frozen=True, kw_only=True):
    """How a client knows a broker by its certificate, and shows its own; all are names of files.

    Attributes:
        ca: Certificates of those whose word counts, in PEM; None: those that the system trusts.
        cert: The client's own certificate with its chain, where brokers ask for one.
        key: The key of ``cert``.
        name: The name that the broker's certificate must bear, where it is not the host of the
            address.
    """

    ca: FilePath | None = None
    cert: FilePath | None = None
    key: FilePath | None = None
    name: str | None = None


class ServerTls(Struct, frozen=True, kw_only=True):
    """The certificate that a broker shows, and whom it wants to see one of; names of files.

    Attributes:
        cert: The broker's certificate with its chain, in PEM.
        key: Its key.
        client_ca: Only clients with a certificate of these are let in; None: all are.
    """

    cert: FilePath
    key: FilePath
    client_ca: FilePath | None = None


class Credentials(Struct, frozen=True, kw_only=True):
    """What one client, or one broker that looks after others, brings along.

    Attributes:
        token: The token to show; empty: none.
        tls: How brokers are known; None: TLS is spoken where the object says so, by the
            certificates that the system trusts.
        networks: Where brokers may be, beside the own host; none: anywhere that is not forbidden.
        insecure: Whether the token may travel in plaintext to other hosts.
    """

    token: str = ""
    tls: Tls | None = None
    networks: tuple[Network, ...] = ()
    insecure: bool = False

    def __repr__(self) -> str:
        """Leave the token out."""
        return f"Credentials(token_id={self.token_id!r}, tls={self.tls!r})"

    @property
    def token_id(self) -> str:
        """The part of the token that is no secret."""
        return parse_token(self.token) if self.token else ""


def make_credentials(
    environment: Mapping[str, str],
    *,
    token: str | None = None,
    tls: Tls | None = None,
    networks: Iterable[str] | None = None,
    insecure: bool = False,
) -> Credentials:
    """Check what was passed; what was not comes from ``BUCKETQ_*`` in the environment.

    Raises ``InvalidRequestError`` without showing a token.
    """
    if token is None:
        token = environment.get("BUCKETQ_TOKEN", "").strip()
    if token != "":
        parse_token(token)
    if tls is None:
        tls = _tls_of(environment)
    if not isinstance(tls, Tls | None):
        message = f"tls must be a bucketq.Tls, got {type(tls).__name__}"
        raise InvalidRequestError(message)
    if tls is not None and (tls.cert is None) != (tls.key is None):
        message = (
            "a client certificate needs both, the certificate and its key: give neither or both"
        )
        raise InvalidRequestError(message)
    if networks is None and environment.get("BUCKETQ_NETWORKS", "").strip():
        networks = environment["BUCKETQ_NETWORKS"].split(",")
    insecure = insecure or environment.get("BUCKETQ_INSECURE", "") == "1"
    return Credentials(token=token, tls=tls, networks=_networks_of(networks), insecure=insecure)


def broker_proof(digest: str, nonce: bytes, incarnation: str, broker: str, epoch: int) -> bytes:
    """Show that one knows the digest of a token, for one stream with one broker in one epoch.

    Each part is preceded by its length, so that no two lists of parts read the same.
    """
    parts = (_PURPOSE, nonce, incarnation.encode(), broker.encode(), str(epoch).encode())
    message = b"".join(len(part).to_bytes(4) + part for part in parts)
    return hmac_digest(digest.encode(), message, "sha256")


def _tls_of(environment: Mapping[str, str]) -> Tls | None:
    names = ("ca", "cert", "key", "name")
    found = {name: environment.get(f"BUCKETQ_TLS_{name.upper()}") or None for name in names}
    return Tls(**found) if any(found.values()) else None


def _networks_of(texts: Iterable[str] | None) -> tuple[Network, ...]:
    if texts is None:
        return ()
    if isinstance(texts, str):
        texts = [texts]
    try:
        found = tuple(ip_network(text.strip()) for text in texts)
    except (AttributeError, ValueError) as error:
        message = f"networks: {error}; write them like 10.0.0.0/8"
        raise InvalidRequestError(message) from None
    if not found:
        message = (
            "networks is empty, so that no broker could be reached: leave it out, or name some"
        )
        raise InvalidRequestError(message)
    return found
