"""Addresses of brokers: what they look like, and from where they can be reached.

An address comes from the object or from a person, and whoever can write the object can write
anything there, so it is read strictly.
"""

from __future__ import annotations

import ipaddress
import re
import socket
from hashlib import blake2b
from pathlib import Path

from bucketq.errors import InvalidRequestError

_HOST = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.-]{0,251}[A-Za-z0-9])?|\[[0-9A-Fa-f:.]{2,45}\]")
_HIGHEST_PORT = 65535


def split_address(address: str) -> tuple[str, int]:
    """Take ``host:port`` apart; raises ``InvalidRequestError`` where it is anything else."""
    host, colon, port = address.rpartition(":")
    if (
        not colon
        or not _HOST.fullmatch(host)
        or not port.isascii()
        or not port.isdigit()
        or int(port) > _HIGHEST_PORT
    ):
        message = f"bad address {address!r}: write it as HOST:PORT, like 127.0.0.1:7700"
        raise InvalidRequestError(message)
    return host.strip("[]"), int(port)


def is_loopback(address: str) -> bool:
    """Whether an address can be reached on its own host only."""
    host = address.rpartition(":")[0].strip("[]")
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def this_host() -> str:
    """A name for where this process runs: two processes share it if they share a loopback.

    A host's name is not enough, for containers often have the same; so what Linux tells of this
    boot and of the network namespace is hashed into it.
    """
    traits = [socket.gethostname()]
    for path in ("/proc/sys/kernel/random/boot_id", "/proc/self/ns/net"):
        try:
            place = Path(path)
            traits.append(str(place.readlink()) if place.is_symlink() else place.read_text())
        except OSError:
            continue
    digest = blake2b("\n".join(traits).encode(), digest_size=6).hexdigest()
    return f"{socket.gethostname()}/{digest}"
