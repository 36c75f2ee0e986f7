"""Addresses of brokers: what they look like, from where they can be reached, and which are refused.

An address comes from the object or from a person, and whoever can write the object can write
anything there, so it is read strictly. No client may be sent to where secrets of the cloud are
handed out to whoever asks, nor to a device that only its own link can see.
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
"""What stands before the address of a broker that speaks TLS, on its way to a transport."""

_HOST = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.-]{0,251}[A-Za-z0-9])?|\[[0-9A-Fa-f:.]{2,45}\]")
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
"""IPv6 addresses that a translator sends on to the IPv4 address in their last 32 bits."""

_Ip = ipaddress.IPv4Address | ipaddress.IPv6Address


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


def secured(address: str, *, tls: bool) -> str:
    """The address as a transport wants it.

    One that bears the mark already is no address, and with a second one it is refused as such.
    """
    return SECURE + address if tls or address.startswith(SECURE) else address


class ResolvedAddress(NamedTuple):
    """Where an address leads: the host as it was written, and every IP address that it has."""

    host: str
    port: int
    ips: tuple[_Ip, ...]

    @property
    def is_here(self) -> bool:
        """Whether nobody but this host can listen there."""
        return all(ip.is_loopback for ip in self.ips)

    @property
    def target(self) -> str:
        """The same for gRPC, which is not to ask again where the name leads."""
        if all(ip.version == 4 for ip in self.ips):  # noqa: PLR2004 - the version of IP
            return "ipv4:" + ",".join(f"{ip}:{self.port}" for ip in self.ips)
        # One kind of address is all that a target may hold, and IPv6 can hold IPv4.
        wide = (f"::ffff:{ip}" if ip.version == 4 else f"{ip}" for ip in self.ips)  # noqa: PLR2004 - as above
        return "ipv6:" + ",".join(f"[{ip}]:{self.port}" for ip in wide)


async def resolve_address(address: str, networks: Collection[Network]) -> ResolvedAddress:
    """Find out where an address leads, and whether it may be gone to.

    Raises:
        NoBrokerThereError: It is no address.
        ConnectionLostError: Nobody can tell now where it leads.
        UntrustedError: It leads to where no broker of ours is.
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
            message = f"{shown} {refusal}, so no broker is looked for at {address}"
            raise UntrustedError(message)
    return ResolvedAddress(host, port, tuple(ips))


async def _resolve(host: str, port: int) -> list[_Ip]:
    loop = asyncio.get_running_loop()
    try:
        found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        message = f"cannot find out where {host} is: {error}"
        raise ConnectionLostError(message) from error
    ips = dict.fromkeys(str(where[0]).partition("%")[0] for *_, where in found)
    return [ipaddress.ip_address(ip) for ip in ips]


def _refusal_of(ip: _Ip, networks: Collection[Network]) -> str:
    """Why nobody is gone to at this address; empty: there is no reason."""
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
