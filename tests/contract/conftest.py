"""The queues that the contract tests run on."""

from __future__ import annotations

from collections.abc import AsyncIterator, Generator, Iterator
from pathlib import Path
from typing import Any

import pytest

from bucketq import Queue
from tests.contract.across_partitions import reason_of
from tests.contract.brokers import Brokers
from tests.contract.places import PLACES, Place


@pytest.fixture(scope="session")
def brokers() -> Iterator[Brokers]:
    """Brokers that run in another process."""
    several = Brokers()
    yield several
    several.close()


_ONE_MORE = {
    *("direct-memory", "embedded-file", "remote-file", "auto-file"),
    *("one-partition", "four-partitions", "four-direct", "four-remote"),
}
"""Places of full runs only: the others have each way to commit and each store, if not each pair of
them. What differs in ``remote-file`` from ``address-file`` is how the broker is found, which
``tests/integration/test_brokers.py`` and ``tests/security`` do in every run. In ``auto-file`` the
broker is in the process of its client, as in ``tests/unit/client`` and ``tests/integration``."""


def _places() -> list[pytest.ParameterSet]:
    full = [pytest.mark.full]
    return [pytest.param(name, marks=full if name in _ONE_MORE else []) for name in PLACES]


@pytest.fixture(params=_places())
def place(request: pytest.FixtureRequest, tmp_path: Path, brokers: Brokers) -> Iterator[Place]:
    """The address of a queue that does not exist yet."""
    name = request.function.__name__
    if request.param.startswith("four-") and (reason := reason_of(request.module.__name__, name)):
        pytest.skip(reason)
    chosen = PLACES[request.param](tmp_path, brokers)
    yield chosen
    brokers.stop(chosen.url)


@pytest.fixture
async def queue(place: Place) -> AsyncIterator[Queue[Any]]:
    """A new queue, open."""
    async with place.connect() as opened:
        yield opened


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Show what the server said beside a test that failed on it."""
    report = yield
    server = getattr(item, "funcargs", {}).get("server")
    if report.failed and server is not None and server.child is not None:
        report.sections.append(("log of the server", server.child.log_end()))
    return report
