"""Beyond the loopback ``serve`` listens only if it is protected; errors name what is missing.

The address is one that this host does not have: whatever is not refused ends with that.
"""

from __future__ import annotations

import pytest

import bucketq
from tests.chaos.fleet import Fleet
from tests.security.certificates import Authority
from tests.security.conftest import granted

BEYOND = ["--listen", "192.0.2.1:7700"]
LET_THROUGH = "cannot listen at 192.0.2.1:7700"


def said(processes: Fleet, *words: str) -> str:
    ended = processes.command("serve", *words)
    assert ended.returncode == 2, ended
    assert "Traceback" not in ended.stderr
    return ended.stderr


def test_without_tls_it_is_refused_even_with_tokens(processes: Fleet, url: str, admin: str) -> None:
    refused = said(processes, url, *BEYOND)
    for word in (
        "--tls-cert",
        "--tls-key",
        "--tls-client-ca",
        "bucketq token create",
        "--insecure",
    ):
        assert word in refused
    assert LET_THROUGH in said(processes, url, *BEYOND, "--insecure")
    del admin


def test_with_tls_every_queue_must_ask_for_tokens(
    processes: Fleet, url: str, admin: str, authority: Authority
) -> None:
    options = [*BEYOND, *authority.broker.options]
    assert LET_THROUGH in said(processes, url, *options)
    other = url.replace("queue.json", "other.json")
    missing = said(processes, url, f"other={other}", *options)
    assert f"bucketq create {other}" in missing
    with bucketq.connect_sync(other, mode="direct"):
        pass
    asks_for_none = said(processes, url, f"other={other}", *options)
    assert f"{other} requires no token" in asks_for_none
    granted(other, "admin")
    assert LET_THROUGH in said(processes, url, f"other={other}", *options)
    with bucketq.connect_sync(other, mode="direct") as queue:
        queue.configure(require_token=False)
    assert "requires no token" in said(processes, url, f"other={other}", *options)
    del admin


def test_with_certificates_of_clients_no_tokens_are_needed(
    processes: Fleet, url: str, authority: Authority
) -> None:
    options = [*BEYOND, *authority.broker.options]
    assert "requires no token" in said(processes, url, *options)
    assert LET_THROUGH in said(processes, url, *options, "--tls-client-ca", str(authority.ca))


@pytest.mark.parametrize("missing", ["--tls-key", "--tls-cert"])
def test_half_a_certificate_is_refused(
    processes: Fleet, url: str, authority: Authority, missing: str
) -> None:
    options = authority.broker.options
    place = options.index(missing)
    del options[place : place + 2]
    assert "must be given together" in said(processes, url, *options)


def test_a_certificate_that_cannot_be_used_is_refused(
    processes: Fleet, url: str, authority: Authority
) -> None:
    cert, key = str(authority.broker.cert), str(authority.client.key)
    assert "cannot use" in said(processes, url, "--tls-cert", cert, "--tls-key", key)
    bad = ["--tls-client-ca", str(authority.broker.key)]
    assert "cannot use" in said(processes, url, *authority.broker.options, *bad)
