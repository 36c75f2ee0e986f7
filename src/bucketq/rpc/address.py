"""Addresses of brokers: parsing, resolving, and rejecting those that must not be dialled.

An address comes from the object or from a person. Any writer of the object can put anything there,
so parsing is strict. A client never dials the metadata service of a cloud, which hands out
credentials, or a link-local address.
"""

from __future__ import annotations

import asyncio
import ipaddress
import re
import socket
from collections.abc import Collection
from hashlib import blake2b
from pathlib import Path
from typing import NamedTuple

from bucketq.errors import InvalidRequestError
from bucketq.rpc.credentials import Network
from bucketq.rpc.transport import ConnectionLostError, NoBrokerThereError, UntrustedError

SECURE = "tls://"
"""The prefix of an address that a transport dials over TLS."""

_HOST = r"[A-Za-z0-9]([A-Za-z0-9.-]{0,251}[A-Za-z0-9])?|\[[0-9A-Fa-f:.]{2,45}\]"
_HIGHEST_PORT = 65535
_NEVER = tuple(
    ipaddress.ip_network(text)
    for text in (
        "169.254.0.0/16",  # link-local, and the metadata of most clouds
        "fe80::/10",
        "fd00:ec2::254/128",  # metadata: Amazon, by IPv6
        "fd20:ce::254/128",  # Google, by IPv6
        "100.100.100.200/32",  # Alibaba
        "192.0.0.192/32",  # Oracle
        "168.63.129.16/32",  # the host of a virtual machine on Azure
    )
)
_TRANSLATED = ipaddress.IPv6Network("64:ff9b::/96")
"""IPv6 addresses that NAT64 translates to the IPv4 address in their last 32 bits."""

_Ip = ipaddress.IPv4Address | ipaddress.IPv6Address


def split_address(address: str) -> tuple[str, int]:
    """Split ``host:port``. Raises ``InvalidRequestError`` if it has another form."""
    host, colon, port = address.rpartition(":")
    if (
        not colon
        or not re.fullmatch(_HOST, host)
        or not port.isascii()
        or not port.isdigit()
        or int(port) > _HIGHEST_PORT
    ):
        message = f"bad address {address!r}: write it as HOST:PORT, like 127.0.0.1:7700"
        raise InvalidRequestError(message)
    return host.strip("[]"), int(port)


def secured(address: str, *, tls: bool) -> str:
    """Return the address with the prefix for TLS, if it is used.

    An address that already has the prefix is not valid; a second prefix gets it rejected.
    """
    return SECURE + address if tls or address.startswith(SECURE) else address


class ResolvedAddress(NamedTuple):
    """An address with all IP addresses of its host."""

    host: str
    port: int
    ips: tuple[_Ip, ...]

    @property
    def is_here(self) -> bool:
        """Whether only a process of this host can listen there."""
        return all(ip.is_loopback for ip in self.ips)

    @property
    def target(self) -> str:
        """The target for gRPC, which must not resolve the name a second time."""
        if all(ip.version == 4 for ip in self.ips):  # noqa: PLR2004 - the version of IP
            return "ipv4:" + ",".join(f"{ip}:{self.port}" for ip in self.ips)
        # A target holds one kind of address only, and IPv6 can represent IPv4.
        wide = (f"::ffff:{ip}" if ip.version == 4 else f"{ip}" for ip in self.ips)  # noqa: PLR2004 - as above
        return "ipv6:" + ",".join(f"[{ip}]:{self.port}" for ip in wide)


async def resolve_address(address: str, networks: Collection[Network]) -> ResolvedAddress:
    """Resolve an address, and check that it may be dialled.

    Raises:
        NoBrokerThereError: It is not a valid address.
        ConnectionLostError: The name cannot be resolved now.
        UntrustedError: It resolves to an address that is not allowed.
    """
    try:
        host, port = split_address(address)
    except InvalidRequestError as error:
        message = f"no broker can listen there: {error}"
        raise NoBrokerThereError(message) from error
    try:
        ips = [ipaddress.ip_address(host)]
    except ValueError:
        ips = await _resolve(host, port)
    for ip in ips:
        refusal = _refusal_of(ip, networks)
        if refusal:
            shown = host if host == str(ip) else f"{host} ({ip})"
            message = f"{shown} {refusal}, so {address} is not dialled"
            raise UntrustedError(message)
    return ResolvedAddress(host, port, tuple(ips))


async def _resolve(host: str, port: int) -> list[_Ip]:
    loop = asyncio.get_running_loop()
    try:
        found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        message = f"cannot resolve {host}: {error}"
        raise ConnectionLostError(message) from error
    ips = dict.fromkeys(str(where[0]).partition("%")[0] for *_, where in found)
    return [ipaddress.ip_address(ip) for ip in ips]


def _refusal_of(ip: _Ip, networks: Collection[Network]) -> str:
    """Why this address must not be dialled; empty: it may be."""
    if isinstance(ip, ipaddress.IPv6Address):
        inner = ip.ipv4_mapped
        if ip in _TRANSLATED:
            inner = ipaddress.IPv4Address(int(ip) & 0xFFFF_FFFF)
        if inner is not None:
            return _refusal_of(inner, networks)
    if ip.is_loopback:
        return ""
    if ip.is_multicast or ip.is_unspecified or ip.is_reserved:
        return "is not the address of a host"
    if any(ip in network for network in _NEVER):
        return "is link-local or belongs to the cloud itself"
    if networks and not any(ip in network for network in networks):
        return "is in none of the allowed networks (`networks`, BUCKETQ_NETWORKS)"
    return ""


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
    """Where a process runs, to decide whether two processes share a loopback interface."""

    name: str
    machine: str
    """A digest of the machine id, which survives reboots; empty if it is not known."""
    boot: str
    network: str
    """The network namespace: containers have loopback interfaces of their own."""

    def __str__(self) -> str:
        return "/".join(self)

    @classmethod
    def parse(cls, text: str) -> Whereabouts:
        """Parse what ``str`` returns; anything else is an unknown place."""
        parts = text.split("/")
        return cls(*parts) if len(parts) == len(cls._fields) else cls(text, "", "", "")

    def cannot_reach(self, other: Whereabouts) -> bool:
        """Whether a loopback address of the other process cannot be reached from here.

        A loopback address of this machine before its last boot counts as reachable: it is gone.
        """
        if self.machine and (self.machine, self.boot) != (other.machine, other.boot):
            return self.machine != other.machine
        return self != other


def this_host() -> str:
    """Describe where this process runs, for the record of a broker."""
    whereabouts = Whereabouts(
        socket.gethostname().replace("/", "-"),
        _digest_of(Path("/etc/machine-id")),
        _digest_of(Path("/proc/sys/kernel/random/boot_id")),
        _digest_of(Path("/proc/self/ns/net")),
    )
    return str(whereabouts)


def _digest_of(path: Path) -> str:
    """Return a short digest of a system file or link; empty if there is none."""
    try:
        text = str(path.readlink()) if path.is_symlink() else path.read_text()
    except OSError:
        return ""
    return blake2b(text.encode(), digest_size=4).hexdigest() if text.strip() else ""
