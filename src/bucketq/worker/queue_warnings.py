"""Warnings that explain why a worker gets no jobs.

Each is logged once: that the queue is paused, and that jobs are queued for which this worker has no
handler, for example after a typo in the name of a kind. A kind with running jobs has another
worker, and is not mentioned.
"""

from __future__ import annotations

import logging
from collections.abc import Collection

from bucketq.model.queue_stats import Stats

_log = logging.getLogger("bucketq.worker")

_NAMED_MAX = 10
"""Keeps the line readable; `bucketq stats` lists every kind."""


class QueueWarnings:
    """Logs warnings of one worker about its queue."""

    def __init__(self, kinds: Collection[str], known: Collection[str]) -> None:
        """Warn for a worker of some kinds; ``known`` kinds have a handler as well."""
        self._kinds = kinds
        self._reported = set(known) | set(kinds)
        """Kinds that need no warning, or no further one."""
        self._is_paused = False
        """Whether the last log entry said that jobs are paused."""

    def look(self, stats: Stats) -> None:
        """Log warnings that are new."""
        self._report_pause(stats)
        self._report_kinds_without_handler(stats)

    def _report_pause(self, stats: Stats) -> None:
        kinds = [kind for kind in stats.paused_kinds if kind in self._kinds]
        is_paused = stats.paused or bool(kinds)
        if is_paused and not self._is_paused:
            what = "the queue" if stats.paused else ", ".join(kinds)
            _log.warning("%s is paused; no jobs are claimed until `bucketq resume`", what)
        self._is_paused = is_paused

    def _report_kinds_without_handler(self, stats: Stats) -> None:
        waiting = {
            kind: count for kind, count in stats.unclaimed().items() if kind not in self._reported
        }
        if not waiting:
            return
        self._reported.update(waiting)
        shown = [f"{kind} ({count:,})" for kind, count in list(waiting.items())[:_NAMED_MAX]]
        more = len(waiting) - len(shown)
        _log.warning(
            "jobs are queued that this worker has no handler for, and none of their kind runs: %s",
            ", ".join(shown) + (f" and {more:,} more kinds" if more else ""),
        )
