"""Checks that a broker that other hosts can reach has TLS and authenticates its clients."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from bucketq.clock import Clock
from bucketq.commit.objects.register import Register
from bucketq.errors import InvalidRequestError, QueueNotFoundError, UnavailableError
from bucketq.store.url import Location

if TYPE_CHECKING:
    from bucketq.rpc.credentials import Credentials, ServerTls


def server_tls(cert: Path | None, key: Path | None, client_ca: Path | None) -> ServerTls | None:
    """The TLS settings of the options, or None for plaintext."""
    from bucketq.rpc.credentials import ServerTls
    from bucketq.rpc.grpc.tls import read_server

    if cert is None and key is None and client_ca is None:
        return None
    if cert is None or key is None:
        message = "--tls-cert and --tls-key must be given together, and --tls-client-ca needs both"
        raise InvalidRequestError(message)
    tls = ServerTls(cert=cert, key=key, client_ca=client_ca)
    read_server(tls)
    return tls


def outgoing(tls: ServerTls | None) -> Credentials:
    """The credentials with which a broker probes others: the environment's, or its own."""
    from bucketq.rpc.credentials import Tls, make_credentials

    found = make_credentials(os.environ, token="")
    if tls is None:
        return found
    known = found.tls or Tls(ca=tls.client_ca)
    if known.cert is None:
        known = replace(known, cert=tls.cert, key=tls.key)
    return replace(found, tls=known)


def check_listen(listen: str, tls: ServerTls | None, *, insecure: bool) -> None:
    """Raise ``InvalidRequestError`` if other hosts could connect without TLS."""
    from bucketq.rpc.address import is_loopback

    if tls is None and not insecure and not is_loopback(listen):
        raise InvalidRequestError(
            f"--listen {listen} accepts connections from other hosts, without protection: add "
            "--tls-cert and --tls-key, and either --tls-client-ca, or tokens for every queue "
            "(`bucketq token create URL --name NAME --rights RIGHTS`); or add --insecure if every "
            "host that can connect may read and change the queues"
        )


async def check_token_required(
    location: Location, listen: str, clock: Clock, timeout_s: float
) -> None:
    """Raise ``InvalidRequestError`` if a queue requires no token, or does not exist yet."""
    url = location.url
    try:
        async with asyncio.timeout(timeout_s):
            register = Register(location.store, location.key, url, clock, location.partition)
            if (await register.open(create=False)).state.settings.require_token:
                return
        problem = "requires no token: "
    except QueueNotFoundError:
        problem = f"does not exist yet: `bucketq create {url}`, then "
    except TimeoutError as error:
        message = f"{url} could not be read within {timeout_s:g} s; try again"
        raise UnavailableError(message) from error
    raise InvalidRequestError(
        f"--listen {listen} accepts connections from other hosts, and {url} {problem}`bucketq "
        f"token create {url} --name NAME --rights RIGHTS`; or add --tls-client-ca, or --insecure"
    )
