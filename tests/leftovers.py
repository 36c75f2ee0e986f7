"""Ends every process that a test run has started, however its tests ended.

Each child inherits a variable that names the process of the run, also one that left its session and
has lost its parent. A fixture that stops what it started is still the rule; this is for tests that
fail before that, or whose subject is who stops whom.
"""

from __future__ import annotations

import contextlib
import os
import signal
from pathlib import Path

_VARIABLE = "STARTED_BY_TESTS_OF"


def mark_children() -> None:
    """Let the processes that are started from now on be found."""
    os.environ[_VARIABLE] = str(os.getpid())


def end_children() -> None:
    """Kill those that are still there, on a system with ``/proc``."""
    mark = f"{_VARIABLE}={os.getpid()}".encode()
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if mark in (folder / "environ").read_bytes().split(b"\0"):
                os.kill(int(folder.name), signal.SIGKILL)
