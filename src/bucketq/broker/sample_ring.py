"""``SampleRing``: what a leader counted in the last hours, for charts of those who look later.

The web page counts a queue itself, and forgets it when it is stopped. The leader is there anyway,
and has the counts in memory: it takes a sample in a round that it makes in any case, and idle
leaders make one every five seconds. Nothing is read from the storage for it.

A sample is of a version that was committed: it is taken when a commit is prepared, kept when that
has landed, and dropped if it was lost.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from typing import NamedTuple

from msgspec.structs import replace

from bucketq.broker.commit_meter import CommitMeter
from bucketq.clock import Clock
from bucketq.model.effects.reads import sample
from bucketq.model.queue_stats import StatsSample
from bucketq.model.state import State

_FINE_S = 10.0
_FINE = 360
"""An hour of samples, six for each minute: a chart of an hour is as fine as a screen shows, and one
of ten minutes has 60 points."""
_COARSE_S = 120.0
_COARSE = 720
"""A day, the longest that the page shows. A sample takes about half a kilobyte, so those of a queue
take at most 600 KB; one for each minute would take half as much again in brokers of hundreds of
queues, and a chart of a day does not show more than 720 points."""

_log = logging.getLogger("bucketq.broker")


class _Taken(NamedTuple):
    at_s: float
    """By the time of the loop."""
    sample: StatsSample


class SampleRing:
    """The samples of one leader: the last hour, and some for each hour of a day."""

    def __init__(self, clock: Clock, meter: CommitMeter) -> None:
        """Begin without samples; ``meter`` has measured the commits."""
        self._clock = clock
        self._meter = meter
        self._fine: deque[_Taken] = deque(maxlen=_FINE)
        self._coarse: deque[_Taken] = deque(maxlen=_COARSE)
        self._next_s = 0.0
        self._taken: _Taken | None = None
        """A sample of what is not committed yet."""

    def take(self, state: State) -> None:
        """Count a state that is about to be committed, if it is time."""
        now_s = asyncio.get_running_loop().time()
        if now_s < self._next_s:
            return
        commits = self._meter.measure()
        p50_s, p99_s = commits.took_s if commits.measured else (None, None)
        try:
            found = sample(state, self._clock.now())
        except Exception:  # noqa: BLE001 - a chart must not stop a broker
            _log.exception("the queue cannot be counted for charts")
            self._next_s = now_s + _COARSE_S
            return
        self._taken = _Taken(now_s, replace(found, commit_p50_s=p50_s, commit_p99_s=p99_s))

    def keep(self) -> None:
        """Keep what was taken: it is committed."""
        taken, self._taken = self._taken, None
        if taken is None:
            return
        self._next_s = taken.at_s + _FINE_S
        self._fine.append(taken)
        if not self._coarse or taken.at_s >= self._coarse[-1].at_s + _COARSE_S:
            self._coarse.append(taken)

    def drop(self) -> None:
        """Forget what was taken: it was not committed."""
        self._taken = None

    def read(self) -> tuple[StatsSample, ...]:
        """Return the samples, oldest first: those of the day, then all of the last hour."""
        now_s = asyncio.get_running_loop().time()
        first_s = self._fine[0].at_s if self._fine else 0.0
        found = [*(each for each in self._coarse if each.at_s < first_s), *self._fine]
        return tuple(
            replace(each.sample, age_s=round(max(0.0, now_s - each.at_s), 3)) for each in found
        )
