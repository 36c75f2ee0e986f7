"""File descriptors: how many this process may open, and how many of them connections may use.

Each connection uses one, and so does every file and socket of the storage. If connections used
them all, nothing could be committed any more.
"""

from __future__ import annotations

import resource
from contextlib import suppress

_ENOUGH = 65_536
"""The soft limit is not raised further: a broker has at most 10,000 connections, and programs that
close all descriptors are slow with a limit of a thousand million, as some containers have."""
_LEAST_RESERVE, _MOST_RESERVE = 64, 1024
"""Bounds for what is kept for everything but connections: a quarter of the limit, within these."""


def raise_limit() -> None:
    """Raise the soft limit of this process towards the hard one."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _ENOUGH if hard == resource.RLIM_INFINITY else min(hard, _ENOUGH)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with suppress(OSError, ValueError):  # macOS has a lower limit, which it does not report.
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def most_connections() -> int:
    """How many connections a listener may have; about a quarter is kept for everything else."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft > _ENOUGH:
        soft = _ENOUGH
    reserve = min(max(soft // 4, _LEAST_RESERVE), _MOST_RESERVE)
    return max(1, soft - reserve)
