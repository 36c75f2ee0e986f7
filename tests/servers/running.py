"""The servers of a test run: each is started when it is first asked for, and once a process.

One that is not installed is skipped, with the reason. With ``BUCKETQ_TEST_REQUIRE_ALL`` the
test fails instead, so that nothing goes untested unnoticed.
"""

from __future__ import annotations

import atexit
import functools
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.environ import IS_ALL_REQUIRED
from tests.servers import azurite, fakegcs, ministack, seaweedfs
from tests.servers.process import NotInstalledError
from tests.servers.server import Server

SERVERS: dict[str, Callable[[Path], Server]] = {
    "seaweedfs": seaweedfs.start,
    "ministack": ministack.start,
    "azurite": azurite.start,
    "fakegcs": fakegcs.start,
}


def running(name: str) -> Server:
    """The server of this name, running; skips or fails the test where there can be none."""
    found = _start(name)
    if isinstance(found, Server):
        return found
    if isinstance(found, NotInstalledError) and not IS_ALL_REQUIRED:
        pytest.skip(str(found))
    pytest.fail(str(found), pytrace=False)


@functools.cache
def _start(name: str) -> Server | Exception:
    """Start a server, or remember why that cannot be done."""
    folder = Path(tempfile.mkdtemp(prefix=f"bucketq-{name}-"))
    # Behind the server, which is stopped first: the last that is asked for is the first done.
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    try:
        return SERVERS[name](folder)
    except (NotInstalledError, RuntimeError) as error:
        return error
