"""File descriptors: how many this process may have, and how many of them connections may take.

Each connection takes one, and so does every file and socket of the storage. If connections took
them all, nothing could be committed any more.
"""

from __future__ import annotations

import resource
from contextlib import suppress

_ENOUGH = 65_536
"""The soft limit is not raised further: a broker has at most 10,000 connections, and a hard limit
of a thousand million, as some containers have it, makes programs slow that close all of them."""
_LEAST_RESERVE, _MOST_RESERVE = 64, 1024


def raise_limit() -> None:
    """Raise the soft limit of this process to the hard one, as far as is useful."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _ENOUGH if hard == resource.RLIM_INFINITY else min(hard, _ENOUGH)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with suppress(OSError, ValueError):  # macOS has a lower limit, which it does not tell.
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def most_connections() -> int:
    """How many connections a listener may have; a quarter or so is kept for everything else."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft > _ENOUGH:
        soft = _ENOUGH
    reserve = min(max(soft // 4, _LEAST_RESERVE), _MOST_RESERVE)
    return max(1, soft - reserve)
