"""``JobsBehind``: how many jobs wait behind the batches of a stream.

A query's progress shows the number as its lag. A pause is logged once, with what the stream does.
"""

from __future__ import annotations

import asyncio
import logging

from bucketq.model.queue_stats import Stats

LAG_S = 1.0
"""How often a stream that finds no jobs counts those that wait, as that costs a read."""
_log = logging.getLogger(__name__)


class JobsBehind:
    """The jobs of some kinds that wait."""

    def __init__(self, kinds: tuple[str, ...]) -> None:
        """Begin without a number; no kinds: all of them count."""
        self._kinds = kinds
        self.count = 0
        """How many there were when they were last counted."""
        self._counted_at = float("-inf")
        """When that was, by the loop's time."""
        self._is_paused = False
        """Whether a pause was logged that is still in force."""

    @property
    def is_due(self) -> bool:
        """Whether they were not counted for ``LAG_S``."""
        return asyncio.get_running_loop().time() >= self._counted_at + LAG_S

    def begin(self) -> None:
        """Note that they are being counted."""
        self._counted_at = asyncio.get_running_loop().time()

    def note(self, stats: Stats, *, is_endless: bool) -> None:
        """Take the number from what the queue has counted, and log a pause."""
        self.count = self.count_in(stats)
        self.log_pause(stats, is_endless=is_endless)

    def count_in(self, stats: Stats) -> int:
        """Count those that wait."""
        return sum(stats.counts.get(kind, {}).get("queued", 0) for kind in self._chosen(stats))

    def log_pause(self, stats: Stats, *, is_endless: bool) -> None:
        """Log once that jobs are not claimed because of a pause, and what the stream does then."""
        chosen = self._chosen(stats)
        held = chosen if stats.paused else chosen & set(stats.paused_kinds)
        waiting = sum(stats.counts.get(kind, {}).get("queued", 0) for kind in held)
        if waiting and not self._is_paused:
            _log.warning(
                "%s waiting, and %s is paused: resume it (bucketq resume); %s",
                f"{waiting:,} jobs are" if waiting > 1 else "1 job is",
                "the queue" if stats.paused else ", ".join(sorted(held)),
                "the stream waits until then"
                if is_endless
                else "the stream takes what is queued now, and may end without them",
            )
        self._is_paused = waiting > 0

    def _chosen(self, stats: Stats) -> set[str]:
        return set(self._kinds or stats.counts)
