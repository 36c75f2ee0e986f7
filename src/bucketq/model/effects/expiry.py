"""Jobs that expire: those that no worker has claimed in time are finished as ``expired``.

A claim never hands out a job whose time is over by the clock of the process that commits, whether
or not it was finished yet. Finishing it is a part of tidying: every commit finishes some of the
expired jobs in the object. For jobs in segments, the entry of a segment says when the next one
expires, and its index in which blocks that may be. So nothing is read before something is due, and
then only these blocks.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import NamedTuple

from msgspec.structs import replace

from bucketq.model.indexes.cold_rows import ColdJob, ColdRowsNeededError, SegmentPart
from bucketq.model.indexes.cold_segment import Segment
from bucketq.model.indexes.expiring_jobs import expiry_of
from bucketq.model.records import JobRecord
from bucketq.model.segments import Block, SegmentIndex
from bucketq.model.state import State

_PAGE_JOBS = 1000
"""How many expired jobs of the object one commit finishes, so that none takes long."""
_SLACK = timedelta(seconds=10)
"""Jobs in segments are finished so long after the first of a segment has expired, many at a time.
Until then claims skip them."""
_AHEAD = 16
"""How many blocks are asked for at once: as many as are read in parallel."""


class ExpiredRows(NamedTuple):
    """Expired jobs in segments, and when the next jobs of these segments expire."""

    jobs: list[tuple[Segment, ColdJob]]
    following: list[tuple[Segment, datetime | None]]


def is_due(state: State, now: datetime) -> bool:
    """Whether a job of the object has expired and is to be finished; it is cheap."""
    job = state.expiring.first()
    return job is not None and job.has_expired(now)


def finish_expired(state: State, now: datetime) -> int:
    """Finish jobs of the object that have expired; return how many."""
    count = 0
    while count < _PAGE_JOBS and (job := state.expiring.first()) and job.has_expired(now):
        _finish(state, job, now)
        count += 1
    return count


def is_cold_due(state: State, now: datetime) -> bool:
    """Whether jobs in segments are to be finished; it is cheap."""
    return next(_due_segments(state, now - _SLACK), None) is not None


def find_expired_rows(state: State, now: datetime, most: int) -> ExpiredRows:
    """Find jobs in segments that have expired, about ``most``; nothing is changed.

    Raises:
        ColdRowsNeededError: Rows that decide it have not been read.
    """
    found = ExpiredRows([], [])
    for segment in list(_due_segments(state, now)):
        state.attach_cold()
        jobs, following = _expired_in(state, segment, now, most - len(found.jobs))
        found.jobs.extend((segment, job) for job in jobs)
        found.following.append((segment, following))
        if len(found.jobs) >= most:
            break
    return found


def finish_expired_rows(state: State, found: ExpiredRows, now: datetime) -> int:
    """Finish what ``find_expired_rows`` has found; return how many."""
    for segment, following in found.following:
        if segment.record.expires_at != following:
            segment.expire_next(following)
            state.cold.rows.is_touched = True
            state.changes.append(("segments", segment.record.id))
    for segment, job in found.jobs:
        _finish(state, state.cold.lend(segment, job), now)
    return len(found.jobs)


def _due_segments(state: State, now: datetime) -> Iterator[Segment]:
    rows = state.cold.rows
    for segment in rows.of_class("ready", "later"):
        expires_at = segment.record.expires_at
        if expires_at is not None and expires_at <= now and rows.is_readable(segment):
            yield segment


def _expired_in(
    state: State, segment: Segment, now: datetime, most: int
) -> tuple[list[ColdJob], datetime | None]:
    """Return jobs of a segment that have expired, and when others of it expire."""
    rows, index = state.cold.rows, state.cold.rows.index_of(segment)
    found, later = list[ColdJob](), list[datetime]()
    for block, first in _blocks(segment, index):
        if first > now or len(found) >= most:
            later.append(first)
            continue
        if not rows.cache.has_block(segment.record, block):
            raise ColdRowsNeededError(_missing(state, segment, index, now))
        for job in rows.jobs_of(segment, index, block.start, block.stop):
            if job[1].has_expired(now):
                found.append(job)
            elif (expires_at := expiry_of(job[1])) is not None:
                later.append(expires_at)
    return found, min(later, default=None)


def _blocks(segment: Segment, index: SegmentIndex) -> list[tuple[Block, datetime]]:
    """Return the blocks with jobs that expire, and no job of which does so before a time."""
    known = segment.record.expires_at
    if known is None:
        return []
    found = [
        (index.blocks[each.block], max(each.first, known))
        for each in index.expiries
        if each.last >= known  # All that expired before have left.
    ]
    return sorted(found, key=lambda each: each[1])


def _missing(
    state: State, segment: Segment, index: SegmentIndex, now: datetime
) -> list[SegmentPart]:
    record, has = segment.record, state.cold.rows.cache.has_block
    due = (block for block, first in _blocks(segment, index) if first <= now)
    return [SegmentPart(record, block) for block in due if not has(record, block)][:_AHEAD]


def _finish(state: State, job: JobRecord, now: datetime) -> None:
    state.put_job(replace(job, status="done", outcome="expired", finished_at=now))
