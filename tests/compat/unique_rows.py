"""Golden states of jobs with unique names, in the object and in a segment."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import cache

from msgspec import Raw

from bucketq.codec.segment_file import encode_segment, row_of, sort_rows
from bucketq.model.records import JobRecord, KeyRecord
from bucketq.model.segments import SegmentRecord
from bucketq.model.settings import Settings
from bucketq.model.state import State

_CREATED = datetime(2026, 2, 3, 4, 5, tzinfo=UTC)


def unique_at(seconds: float) -> datetime:
    """A moment after the queue was created."""
    return _CREATED + timedelta(seconds=seconds)


def _job(number: int, unique: str | None) -> JobRecord:
    return JobRecord(
        id=f"job-{number}",
        kind="index",
        status="queued",
        seq=number,
        payload=Raw(b"%d" % number),
        pushed_at=unique_at(number),
        unique=unique,
    )


def unique() -> State:
    """A queue with unique jobs, one of them in a segment, and a period that is remembered."""
    state = State(
        incarnation="01K0UNIQUE0000000000000000",
        created_at=_CREATED,
        jobs=[_job(7, "user-7"), _job(8, "größe L")],
        keys=[KeyRecord(id="\x1findex\nuser-7", seq=1, job="job-7", digest="", at=unique_at(7))],
        segments=[unique_segment()[0]],
    )
    state.settings = Settings(max_format=2)
    state.requires |= {"unique": None, "segments": None}
    state.next_seq = 9
    return state


@cache
def unique_segment() -> tuple[SegmentRecord, bytes]:
    """The segment of that queue, with its entry."""
    rows = [row_of(job) for job in (_job(1, None), _job(2, "user-2"), _job(3, "größe S"))]
    encoded = encode_segment("ready", sort_rows("ready", rows))
    return encoded.record(until=1064, at=unique_at(50)), encoded.body
