"""Warnings about the queue, for an operator who wonders why nothing happens.

Each is logged once: that jobs are held back by a pause, and that jobs wait which this worker has no
handler for, as after a typing error in the name of a kind. A kind with running jobs has a worker
elsewhere, and is not mentioned.
"""

from __future__ import annotations

import logging
from collections.abc import Collection

from bucketq.model.operations import Stats

_log = logging.getLogger("bucketq.worker")

_NAMED_MAX = 10
"""A line stays readable; `bucketq stats` lists every kind."""


class QueueWarnings:
    """What one worker has logged about its queue."""

    def __init__(self, kinds: Collection[str], known: Collection[str]) -> None:
        """Warn for a worker of some kinds; of others that are known too, nothing is said."""
        self._kinds = kinds
        self._reported = set(known) | set(kinds)
        """Kinds that no warning is due for."""
        self._is_paused = False
        """Whether jobs are held back, as far as was logged."""

    def look(self, stats: Stats) -> None:
        """Log what is new about the queue."""
        self._report_pause(stats)
        self._report_kinds_without_handler(stats)

    def _report_pause(self, stats: Stats) -> None:
        kinds = [kind for kind in stats.paused_kinds if kind in self._kinds]
        is_paused = stats.paused or bool(kinds)
        if is_paused and not self._is_paused:
            what = "the queue" if stats.paused else ", ".join(kinds)
            _log.warning("%s is paused: jobs come when somebody resumes it (bucketq resume)", what)
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
            "jobs wait that this worker has no handler for, and none of their kind is running: %s",
            ", ".join(shown) + (f" and {more:,} more kinds" if more else ""),
        )
