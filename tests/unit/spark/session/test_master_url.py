"""A master that does not listen is reported at once."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from bucketq.errors import UnavailableError
from bucketq.spark.session.master_url import check_reachable
from tests.servers.process import free_ports


@pytest.fixture
def port() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


@pytest.mark.parametrize("form", ["spark://127.0.0.1:{}", "sc://127.0.0.1:{}/;user_id=me"])
def test_a_master_that_does_not_listen_is_reported(form: str, port: int) -> None:
    check_reachable(form.format(port))
    [nobody] = free_ports(1)
    with pytest.raises(UnavailableError, match=rf"answers: 127\.0\.0\.1:{nobody} \(.*running"):
        check_reachable(form.format(nobody))


def test_one_master_of_several_is_enough(port: int) -> None:
    [nobody] = free_ports(1)
    check_reachable(f"spark://127.0.0.1:{nobody},127.0.0.1:{port}")
    with pytest.raises(UnavailableError, match=f"{nobody}.*; 127"):
        check_reachable(f"spark://127.0.0.1:{nobody},127.0.0.1:{nobody}")


def test_hosts_have_names_and_addresses_of_both_kinds() -> None:
    with pytest.raises(UnavailableError, match=r"no Spark Connect server answers: ::1:1 "):
        check_reachable("sc://[::1]:1")
    with pytest.raises(UnavailableError, match=r"no-such-host\.invalid:7077"):
        check_reachable("spark://no-such-host.invalid:7077")


@pytest.mark.parametrize(
    "master", ["local[2]", "yarn", "k8s://https://host:1", "spark://", "sc://"]
)
def test_other_forms_are_left_to_spark(master: str) -> None:
    check_reachable(master)
