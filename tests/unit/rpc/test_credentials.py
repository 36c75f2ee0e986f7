"""What a client brings along: what is passed, what the environment says, and the broker's proof."""

from __future__ import annotations

import hashlib
import hmac
from ipaddress import ip_network
from typing import Any

import pytest

from bucketq.errors import InvalidRequestError
from bucketq.rpc.credentials import Credentials, Tls, broker_proof, make_credentials

TOKEN = "bq_0123abcd_" + "5e" * 32


def test_without_anything_nothing_is_shown_and_nothing_demanded() -> None:
    assert make_credentials({}) == Credentials()
    assert Credentials().token_id == ""


def test_the_environment_says_what_is_not_passed() -> None:
    environment = {
        "BUCKETQ_TOKEN": f" {TOKEN}\n",
        "BUCKETQ_TLS_CA": "ca.pem",
        "BUCKETQ_TLS_CERT": "cert.pem",
        "BUCKETQ_TLS_KEY": "key.pem",
        "BUCKETQ_TLS_NAME": "broker.example",
        "BUCKETQ_NETWORKS": "10.0.0.0/8, fd00::/8",
        "BUCKETQ_INSECURE": "1",
    }
    found = make_credentials(environment)
    assert found == Credentials(
        token=TOKEN,
        tls=Tls(ca="ca.pem", cert="cert.pem", key="key.pem", name="broker.example"),
        networks=(ip_network("10.0.0.0/8"), ip_network("fd00::/8")),
        insecure=True,
    )
    assert found.token_id == "0123abcd"
    passed = make_credentials(environment, token="", tls=Tls(), networks=["192.0.2.0/24"])
    assert (passed.token, passed.tls) == ("", Tls())
    assert passed.networks == (ip_network("192.0.2.0/24"),)


@pytest.mark.parametrize(
    "passed",
    [
        {"token": "hunter2"},
        {"token": 7},
        {"tls": "ca.pem"},
        {"tls": Tls(cert="c")},
        {"tls": Tls(key="k")},
        {"networks": []},
        {"networks": ["10.0.0.1/8"]},
        {"networks": ["everywhere"]},
        {"networks": [None]},
    ],
    ids=str,
)
def test_what_makes_no_sense_is_refused_and_no_token_is_repeated(passed: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        make_credentials({}, **passed)
    assert "hunter2" not in str(caught.value)


def test_a_token_is_not_in_what_is_printed() -> None:
    assert "5e5e" not in repr(Credentials(token=TOKEN))


def test_a_proof_is_an_hmac_over_parts_with_their_lengths() -> None:
    parts = [b"bucketq-broker-1", b"n" * 16, b"inc", b"broker", b"7"]
    message = b"".join(len(part).to_bytes(4, "big") + part for part in parts)
    wanted = hmac.new(b"d1" * 32, message, hashlib.sha256).digest()
    assert broker_proof("d1" * 32, b"n" * 16, "inc", "broker", 7) == wanted


def test_no_two_lists_of_parts_have_one_proof() -> None:
    proofs = {
        broker_proof("d", b"n", "ab", "c", 1),
        broker_proof("d", b"n", "a", "bc", 1),
        broker_proof("d", b"na", "b", "c", 1),
        broker_proof("d", b"n", "ab", "c1", 1),
        broker_proof("d", b"n", "ab", "c", 11),
        broker_proof("e", b"n", "ab", "c", 1),
    }
    assert len(proofs) == 6
