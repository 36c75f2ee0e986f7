"""Masters of Spark as users write them: ``local[4]``, ``spark://host:7077``, ``sc://host``.

A master that does not listen is reported within seconds. Spark would retry it for minutes, and
its final error does not name the address.
"""

from __future__ import annotations

import re
import socket

from bucketq.errors import InvalidRequestError, UnavailableError

_CONNECT = "sc://"
_STANDALONE = "spark://"
_CONNECT_PORT = 15002
"""Where a Spark Connect server listens by default."""
_TIMEOUT_S = 10.0
"""Enough for a slow name lookup and a lost packet or two."""
_MASTER = re.compile(r"(local(\[.+\])?|local-cluster\[.+\]|yarn)$|(spark|k8s|sc)://.")
_HOST_AND_PORT = re.compile(r"(\[[^\]]+\]|[^:/;\[\]]+)(?::([0-9]{1,5}))?")


def is_local(master: str) -> bool:
    """Return whether Spark runs on this machine, inside this process or beside it."""
    return master.startswith("local")


def is_connect(master: str) -> bool:
    """Return whether the master is a Spark Connect server."""
    return master.startswith(_CONNECT)


def check_master(master: str) -> None:
    """Raise ``InvalidRequestError`` if this is not a master that Spark knows."""
    if not _MASTER.match(master):
        message = (
            f"{master!r} is not a Spark master: write local[4], spark://host:7077, yarn, "
            "k8s://host, or sc://host for Spark Connect"
        )
        raise InvalidRequestError(message)


def check_reachable(master: str) -> None:
    """Raise ``UnavailableError`` if nothing listens at the address of a master.

    Masters without a host and port in them are not checked.
    """
    addresses = _addresses(master)
    problems = [problem for address in addresses if (problem := _connection_problem(*address))]
    # A standalone cluster may have several masters, and one is enough.
    if addresses and len(problems) == len(addresses):
        what = "Spark Connect server" if is_connect(master) else "Spark master"
        message = f"no {what} answers: {'; '.join(problems)}; check that it is running"
        raise UnavailableError(message)


def _addresses(master: str) -> list[tuple[str, int]]:
    if is_connect(master):
        found = [_HOST_AND_PORT.match(master.removeprefix(_CONNECT))]
        port = _CONNECT_PORT
    elif master.startswith(_STANDALONE):
        hosts = master.removeprefix(_STANDALONE).split(",")
        found = [_HOST_AND_PORT.fullmatch(host) for host in hosts]
        port = 0
    else:
        return []
    addresses = [(each[1].strip("[]"), int(each[2] or port)) for each in found if each]
    return [address for address in addresses if 0 < address[1] < 1 << 16]


def _connection_problem(host: str, port: int) -> str:
    """Return why a connection fails, or an empty string if it succeeds."""
    try:
        socket.create_connection((host, port), timeout=_TIMEOUT_S).close()
    except OSError as error:
        return f"{host}:{port} ({error.strerror or error})"
    return ""
