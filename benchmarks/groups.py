"""What a claim costs in a queue with many groups and limits, beside a plain one.

``python benchmarks/groups.py`` applies claims of one job and of a hundred to queues with the same
number of jobs: one without groups, one with thousands of groups, one in which each of these also
has limits, and one in which most groups have reached theirs. A claim and the completion of its jobs
are repeated; the median of the processor time of a claim is shown, and its ratio to the plain
one.
"""

from __future__ import annotations

import argparse
import gc
import statistics
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

from msgspec import Raw

from bucketq.codec import Document
from bucketq.model.base import NewJob
from bucketq.model.limits import SetLimit
from bucketq.model.operations import (
    AnyOperation,
    Claim,
    CompleteMany,
    Completion,
    Configure,
    Push,
    Request,
)
from bucketq.model.state import State
from bucketq.model.transitions import apply

_START = datetime(2026, 1, 1, tzinfo=UTC)
_SECRET = "5ec2e7" * 6
_BATCH = 100


class _Queue:
    """A queue whose claims are timed."""

    def __init__(self, jobs: int, groups: int, limits: tuple[SetLimit, ...]) -> None:
        self._document = Document(State(incarnation="bench", created_at=_START))
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

    def cycle(self, limit: int, repeat: int) -> float:
        """Claim and complete; return the median of what a claim took in microseconds."""
        times = []
        for _ in range(repeat):
            self._now += timedelta(milliseconds=10)
            began = time.process_time()
            taken = self._ask(Claim(worker="bench", secret=_SECRET, limit=limit))
            times.append(time.process_time() - began)
            done = [Completion(job=job.id, lease=job.lease) for job in taken]
            assert len(done) == limit, "the queue is empty, or its limits are reached"
            self._ask(CompleteMany(jobs=tuple(done)))
            self._document.state.changes.clear()
        return 1e6 * statistics.median(times)

    def _ask(self, operation: AnyOperation) -> Any:
        return apply(self._document.state, Request(operation), self._now).result()


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--groups", type=int, default=10_000)
    parser.add_argument("--jobs", type=int, default=100_000)
    parser.add_argument("--repeat", type=int, default=300)
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
        queue.cycle(1000, 1)  # The first claims leave out what has reached its limit.
    gc.collect()
    gc.disable()
    print(f"{'claim':50} {'of 1':>10} {'ratio':>6} {'of 100':>10} {'ratio':>6}")
    plain: list[float] = []
    for name, queue in queues.items():
        times = [queue.cycle(1, arguments.repeat), queue.cycle(_BATCH, arguments.repeat // 10)]
        plain = plain or times
        cells = "".join(
            f" {each:8.1f}us {each / base:5.2f}x" for each, base in zip(times, plain, strict=True)
        )
        print(f"{name:50}{cells}")


if __name__ == "__main__":
    main()
