"""What a claim costs in a queue with many groups and limits, beside a plain one.

``python benchmarks/groups.py`` applies claims of one job and of a hundred to queues with the same
number of jobs: one without groups, one with thousands of groups, one in which each of these also
has limits, and one in which most groups have reached theirs. Requests have a session and a number,
as clients send them. The queues take turns, some claims at a time, each followed by the completion
of its jobs; the median of the CPU time of a claim is shown, and its ratio to the plain one.
"""

from __future__ import annotations

import argparse
import gc
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from statistics import median
from time import thread_time
from typing import Any

from msgspec import Raw

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.core import Client

from bucketq.codec.document import Document
from bucketq.model.base import NewJob
from bucketq.model.limits import SetLimit
from bucketq.model.operations import (
    AnyOperation,
    Claim,
    CompleteMany,
    Completion,
    Configure,
    Push,
)
from bucketq.model.state import State
from bucketq.model.transitions import apply

_START = datetime(2026, 1, 1, tzinfo=UTC)
_SECRET = "5ec2e7" * 6
_BATCH = 100
_TURN = 10
"""So many claims of one queue are timed before those of the next."""


class _Queue:
    """A queue whose claims are timed."""

    def __init__(self, jobs: int, groups: int, limits: tuple[SetLimit, ...]) -> None:
        self._document = Document(State(incarnation="bench", created_at=_START))
        self._client = Client()
        self._now = _START
        self._ask(Configure(changes={"max_format": 2, "max_limits": 10 * groups or 1}))
        for limit in limits:
            self._ask(limit)
        new = list(self._new_jobs(jobs, groups))
        for first in range(0, jobs, 1000):
            self._ask(Push(jobs=tuple(new[first : first + 1000])))

    def _new_jobs(self, jobs: int, groups: int) -> Iterator[NewJob]:
        for number in range(jobs):
            group = f"tenant-{number % groups:06d}" if groups else ""
            yield NewJob(id=f"job-{number:08d}", kind="mail", payload=Raw(b"{}"), group=group)

    def hold(self, count: int) -> None:
        """Claim jobs that stay running, so that groups have reached their limits."""
        for _ in range(0, count, 1000):
            self._ask(Claim(worker="bench", secret=_SECRET, limit=1000))

    def cycle(self, limit: int) -> float:
        """Claim jobs and complete them; return what the claim took in microseconds."""
        self._now += timedelta(milliseconds=10)
        request = self._client.request(Claim(worker="bench", secret=_SECRET, limit=limit))
        began_s = thread_time()
        applied = apply(self._document.state, request, self._now)
        took_s = thread_time() - began_s
        done = [Completion(job=job.id, lease=job.lease) for job in applied.result()]
        assert len(done) == limit, "the queue is empty, or its limits are reached"
        self._ask(CompleteMany(jobs=tuple(done)))
        self._document.state.changes.clear()
        return 1e6 * took_s

    def _ask(self, operation: AnyOperation) -> Any:
        return apply(self._document.state, self._client.request(operation), self._now).result()


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--groups", type=int, default=10_000)
    parser.add_argument("--jobs", type=int, default=100_000)
    parser.add_argument("--repeat", type=int, default=600)
    arguments = parser.parse_args()
    groups, jobs = arguments.groups, arguments.jobs
    loose = (
        SetLimit(target="group=*", running=100, rate=100, period_s=1.0),
        SetLimit(target="kind=mail", running=100_000, rate=100_000, period_s=1.0),
    )
    tight = (SetLimit(target="group=*", running=1),)
    queues = {
        "plain": _Queue(jobs, 0, ()),
        f"{groups:,} groups": _Queue(jobs, groups, ()),
        f"{groups:,} groups, limits": _Queue(jobs, groups, loose),
        f"{groups:,} groups, 90 % of them at their limit": _Queue(jobs, groups, tight),
    }
    list(queues.values())[-1].hold(groups * 9 // 10)
    for queue in queues.values():
        queue.cycle(1000)  # The first claims leave out what has reached its limit.
    gc.collect()
    gc.disable()
    alone = _measure(list(queues.values()), 1, arguments.repeat)
    together = _measure(list(queues.values()), _BATCH, arguments.repeat // 10)
    print(f"{'claim':50} {'of 1':>10} {'ratio':>6} {'of 100':>10} {'ratio':>6}")
    for index, name in enumerate(queues):
        cells = (
            f"{each[index]:8.1f}us {each[index] / each[0]:5.2f}x" for each in (alone, together)
        )
        print(f"{name:50} {' '.join(cells)}")


def _measure(queues: list[_Queue], limit: int, repeat: int) -> list[float]:
    """Return the median of what a claim took, for each queue."""
    times: list[list[float]] = [[] for _ in queues]
    for _ in range(0, repeat, _TURN):
        for queue, own in zip(queues, times, strict=True):
            own += [queue.cycle(limit) for _ in range(_TURN)]
    return [median(own) for own in times]


if __name__ == "__main__":
    main()
