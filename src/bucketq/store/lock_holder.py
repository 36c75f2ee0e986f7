"""Which process holds a file lock, as far as the kernel says so (Linux only).

``/proc/locks`` names the process that took each lock. It leaves out those of other containers, and
some filesystems show another device there than ``stat`` does; then the holder is not known.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

_LOCKS = Path("/proc/locks")
_STOPPED = frozenset({"T", "t"})
"""How the kernel abbreviates a process that was stopped by a signal or by a debugger."""


class Holder(NamedTuple):
    """A process that holds a lock."""

    pid: int
    is_stopped: bool


def find_holder(lock: int) -> Holder | None:
    """Find the process that holds a ``flock`` on an open file; None: it is not known."""
    try:
        info = os.fstat(lock)
        table = _LOCKS.read_text()
    except OSError:
        return None
    file = f"{os.major(info.st_dev):02x}:{os.minor(info.st_dev):02x}:{info.st_ino}"
    for line in table.splitlines():
        # 1: FLOCK  ADVISORY  WRITE 4242 08:01:1310751 0 EOF; a process that waits has an arrow.
        _, kind, _, _, pid, locked, *_ = (*line.split(), *[""] * 6)
        if kind == "FLOCK" and locked == file and pid.isdecimal() and int(pid) > 0:
            return Holder(int(pid), _is_stopped(pid))
    return None


def _is_stopped(pid: str) -> bool:
    try:
        status = Path("/proc", pid, "stat").read_text()
    except OSError:
        return False
    # PID (NAME) STATE ...; the name may contain blanks and brackets.
    return status.rpartition(")")[2].split()[0] in _STOPPED
