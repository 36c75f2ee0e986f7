"""What all tests share."""

from __future__ import annotations

import os
from typing import Any

import pytest
from hypothesis import settings

# How long an example takes depends on what else the machine does; a test has a timeout of its
# own. Where nobody watches, the same examples run each time, so that a red build stays red.
settings.register_profile("here", deadline=None)
settings.register_profile("ci", deadline=None, derandomize=True, print_blob=True)
settings.load_profile("ci" if os.environ.get("CI") else "here")

_SPARK = "tests/spark/"
_TOGETHER = (
    ("bad_input", "stream", "stream_killed"),
    (
        "archive",
        "compaction",
        "guide",
        "indexing",
        "read",
        "replay",
        "report",
        "run",
        "stream_sink",
        "write",
    ),
    ("executor_lost", "places"),
)
"""Those of a line share one Spark session, or start Spark themselves, and take equally long."""
_LONGEST_FIRST = (_SPARK, "tests/simulation/", "tests/chaos/", "tests/integration/")
"""What takes long is begun early, or one process would be left alone with it at the end."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the longest first."""

    def place(item: pytest.Item) -> int:
        starts = [item.nodeid.startswith(prefix) for prefix in _LONGEST_FIRST]
        return starts.index(True) if any(starts) else len(starts)

    items.sort(key=place)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Hand out tests by file, in their order, and those that share Spark as if they were in one."""
    if config.getvalue("dist") != "loadfile":
        return None
    from xdist.scheduler import LoadFileScheduling  # noqa: PLC0415 - a plugin, perhaps not there

    config.option.loadscopereorder = False
    scheduler = LoadFileScheduling(config, log)
    by_file = scheduler._split_scope
    together = {
        f"{_SPARK}test_{name}.py": f"{_SPARK}{number}"
        for number, names in enumerate(_TOGETHER)
        for name in names
    }
    scheduler._split_scope = lambda nodeid: together.get(by_file(nodeid), by_file(nodeid))
    return scheduler
