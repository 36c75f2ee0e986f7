"""Where an address leads, and whether it is gone to; tests/security has those that never are."""

from __future__ import annotations

import asyncio
import socket
from ipaddress import ip_address, ip_network
from typing import Any

import pytest

from bucketq.rpc.address import ResolvedAddress, resolve_address, secured
from bucketq.rpc.transport import ConnectionLostError, NoBrokerThereError, UntrustedError

INSIDE = (ip_network("10.0.0.0/8"), ip_network("fd12::/16"))


@pytest.mark.parametrize("address", ["127.0.0.1:7", "[::1]:7", "127.9.9.9:7"])
async def test_the_own_host_is_always_allowed(address: str) -> None:
    place = await resolve_address(address, INSIDE)
    assert place.is_here
    assert place.port == 7


@pytest.mark.parametrize("address", ["10.1.2.3:7", "[fd12::1]:7", "[::ffff:10.1.2.3]:7"])
async def test_an_address_in_an_allowed_network_is_gone_to(address: str) -> None:
    assert not (await resolve_address(address, INSIDE)).is_here


@pytest.mark.parametrize("address", ["11.1.2.3:7", "[fd13::1]:7", "[::ffff:11.1.2.3]:7"])
async def test_an_address_in_no_allowed_network_is_not(address: str) -> None:
    with pytest.raises(UntrustedError, match="allowed networks"):
        await resolve_address(address, INSIDE)
    await resolve_address(address, ())


async def test_a_name_is_allowed_only_if_all_its_addresses_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = ["10.0.0.1", "169.254.169.254"]

    async def look_up(*_: object, **__: object) -> list[Any]:
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (ip, 7)) for ip in found]

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", look_up)
    with pytest.raises(UntrustedError, match=r"evil.example \(169.254.169.254\)"):
        await resolve_address("evil.example:7", ())
    del found[1]
    place = await resolve_address("good.example:7", ())
    assert place == ResolvedAddress("good.example", 7, (ip_address("10.0.0.1"),))
    assert place.target == "ipv4:10.0.0.1:7", "gRPC does not ask a second time"


async def test_a_name_that_does_not_resolve_is_not_evidence(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def fail(*_: object, **__: object) -> None:
        raise socket.gaierror("no such name")

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", fail)
    with pytest.raises(ConnectionLostError) as caught:
        await resolve_address("nowhere.example:7", ())
    assert not isinstance(caught.value, NoBrokerThereError | UntrustedError)


def test_addresses_of_both_kinds_go_into_one_target() -> None:
    place = ResolvedAddress("localhost", 7, (ip_address("::1"), ip_address("127.0.0.1")))
    assert place.target == "ipv6:[::1]:7,[::ffff:127.0.0.1]:7"
    assert place.is_here


def test_the_mark_of_tls_cannot_come_from_the_object() -> None:
    assert secured("h:1", tls=True) == "tls://h:1"
    assert secured("h:1", tls=False) == "h:1"
    assert secured("tls://h:1", tls=False) == "tls://tls://h:1", "which is not a valid address"
