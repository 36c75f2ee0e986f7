"""``StatsRing``: what a queue counted in the last hours, in a bounded number of samples.

The page counts by itself, every two seconds. For the time in which it did not, before it was
started and while the queue did not answer, there is what the broker has counted.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterable
from datetime import datetime

from msgspec import Struct

from bucketq.model.queue_stats import Stats, StatsSample

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
    oldest_s: float | None
    """None: it is not known."""
    version: int
    size_bytes: int
    delayed: int | None = 0
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

    def lacks(self, now: datetime) -> bool:
        """Whether a broker may know more of the time before: nothing was counted lately."""
        return not self._fine or now.timestamp() * 1000 - self._fine[-1].at_ms > _GAP_S * 1000

    def fill(self, stats: Stats, now: datetime) -> None:
        """Add what the broker has counted at times of which there are no samples."""
        if not stats.samples:
            return
        known = [sample.at_ms for sample in self.samples()]
        epoch = stats.broker.epoch if stats.broker else 0

        def is_gap(at_ms: int) -> bool:
            place = bisect_right(known, at_ms)
            if place in {0, len(known)}:
                return True
            return known[place] - known[place - 1] > _GAP_S * 1000

        found = (_sample_of(each, epoch, now) for each in stats.samples)
        added = [sample for sample in found if is_gap(sample.at_ms)]
        self._fine = deque(_in_order([*self._fine, *added]), _FINE)
        coarse = _in_order([*self._coarse, *added])
        self._coarse = deque(_thin(coarse), _COARSE)

    def last_ms(self) -> int:
        """Return the time of the latest sample; 0: there is none."""
        return self._fine[-1].at_ms if self._fine else 0

    def samples(self, after_ms: int = 0) -> list[Sample]:
        """Return the samples after a time, oldest first: one for each minute, then the latest."""
        if self.last_ms() <= after_ms:
            return []
        first = self._fine[0].at_ms
        coarse = (sample for sample in self._coarse if sample.at_ms < first)
        return [sample for sample in (*coarse, *self._fine) if sample.at_ms > after_ms]

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


def _sample_of(found: StatsSample, epoch: int, now: datetime) -> Sample:
    """Convert what a broker has counted while it led in an epoch."""
    left = found.queued + found.running + found.dead
    return Sample(
        at_ms=round((now.timestamp() - found.age_s) * 1000),
        queued=found.queued,
        running=found.running,
        done=found.done,
        dead=found.dead,
        oldest_s=found.oldest_queued_s,
        version=found.version,
        size_bytes=found.bytes,
        delayed=found.delayed,
        pushed=found.pushed,
        ended=max(0, found.pushed - left),
        epoch=epoch,
        commit_p50_s=found.commit_p50_s,
        commit_p99_s=found.commit_p99_s,
    )


def _in_order(samples: Iterable[Sample]) -> list[Sample]:
    return sorted(samples, key=lambda sample: sample.at_ms)


def _thin(samples: Iterable[Sample]) -> list[Sample]:
    """Keep a sample for each minute."""
    kept = list[Sample]()
    for sample in samples:
        if not kept or sample.at_ms - kept[-1].at_ms >= _COARSE_S * 1000:
            kept.append(sample)
    return kept
