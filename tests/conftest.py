"""What all tests share."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import settings

from tests.environ import IS_ALL_REQUIRED

# How long an example takes depends on what else the machine does; a test has a timeout of its
# own. In an automatic build the same examples run each time, so that a red build stays red.
settings.register_profile("here", deadline=None)
settings.register_profile("ci", deadline=None, derandomize=True, print_blob=True)
settings.load_profile("ci" if IS_ALL_REQUIRED else "here")

_SPARK = "tests/spark/"
_APART = (("bad_input", "stream", "stream_killed"), ("executor_lost", "places"))
"""The others share one Spark session. These have another, and start Spark themselves: three parts
that take equally long."""
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
    """Hand out tests by file, in their order, and those that share Spark as if in one."""
    if config.getvalue("dist") != "loadfile":
        return None
    from xdist.scheduler import LoadFileScheduling  # noqa: PLC0415 - a plugin, perhaps not there

    config.option.loadscopereorder = False
    scheduler = LoadFileScheduling(config, log)
    by_file = scheduler._split_scope
    part_of = {
        f"{_SPARK}test_{name}.py": f"{_SPARK}{names[0]}" for names in _APART for name in names
    }

    def scope(nodeid: str) -> str:
        file = by_file(nodeid)
        return part_of.get(file, _SPARK) if file.startswith(_SPARK) else file

    scheduler._split_scope = scope
    return scheduler
