"""What a client shows to brokers, and what it requires of them first.

A token is sent only to a peer that has proved that it can read the queue's tokens
(``broker_proof``), and in plaintext only within this host, unless ``insecure`` is set. Nothing here
does I/O.
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
"""128 random bits: no nonce is ever drawn twice."""
_PURPOSE = b"bucketq-broker-1"
"""Part of what is signed, so that a proof cannot be used for anything else."""


class Tls(Struct, frozen=True, kw_only=True):
    """How a client verifies a broker's certificate, and its own certificate, by file names.

    All are given by name: ``Tls(ca="ca.pem")``.

    Attributes:
        ca: Trusted CA certificates, in PEM; None: those that the system trusts.
        cert: The client's own certificate with its chain, if brokers require one.
        key: The key of ``cert``.
        name: The name that the broker's certificate must have, if it is not the host of the
            address.
    """

    ca: FilePath | None = None
    cert: FilePath | None = None
    key: FilePath | None = None
    name: str | None = None


class ServerTls(Struct, frozen=True, kw_only=True):
    """A broker's certificate, and whether it requires one of clients; all are file names.

    Attributes:
        cert: The broker's certificate with its chain, in PEM.
        key: Its key.
        client_ca: Clients need a certificate that one of these has signed; None: they need none.
    """

    cert: FilePath
    key: FilePath
    client_ca: FilePath | None = None


class Credentials(Struct, frozen=True, kw_only=True):
    """What a client, or a broker that pings others, uses to connect.

    Attributes:
        token: The token to show; empty: none.
        tls: How certificates of brokers are verified; None: TLS is used if the object says so, with
            the CA certificates that the system trusts.
        networks: Networks of brokers, beside this host; none: all that are not forbidden.
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
        """The part of the token that is not secret."""
        return parse_token(self.token) if self.token else ""


def make_credentials(
    environment: Mapping[str, str],
    *,
    token: str | None = None,
    tls: Tls | None = None,
    networks: Iterable[str] | None = None,
    insecure: bool = False,
) -> Credentials:
    """Check the arguments; those that are None come from ``BUCKETQ_*`` in the environment.

    Raises ``InvalidRequestError``, which never includes a token.
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
            "a client certificate needs its key as well: pass both `cert` and `key`, or neither"
        )
        raise InvalidRequestError(message)
    if networks is None and environment.get("BUCKETQ_NETWORKS", "").strip():
        networks = environment["BUCKETQ_NETWORKS"].split(",")
    insecure = insecure or environment.get("BUCKETQ_INSECURE", "") == "1"
    return Credentials(token=token, tls=tls, networks=_networks_of(networks), insecure=insecure)


def broker_proof(digest: str, nonce: bytes, incarnation: str, broker: str, epoch: int) -> bytes:
    """Prove knowledge of a token's digest, for one connection to one broker in one epoch.

    Each part is preceded by its length, so that no two lists of parts are encoded alike.
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
        message = "networks is empty, so no broker could be reached: leave it out, or name some"
        raise InvalidRequestError(message)
    return found
