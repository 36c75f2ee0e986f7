"""What all tests share."""

from __future__ import annotations

import pytest
from hypothesis import settings

from tests.environ import IS_ALL_REQUIRED
from tests.leftovers import end_children, mark_children

# How long an example takes depends on what else the machine does; a test has a timeout of its
# own. In an automatic build the same examples run each time, so that a red build stays red.
settings.register_profile("here", deadline=None)
settings.register_profile("ci", deadline=None, derandomize=True, print_blob=True)
settings.load_profile("ci" if IS_ALL_REQUIRED else "here")

_LONGEST_FIRST = (
    "tests/spark/table",
    "tests/spark/stream/test_stream_reader",
    "tests/spark/stream/test_stream_writer",
    "tests/spark/archive",
    "tests/spark/stream/test_stream_killed",
    "tests/spark/handlers/test_executor_lost",
    "tests/spark/",
    "tests/simulation/",
    "tests/chaos/",
    "tests/integration/",
)
"""What takes long is begun early, or one process would be left alone with it at the end: first the
tests that share a Spark session, then those that start a Spark of their own."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--full", action="store_true", help="also run tests that are marked full, as test-all does"
    )


def pytest_configure(config: pytest.Config) -> None:
    """Leave no process behind; the one that only hands out tests starts none but its workers."""
    if hasattr(config, "workerinput") or not config.getoption("numprocesses", None):
        mark_children()
        config.add_cleanup(end_children)


@pytest.hookimpl(tryfirst=True)  # Before xdist, which groups tests by their markers.
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what only a full run has, put the longest first, and say what stays together.

    A process runs whole files, and one of them all that use the shared Spark session: a second one
    would have to start and warm up a Java process of its own.
    """
    if not config.getoption("full"):
        left_out = [item for item in items if item.get_closest_marker("full") is not None]
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item.get_closest_marker("full") is None]
    items.sort(key=_rank)
    for item in items:
        has_session = "spark" in getattr(item, "fixturenames", ())
        group = "spark" if has_session else item.nodeid.partition("::")[0]
        item.add_marker(pytest.mark.xdist_group(group))


def _rank(item: pytest.Item) -> int:
    starts = [item.nodeid.startswith(prefix) for prefix in _LONGEST_FIRST]
    return starts.index(True) if any(starts) else len(starts)
