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
from typing import NamedTuple

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


class Whereabouts(NamedTuple):
    """Where a process runs, as far as it matters to who can reach a loopback address."""

    name: str
    machine: str
    """The same through reboots; empty where it is not known."""
    boot: str
    network: str
    """Which loopback it is: containers have their own."""

    def __str__(self) -> str:
        return "/".join(self)

    @classmethod
    def parse(cls, text: str) -> Whereabouts:
        """Read what ``str`` has written; anything else is somewhere unknown."""
        parts = text.split("/")
        return cls(*parts) if len(parts) == len(cls._fields) else cls(text, "", "", "")

    def cannot_reach(self, other: Whereabouts) -> bool:
        """Whether a loopback address means something else there, so that nobody here can tell.

        A loopback of this machine before it was started anew is not out of reach: it is gone.
        """
        if self.machine and (self.machine, self.boot) != (other.machine, other.boot):
            return self.machine != other.machine
        return self != other


def this_host() -> str:
    """Where this process runs, for the record of a broker."""
    whereabouts = Whereabouts(
        socket.gethostname().replace("/", "-"),
        _digest_of(Path("/etc/machine-id")),
        _digest_of(Path("/proc/sys/kernel/random/boot_id")),
        _digest_of(Path("/proc/self/ns/net")),
    )
    return str(whereabouts)


def _digest_of(path: Path) -> str:
    """A short name for what a file or link of the system says; empty where there is none."""
    try:
        text = str(path.readlink()) if path.is_symlink() else path.read_text()
    except OSError:
        return ""
    return blake2b(text.encode(), digest_size=4).hexdigest() if text.strip() else ""
