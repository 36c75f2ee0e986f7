"""``StatsRing``: what a queue counted in the last hours, in a bounded number of samples."""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Callable
from datetime import datetime

from msgspec import Struct

from bucketq.model.queue_stats import Stats

FINE_S = 2.0
"""How often a queue is counted: the page looks live, and a broker hardly notices."""
_FINE = 300
"""Ten minutes of samples, as many as a chart has room for."""
_COARSE_S = 60.0
_GAP_S = 150.0
"""Samples that are farther apart have a time between them in which the queue did not answer."""
_COARSE = 1440
"""A day of minutes: about 100 KB for each queue."""


class Sample(Struct, frozen=True, array_like=True):
    """The counts of a queue at a time; on the wire an array, because a page loads hundreds."""

    at_ms: int
    queued: int
    running: int
    done: int
    dead: int
    oldest_s: float
    version: int
    size_bytes: int
    delayed: int = 0
    pushed: int = 0
    ended: int = 0
    epoch: int = 0
    """How often brokers have taken the queue over since it was created."""
    commit_p50_s: float | None = None
    commit_p99_s: float | None = None
    """How long commits took; None: it is not known, or there were none in the last minute."""


class StatsRing:
    """The samples of one queue: the last minutes as they were taken, and one for each minute."""

    def __init__(self) -> None:
        self._fine: deque[Sample] = deque(maxlen=_FINE)
        self._coarse: deque[Sample] = deque(maxlen=_COARSE)

    def add(self, stats: Stats, now: datetime) -> Sample:
        """Keep what was counted now."""
        commits = stats.commit_stats
        p50_s, p99_s = commits.took_s if commits and commits.measured else (None, None)
        sample = Sample(
            at_ms=round(now.timestamp() * 1000),
            queued=stats.total("queued"),
            running=stats.total("running"),
            done=stats.total("done"),
            dead=stats.total("dead"),
            oldest_s=max(0.0, stats.oldest_queued_s or 0.0),
            version=stats.version,
            size_bytes=stats.bytes,
            delayed=sum(stats.delayed.values()),
            pushed=stats.pushed,
            ended=stats.ended,
            epoch=stats.broker.epoch if stats.broker else 0,
            commit_p50_s=p50_s,
            commit_p99_s=p99_s,
        )
        self._fine.append(sample)
        if not self._coarse or sample.at_ms - self._coarse[-1].at_ms >= _COARSE_S * 1000:
            self._coarse.append(sample)
        return sample

    def samples(self) -> list[Sample]:
        """Return all samples, oldest first: those of minutes, then those of the last minutes."""
        if not self._fine:
            return []
        first = self._fine[0].at_ms
        return [*(sample for sample in self._coarse if sample.at_ms < first), *self._fine]

    def counts_ended(self) -> Callable[[float], float | None]:
        """Return how to find the number of jobs that had ended at a time in seconds.

        It is None before the first sample and after the last, and between samples so far apart that
        the page cannot have counted meanwhile.
        """
        found = self.samples()
        times = [sample.at_ms / 1000 for sample in found]

        def ended_at(at_s: float) -> float | None:
            place = bisect_right(times, at_s)
            if place in {0, len(found)}:
                return None
            before, after = found[place - 1], found[place]
            span_s = times[place] - times[place - 1]
            if span_s > _GAP_S or after.ended < before.ended:
                return None
            part = (at_s - times[place - 1]) / span_s
            return before.ended + part * (after.ended - before.ended)

        return ended_at
