"""How jobs flow through a queue: throughput, error rate, and percentiles of waiting and running.

All of it comes from jobs that have ended: those that are still in the queue and a sample of the
archive. So it is there on first sight, however short the page has been running. The counts of the
last minutes, which the page knows exactly, replace what is estimated.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime, timedelta
from itertools import accumulate
from math import floor
from typing import Any

from msgspec import Struct

from bucketq.archive.archive_layout import Layout
from bucketq.client.connect_arguments import BROKERS
from bucketq.dashboard.finished_sample import ArchiveSample, FinishedJob, SampleRead, measure
from bucketq.errors import InvalidRequestError
from bucketq.queue.queue import Queue
from bucketq.store.url import open_store

SPANS = (600, 3600, 21600, 86400)
"""The time ranges that can be asked for, in seconds."""
POINTS = 60
"""Into how many parts a range is divided: as many as a small chart can show."""
_PERCENTS = (50, 95, 99)
_MOST_KINDS = 100
"""How many kinds are answered, the busiest first: a table that can be read."""
_QUEUE_PAGES = 5
_PAGE = 200
"""Jobs that have ended and are still in the queue are read in so many pages of so many jobs."""

EndedAt = Callable[[float], float | None]
"""How many jobs had ended at a time in seconds; None: it is not known."""


class KindFlow(Struct, frozen=True, kw_only=True):
    """What became of the jobs of a kind, or of all, in a range of time."""

    ended: int
    completed: int
    dead: int
    attempts: int
    failed: int
    """How many attempts failed, of jobs that have ended."""
    wait_s: tuple[float, ...] | None
    """Percentiles 50, 95 and 99; None: it is not known of any job."""
    run_s: tuple[float, ...] | None
    by_time: list[float]
    """How many ended in each part of the range."""
    failed_by_time: list[float]


class JobFlow(Struct, frozen=True, kw_only=True):
    """What the page shows of a range of time."""

    since_ms: int
    step_s: float
    """How long each part of the range is."""
    all: KindFlow
    kinds: dict[str, KindFlow]
    files: int
    """How many archive files the range has."""
    read_files: int
    """How many of them were read, now or before."""
    note: str
    """What is missing; empty: nothing is."""


async def read_sample(
    url: str, sample: ArchiveSample, since: datetime, now: datetime
) -> SampleRead:
    """Sample the archive of a queue."""
    location = open_store(url)
    try:
        layout = Layout.of(location.store.url, location.key)
        return await sample.read(location.store, layout, since, now)
    finally:
        await location.store.close()


def has_archive(url: str) -> bool:
    """Whether the archive of a queue can be read: a broker does not read it for others."""
    return not url.startswith(BROKERS)


def parse_span(text: str) -> int:
    """Read a range of time in seconds."""
    if not text:
        return SPANS[0]
    if text not in map(str, SPANS):
        raise InvalidRequestError(f"a span is {', '.join(map(str, SPANS))} seconds, got {text!r}")
    return int(text)


async def read_ended(queue: Queue[Any]) -> tuple[list[FinishedJob], bool]:
    """Return jobs of the queue that are done or dead, and whether these are all."""
    found, after = list[FinishedJob](), 0
    for _ in range(_QUEUE_PAGES):
        page = await queue.jobs(statuses=("done", "dead"), after=after, limit=_PAGE)
        found += measure(job.record for job in page.jobs)
        if page.next_after is None:
            return found, True
        after = page.next_after
    return found, False


def flow_of(
    jobs: Iterable[FinishedJob],
    now: datetime,
    span_s: int,
    ended_at: EndedAt,
    *,
    files: int = 0,
    read_files: int = 0,
    note: str = "",
) -> JobFlow:
    """Count jobs that ended in the last ``span_s`` seconds."""
    step_s = span_s / POINTS
    # Whole steps, so that a chart that is drawn again keeps its shape.
    until_s = (floor(now.timestamp() / step_s) + 1) * step_s
    since_s = until_s - span_s
    by_kind: dict[str, list[FinishedJob]] = {}
    for job in jobs:
        if since_s <= job.at_s < until_s:
            by_kind.setdefault(job.kind, []).append(job)
    is_estimated = read_files < files
    counted = {
        kind: _count(some, since_s, step_s, is_estimated=is_estimated)
        for kind, some in sorted(by_kind.items(), key=lambda item: -len(item[1]))[:_MOST_KINDS]
    }
    together = [job for some in by_kind.values() for job in some]
    every = _count(together, since_s, step_s, is_estimated=is_estimated)
    _correct(every.by_time, since_s, step_s, ended_at)
    return JobFlow(
        since_ms=round(since_s * 1000),
        step_s=step_s,
        all=every,
        kinds=counted,
        files=files,
        read_files=read_files,
        note=note,
    )


def _correct(by_time: list[float], since_s: float, step_s: float, ended_at: EndedAt) -> None:
    """Replace what was estimated for the parts of which the counts are known."""
    for place in range(len(by_time)):
        before = ended_at(since_s + place * step_s)
        after = ended_at(since_s + (place + 1) * step_s)
        if before is not None and after is not None and after >= before:
            by_time[place] = round(after - before, 1)


def _count(
    jobs: Sequence[FinishedJob], since_s: float, step_s: float, *, is_estimated: bool
) -> KindFlow:
    by_time, failed_by_time = [0.0] * POINTS, [0.0] * POINTS
    for job in jobs:
        place = min(POINTS - 1, int((job.at_s - since_s) / step_s))
        by_time[place] += job.weight
        failed_by_time[place] += job.weight * job.failed
    if is_estimated:
        by_time, failed_by_time = _smooth(by_time), _smooth(failed_by_time)
    return KindFlow(
        ended=round(sum(by_time)),
        completed=round(sum(job.weight for job in jobs if job.is_completed)),
        dead=round(sum(job.weight for job in jobs if job.is_dead)),
        attempts=round(sum(job.weight * job.attempts for job in jobs)),
        failed=round(sum(failed_by_time)),
        wait_s=_percentiles([(job.wait_s, job.weight) for job in jobs if job.wait_s is not None]),
        run_s=_percentiles([(job.run_s, job.weight) for job in jobs if job.run_s is not None]),
        by_time=[round(count, 1) for count in by_time],
        failed_by_time=[round(count, 1) for count in failed_by_time],
    )


def _smooth(counts: list[float]) -> list[float]:
    """Spread counts over neighbours: a file that was read stands for others before and after it."""
    before, after = [counts[0], *counts[:-1]], [*counts[1:], counts[-1]]
    return [(a + 2 * b + c) / 4 for a, b, c in zip(before, counts, after, strict=True)]


def _percentiles(values: list[tuple[float, float]]) -> tuple[float, ...] | None:
    """Return the smallest values below or at which so many percent of the weight lie."""
    if not values:
        return None
    values.sort()
    sums = list(accumulate(weight for _, weight in values))
    found, place = list[float](), 0
    for percent in _PERCENTS:
        while sums[place] < sums[-1] * percent / 100 and place < len(values) - 1:
            place += 1
        found.append(round(values[place][0], 3))
    return tuple(found)


def range_of(now: datetime, span_s: int) -> datetime:
    """Return when a range that ends now begins, and one part before it."""
    return now.astimezone(UTC) - timedelta(seconds=span_s + span_s / POINTS)
