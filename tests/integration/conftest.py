"""A queue on a file and on an S3 server, and processes that a test may kill."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import bucketq
from tests.chaos.fleet import Fleet, fleet
from tests.servers.running import running
from tests.servers.server import ENVIRON

SERVER_TOO = pytest.param("seaweedfs", marks=[pytest.mark.servers, pytest.mark.full])
"""``test_feature_kills`` uses the server in every run, and so do the contracts of the store and of
deep queues, with their kills."""


@pytest.fixture(params=["file", SERVER_TOO])
def new_url(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The address of a queue that is not there yet."""
    if request.param == "file":
        return (tmp_path / "queue.json").as_uri()
    for variable, value in ENVIRON.items():
        monkeypatch.setenv(variable, value)
    return running(request.param).url()


@pytest.fixture
def served_url(new_url: str) -> str:
    """A queue that is there, and empty; nothing leaves it."""
    with bucketq.connect_sync(new_url, mode="direct") as queue:
        queue.configure(archive_after_s=3600)
    return new_url


@pytest.fixture
def processes(tmp_path: Path) -> Iterator[Fleet]:
    """Processes that end with the test."""
    with fleet(tmp_path) as started:
        yield started
    assert started.complaints() == ""
