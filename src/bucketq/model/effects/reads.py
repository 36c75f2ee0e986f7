"""What can be read of a queue. Nothing in here changes anything."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from itertools import islice, takewhile
from operator import attrgetter

from bucketq.errors import InvalidRequestError, JobNotFoundError, UnavailableError
from bucketq.model import check
from bucketq.model.effects.limits.limit_changes import reached_limits
from bucketq.model.indexes.cold_rows import ColdRows, ColdRowsNeededError, Place, SegmentPart
from bucketq.model.indexes.cold_segment import Segment
from bucketq.model.operations import Get, List, Page, ReadSnapshot, ReadStats, Snapshot
from bucketq.model.queue_stats import Stats, StatsSample
from bucketq.model.records import STATUSES, JobRecord, Progress
from bucketq.model.results import JobEnd, Wait, end_of, news_of
from bucketq.model.segments import JOB_CLASSES, SegmentClass
from bucketq.model.state import State

_SCAN_JOBS = 2000
"""A page of jobs with tags looks at so many jobs in segments, which takes some 30 ms, and may end
before it is full: otherwise a search for a tag that no job has would read the whole queue, while
other requests wait."""


def get(state: State, operation: Get, _now: datetime) -> JobRecord:
    """Read one job."""
    job = state.find_job(operation.job)
    if job is None:
        raise not_found(operation.job)
    return job


def wait(state: State, operation: Wait, _now: datetime) -> JobEnd | Progress | None:
    """Read how a job ended, or how far it has come; None: there is nothing new."""
    check.delay(operation.wait_s, "wait_s")
    job = state.find_job(operation.job)
    if job is None:
        raise not_found(operation.job)
    return end_of(job) or news_of(operation, job.progress)


def not_found(job_id: str) -> JobNotFoundError:
    """Say that there is no job with this id."""
    return JobNotFoundError(
        f"no job {job_id!r} in the queue: it was never pushed, or has been archived"
    )


def page(state: State, operation: List, _now: datetime) -> Page:
    """Read a page of jobs, in the order of their pushes.

    There may be more of them although the page is not full; ``next_after`` says so.
    """
    check.kinds(operation.kinds)
    check.whole_number(operation.limit, "limit", 1, state.settings.max_batch_jobs)
    check.whole_number(operation.after, "after", 0, 2**63)
    check.groups(operation.groups)
    if operation.batch_id:
        check.name(operation.batch_id, "batch_id")
    for status in operation.statuses:
        if status not in STATUSES:
            raise InvalidRequestError(f"unknown status {status!r}; a job is {', '.join(STATUSES)}")
    places, end = _places(state, operation)
    found = _in_order(state, operation.after, end, places)
    matching = (job for job in found if _matches(job, operation))
    jobs = tuple(islice(matching, operation.limit))
    if next(matching, None) is not None:
        return Page(jobs, jobs[-1].seq)
    return Page(jobs, None if end is None else end - 1)


def _places(state: State, operation: List) -> tuple[list[Place], int | None]:
    """Return the jobs in segments to look at, and the number of the next; None: there is none.

    Kinds and statuses are known without reading the jobs, so no more are needed than fit on the
    page, and one that shows that there are more.
    """
    rows, most = state.cold.rows, operation.limit + 1
    if operation.tags or operation.groups or operation.batch_id:
        most = max(most, _SCAN_JOBS)
    classes = _classes(operation.statuses)
    places = list(islice(rows.places_after(operation.after, classes, operation.kinds), most + 1))
    if len(places) <= most:
        return places, None
    segment, position = places.pop()
    return places, rows.seqs_of(segment)[position]


def stats(state: State, _operation: ReadStats, now: datetime) -> Stats:
    """Count the jobs."""
    state.attach_cold()
    counts: dict[str, dict[str, int]] = {}
    for (kind, status), count in sorted(state.counts.items()):
        counts.setdefault(kind, {})[status] = count
    oldest = oldest_queued(state)
    rows = state.cold.rows
    return Stats(
        version=state.version,
        incarnation=state.incarnation,
        counts=counts,
        oldest_queued_s=None if oldest is None else (now - oldest.pushed_at).total_seconds(),
        bytes=state.size_bytes + rows.live_bytes,
        paused=state.paused,
        paused_kinds=tuple(state.paused_kinds),
        broker=state.broker,
        keys=len(state.known_keys),
        sessions=len(state.sessions),
        segments=len(rows),
        segment_bytes=rows.live_bytes,
        limited=reached_limits(state, now) if state.limits else (),
        held=dict(sorted(state.followed.count_held().items())),
        pushed=state.next_seq - 1,
        delayed=_count_delayed(state, now),
    )


def sample(state: State, now: datetime) -> StatsSample:
    """Count the jobs from what is in memory, without taking the indexes of segments.

    How many rows a segment has is known before its index was read; what else has to be read for is
    left out.
    """
    totals = dict.fromkeys(STATUSES, 0)
    for (_, status), count in state.counts.items():
        totals[status] += count
    for segment in state.cold.unread.values():
        totals["dead" if segment.record.cls == "dead" else "queued"] += segment.live
    is_delay_known = all(each.record.cls != "later" for each in state.cold.unread.values())
    try:
        oldest = oldest_queued(state)
        age_s = 0.0 if oldest is None else max(0.0, (now - oldest.pushed_at).total_seconds())
    except ColdRowsNeededError:
        age_s = None
    return StatsSample(
        age_s=0.0,
        version=state.version,
        **totals,
        delayed=sum(_count_delayed(state, now).values()) if is_delay_known else None,
        oldest_queued_s=age_s,
        bytes=state.size_bytes + state.cold.rows.live_bytes,
        pushed=state.next_seq - 1,
    )


def _count_delayed(state: State, now: datetime) -> dict[str, int]:
    counts = state.cold.count_delayed(now)
    for job in state.delayed.rows():
        if job.run_at is not None and job.run_at > now:
            counts[job.kind] += 1
    return dict(sorted(counts.items()))


def oldest_queued(state: State) -> JobRecord | None:
    """Return the waiting job that was pushed first. Raises ``ColdRowsNeededError``."""
    hot = None
    queued = sum(count for (_, status), count in state.counts.items() if status == "queued")
    # Else all of them are in segments, and jobs that run would be looked through in vain.
    if state.cold.unread or queued > state.cold.rows.count("ready", "later"):
        hot = next((job for job in state.jobs if job.status == "queued"), None)
    cold = state.cold.oldest_queued(None if hot is None else hot.seq)
    return hot if cold is None else cold


def snapshot(state: State, _operation: ReadSnapshot, now: datetime) -> Snapshot:
    """Read everything. A damaged segment is an error: a part of the queue is no snapshot of it."""
    return Snapshot(
        version=state.version,
        incarnation=state.incarnation,
        at=now,
        settings=state.settings,
        paused=state.paused,
        paused_kinds=tuple(state.paused_kinds),
        jobs=_all_jobs(state),
    )


def _all_jobs(state: State) -> tuple[JobRecord, ...]:
    """Return all jobs in the order of their pushes.

    What has to be read is asked for at once, first all indexes and then all rows: otherwise the
    beginning would be decoded again for every part of the rest.
    """
    rows, cache = state.cold.rows, state.cold.rows.cache
    _check_readable(rows)
    blocks = [
        (segment, block, segment.gone.count_between(block.start, block.stop))
        for segment, index in rows.indexes(*JOB_CLASSES)
        for block in index.blocks
    ]
    blocks = [each for each in blocks if each[2] < each[1].stop - each[1].start]
    missing = [
        SegmentPart(segment.record, block)
        for segment, block, _ in blocks
        if not cache.has_block(segment.record, block)
    ]
    if missing:
        raise ColdRowsNeededError(missing)
    jobs = list(state.jobs.after(0))
    for segment, block, gone in blocks:
        found, _ = cache.jobs(segment.record, block, block.start, block.stop) or ([], {})
        # Mostly none has left, and a broker can do nothing else meanwhile.
        jobs += _live(segment, found, block.start) if gone else found
    jobs.sort(key=attrgetter("seq"))
    return tuple(jobs)


def _live(segment: Segment, jobs: list[JobRecord], start: int) -> Iterator[JobRecord]:
    return (job for place, job in enumerate(jobs, start) if place not in segment.gone)


def _check_readable(rows: ColdRows) -> None:
    damaged = [
        segment.record.id
        for segment in rows.segments.values()
        if segment.record.cls in JOB_CLASSES and not rows.is_readable(segment)
    ]
    if damaged:
        message = (
            f"there is no snapshot of this queue, because segments of it cannot be read: "
            f"{', '.join(damaged)}; `bucketq doctor --deep` says what is wrong with them. Pages of "
            "jobs (`bucketq ls --all`) have all that can be read"
        )
        raise UnavailableError(message)


def _in_order(
    state: State, after: int, end: int | None, places: list[Place]
) -> Iterator[JobRecord]:
    """Yield jobs before a number in the order of their pushes, from the object and from segments.

    Those in segments are asked for at once: otherwise the first of them would be decoded again for
    every part of the rest.
    """
    hot = takewhile(lambda job: end is None or job.seq < end, state.jobs.after(after))
    waiting = next(hot, None)
    for job in state.cold.rows.jobs_at(places):
        while waiting is not None and waiting.seq < job.seq:
            yield waiting
            waiting = next(hot, None)
        yield job
    if waiting is not None:
        yield waiting
        yield from hot


def _classes(statuses: Sequence[str]) -> Sequence[SegmentClass]:
    """The classes of segments that hold jobs of these statuses; of any if there are none."""
    queued: tuple[SegmentClass, ...] = ("ready", "later") if "queued" in statuses else ()
    dead: tuple[SegmentClass, ...] = ("dead",) if "dead" in statuses else ()
    return queued + dead if statuses else JOB_CLASSES


def _matches(job: JobRecord, operation: List) -> bool:
    return (
        (not operation.statuses or job.status in operation.statuses)
        and (not operation.kinds or job.kind in operation.kinds)
        and (not operation.groups or job.group in operation.groups)
        and (not operation.batch_id or job.batch_id == operation.batch_id)
        and all((job.tags or {}).get(tag) == value for tag, value in operation.tags.items())
    )
