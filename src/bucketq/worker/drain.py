"""``Drain``: how a worker divides the time of a graceful shutdown.

A stopped worker exits within its drain time, because it would be killed soon after: by Kubernetes
30 s after SIGTERM. So handlers may not use all of it. The last part is for stopping those that
still run, releasing their jobs, and closing the queue::

    stop                          hurry             settled    closed
     |--- handlers may finish ------|-- release jobs --|-- queue --|
     0                                                           drain_s
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from bucketq.client.connect import UnopenedQueue

_log = logging.getLogger("bucketq.worker")

_SHORTEST_S = 5.0
"""The least time for a shutdown, however short the drain: jobs that are not released in time wait
until their leases expire."""
_LAST_WORDS_S = 5.0
"""How long releasing jobs may take after ``hurry``."""
_LAST_PART = 0.3
"""The most that releasing jobs may take of a short drain."""
_STOP_S = 1.0
"""How long a handler may take to stop before its job is released regardless."""
_CLOSE_S = 1.0
"""How long closing the queue may take."""


class Drain:
    """The deadlines of a graceful shutdown."""

    def __init__(self, drain_s: float) -> None:
        """Divide ``drain_s``; the clock starts with ``begin``."""
        self.total_s = max(drain_s, _SHORTEST_S)
        """The most that the shutdown takes."""
        self.handlers_s = drain_s - min(_LAST_WORDS_S, drain_s * _LAST_PART)
        """How long handlers may continue."""
        self._hurry_at = self._end_at = float("inf")

    def begin(self, now_s: float) -> None:
        """Start the shutdown."""
        if self._end_at == float("inf"):
            self._hurry_at = now_s + self.handlers_s
            self._end_at = now_s + self.total_s

    def hurry(self, now_s: float) -> None:
        """Start the last part: handlers are stopped now."""
        self.begin(now_s)
        self._hurry_at = min(self._hurry_at, now_s)
        self._end_at = min(self._end_at, now_s + _LAST_WORDS_S)

    def handlers_left_s(self, now_s: float) -> float:
        """How long handlers may still continue."""
        return max(0.0, self._hurry_at - now_s)

    def stop_s(self, now_s: float) -> float:
        """How long to wait for a handler that is stopped now."""
        return min(_STOP_S, self.left_s(now_s) / 3)

    def settle_left_s(self, now_s: float) -> float:
        """How long jobs may still be released."""
        return max(0.0, self._end_at - 2 * self._close_s - now_s)

    def close_left_s(self, now_s: float) -> float:
        """How long closing the queue may still take."""
        return max(0.0, self._end_at - self._close_s - now_s)

    def left_s(self, now_s: float) -> float:
        """How long until the shutdown is over."""
        return max(0.0, self._end_at - now_s)

    @property
    def _close_s(self) -> float:
        # Twice: once for the queue, and once for what a process does after its worker.
        return min(_CLOSE_S, (self._end_at - self._hurry_at) / 6)


async def close_in_time(connection: UnopenedQueue[Any], drain: Drain | None) -> None:
    """Close a queue, within the drain time if there is one."""
    loop = asyncio.get_running_loop()
    closing = loop.create_task(connection.__aexit__(None, None, None))
    left_s = None if drain is None else drain.close_left_s(loop.time())
    await asyncio.wait([closing], timeout=left_s)
    if closing.done():
        closing.result()
    else:
        _log.warning("the queue did not close in time; unanswered requests were dropped")
        closing.cancel()
