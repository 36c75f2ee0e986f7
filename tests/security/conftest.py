"""Real brokers on the loopback, their queues, certificates, and what attackers say to them."""

from __future__ import annotations

import os
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import grpc.aio
import pytest

import bucketq
from tests.chaos.fleet import BrokerProcess, Fleet, fleet
from tests.contract.brokers import Brokers
from tests.security.certificates import Authority


@pytest.fixture
def folder() -> Iterator[Path]:
    """A directory in memory, if the host has one."""
    in_memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(dir=in_memory, prefix="bucketq-test-") as name:
        yield Path(name)


@pytest.fixture
def processes(folder: Path) -> Iterator[Fleet]:
    """Processes that end with the test."""
    with fleet(folder) as started:
        yield started


@pytest.fixture
def url(folder: Path) -> str:
    """A queue that is there, and empty."""
    address = (folder / "queue.json").as_uri()
    with bucketq.connect_sync(address, mode="direct"):
        return address


@pytest.fixture
def admin(url: str) -> str:
    """A token that allows everything, from which on brokers ask for tokens."""
    return granted(url, "admin")


@pytest.fixture
def broker(processes: Fleet, url: str) -> BrokerProcess:
    """A broker that leads, without TLS."""
    started = processes.serve(f"jobs={url}")
    started.wait_until_leading()
    started.wait_until_serving()
    return started


@pytest.fixture
async def channel(broker: BrokerProcess) -> AsyncIterator[Any]:
    """What an attacker has who can reach the broker."""
    channel = grpc.aio.insecure_channel(broker.address)
    yield channel
    await channel.close(None)


@pytest.fixture(scope="session")
def brokers() -> Iterator[Brokers]:
    """Brokers that share a process."""
    several = Brokers()
    yield several
    several.close()


class Served(NamedTuple):
    """A broker of which a test needs no more than its address."""

    address: str


@pytest.fixture
def served(brokers: Brokers, url: str) -> Iterator[Served]:
    """A broker that leads, in a process that all tests share: one takes half a second to start."""
    yield Served(brokers.serve(url, "jobs"))
    brokers.stop(url)


@pytest.fixture(scope="session")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """Somebody whose word counts, and who has signed certificates."""
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(autouse=True)
def _plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever runs the tests may have a token."""
    for name in [name for name in os.environ if name.startswith("BUCKETQ_")]:
        monkeypatch.delenv(name)


def granted(url: str, *rights: Any, **options: Any) -> str:
    """A new token, granted by a client that can write the object."""
    with bucketq.connect_sync(url, mode="direct") as queue:
        return queue.create_token("test", rights, **options)


async def granted_by(admin: str, place: str, *rights: Any, **options: Any) -> str:
    """A new token, granted through the broker, which knows it from then on."""
    async with bucketq.connect(place, token=admin) as queue:
        return await queue.create_token("test", rights, **options)
