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

_TOGETHER = "tests/spark/"
"""They share one Spark session, which is started once for each process of a run."""


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Hand out tests by file, and all those of Spark as if they were in one."""
    if config.getvalue("dist") != "loadfile":
        return None
    from xdist.scheduler import LoadFileScheduling  # noqa: PLC0415 - a plugin, perhaps not there

    scheduler = LoadFileScheduling(config, log)
    by_file = scheduler._split_scope
    scheduler._split_scope = lambda nodeid: (
        _TOGETHER if nodeid.startswith(_TOGETHER) else by_file(nodeid)
    )
    return scheduler
