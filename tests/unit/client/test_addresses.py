"""Addresses of brokers come from objects and people, and are read strictly."""

from __future__ import annotations

from typing import Any

import pytest

import bucketq
from bucketq.client.broker_client import parse_address
from bucketq.errors import InvalidRequestError
from bucketq.rpc.address import Whereabouts, is_loopback, split_address, this_host

GOOD = {
    "127.0.0.1:7700": ("127.0.0.1", 7700),
    "localhost:0": ("localhost", 0),
    "broker-1.example.com:65535": ("broker-1.example.com", 65535),
    "b:1": ("b", 1),
    "[::1]:7700": ("::1", 7700),
    "[2001:db8::7]:1": ("2001:db8::7", 1),
}
BAD = [
    "",
    ":",
    "host",
    "host:",
    ":7700",
    "host:65536",
    "host:-1",
    "host:+1",
    "host: 1",
    "host:1 ",
    " host:1",
    "host:1\n",
    "host:٣",
    "host:1e3",
    "host:http",
    "http://host:1",
    "unix:/tmp/socket:1",
    "user@host:1",
    "host/path:1",
    "host:1/path",
    "-host:1",
    "host-:1",
    ".host:1",
    "ho st:1",
    "ho%73t:1",
    "höst:1",
    "::1:7700",
    "[::1:7700",
    "::1]:7700",
    "[]:1",
    "[host]:1",
    "h" * 254 + ":1",
    "dns:///host:1",
    "host,other:1",
    "host:1:2",
]


@pytest.mark.parametrize("address", GOOD)
def test_a_host_and_a_port_are_taken_apart(address: str) -> None:
    assert split_address(address) == GOOD[address]


@pytest.mark.parametrize("address", BAD)
def test_anything_else_is_refused(address: str) -> None:
    with pytest.raises(InvalidRequestError, match="HOST:PORT"):
        split_address(address)


@pytest.mark.parametrize(
    ("address", "loopback"),
    [
        ("127.0.0.1:1", True),
        ("127.9.8.7:1", True),
        ("[::1]:1", True),
        ("localhost:1", True),
        ("0.0.0.0:1", False),
        ("[::]:1", False),
        ("10.0.0.1:1", False),
        ("169.254.169.254:1", False),
        ("localhost.example.com:1", False),
        ("broker:1", False),
        ("", False),
    ],
)
def test_what_can_be_reached_on_its_own_host_only(address: str, loopback: bool) -> None:
    assert is_loopback(address) is loopback


def test_a_host_is_the_same_for_all_its_processes_and_says_its_name() -> None:
    assert this_host() == this_host()
    here = Whereabouts.parse(this_host())
    assert here.name
    assert str(here) == this_host()


@pytest.mark.parametrize(
    ("url", "parsed"),
    [
        ("bucketq://b:1/jobs", (("b:1",), "jobs")),
        ("bucketq://b:1,c:2/jobs", (("b:1", "c:2"), "jobs")),
        ("bucketq://[::1]:7700/jobs", (("[::1]:7700",), "jobs")),
        ("bucketq://b:1/", (("b:1",), "")),
        ("bucketq://b:1", (("b:1",), "")),
    ],
)
def test_an_address_names_brokers_and_a_queue(
    url: str, parsed: tuple[tuple[str, ...], str]
) -> None:
    assert parse_address(url) == parsed


@pytest.mark.parametrize(
    "url",
    [
        "bucketq://",
        "bucketq:///jobs",
        "bucketq://b/jobs",
        "bucketq://b:1,/jobs",
        "bucketq://,b:1/jobs",
        "bucketq://b:1,c/jobs",
        "bucketq://me:secret@b:1/jobs",
        "bucketq://b:1/jobs/more",
        "bucketq://b:1/jobs?timeout=5",
        "bucketq://b:1/jobs#top",
        "bucketq://b:99999/jobs",
    ],
)
@pytest.mark.parametrize("connect", [bucketq.connect, bucketq.connect_sync])
def test_an_address_that_names_anything_else_is_refused_when_connecting(
    connect: Any, url: str
) -> None:
    with pytest.raises(InvalidRequestError) as no:
        connect(url)
    assert "secret" not in str(no.value)


@pytest.mark.parametrize("mode", ["direct", "embedded"])
def test_a_broker_cannot_be_reached_without_one(mode: Any) -> None:
    with pytest.raises(InvalidRequestError, match="impossible"):
        bucketq.connect("bucketq://b:1/jobs", mode=mode)
