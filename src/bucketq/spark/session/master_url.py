"""Where Spark runs, as a person writes it: ``local[4]``, ``spark://host:7077``, ``sc://host``.

Promises: an address at which nobody listens is told of within seconds. Spark would try it for
minutes, and then say little.
"""

from __future__ import annotations

import re
import socket

from bucketq.errors import InvalidRequestError, UnavailableError

_CONNECT = "sc://"
_STANDALONE = "spark://"
_CONNECT_PORT = 15002
_TIMEOUT_S = 10.0
_FORM = re.compile(r"(local(\[.+\])?|local-cluster\[.+\]|yarn)$|(spark|k8s|sc)://.")
_PLACE = re.compile(r"(\[[^\]]+\]|[^:/;\[\]]+)(?::(\d{1,5}))?")


def is_local(master: str) -> bool:
    """Whether Spark is to run inside this process, or beside it on this machine."""
    return master.startswith("local")


def is_connect(master: str) -> bool:
    """Whether Spark is a server that is spoken to over Spark Connect."""
    return master.startswith(_CONNECT)


def check_form(master: str) -> None:
    """Raise ``InvalidRequestError`` where this is no master of Spark."""
    if not _FORM.match(master):
        message = (
            f"{master!r} is no master of Spark: write local[4], spark://host:7077, yarn, "
            "k8s://host, or sc://host for Spark Connect"
        )
        raise InvalidRequestError(message)


def check_answers(master: str) -> None:
    """Raise ``UnavailableError`` where nobody listens. What is no address is left to Spark."""
    places = _places(master)
    troubles = [trouble for place in places if (trouble := _trouble(*place))]
    # A cluster may have several masters, of which one is enough.
    if places and len(troubles) == len(places):
        what = "Spark Connect server" if is_connect(master) else "Spark master"
        message = f"no {what} answers: {'; '.join(troubles)}; see that it is running"
        raise UnavailableError(message)


def _places(master: str) -> list[tuple[str, int]]:
    """The hosts and ports of an address; none where it has another form."""
    if is_connect(master):
        found = [_PLACE.match(master.removeprefix(_CONNECT))]
        port = _CONNECT_PORT
    elif master.startswith(_STANDALONE):
        found = [_PLACE.fullmatch(each) for each in master.removeprefix(_STANDALONE).split(",")]
        port = 0
    else:
        return []
    places = [(each[1].strip("[]"), int(each[2] or port)) for each in found if each]
    return [place for place in places if 0 < place[1] < 1 << 16]


def _trouble(host: str, port: int) -> str:
    """Why a place cannot be reached; empty where it can."""
    try:
        socket.create_connection((host, port), timeout=_TIMEOUT_S).close()
    except OSError as error:
        return f"{host}:{port} ({error.strerror or error})"
    return ""
