"""Golden states of jobs that expire, in the object and in a segment."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any

from msgspec import Raw

from bucketq.codec.segment_file import encode_segment, row_of, sort_rows
from bucketq.model.records import JobRecord
from bucketq.model.segments import SegmentRecord
from bucketq.model.settings import Settings
from bucketq.model.state import State

_CREATED = datetime(2026, 2, 3, 4, 5, tzinfo=UTC)


def expiring_at(seconds: float) -> datetime:
    """A moment after the queue was created."""
    return _CREATED + timedelta(seconds=seconds)


def _job(number: int, expires_s: float | None, **fields: Any) -> JobRecord:
    expires_at = None if expires_s is None else expiring_at(expires_s)
    given: dict[str, Any] = {"status": "queued", "expires_at": expires_at} | fields
    return JobRecord(
        id=f"job-{number}",
        kind="fetch",
        seq=number,
        payload=Raw(b"%d" % number),
        pushed_at=expiring_at(number),
        **given,
    )


def expiring() -> State:
    """A queue with jobs that expire, some of them in a segment, and one that has expired."""
    state = State(
        incarnation="01K0EXP1R1NG00000000000000",
        created_at=_CREATED,
        jobs=[
            _job(7, 62),
            _job(8, 600),
            _job(9, 30, status="done", outcome="expired", finished_at=expiring_at(31)),
        ],
        segments=[expiring_segment()[0]],
    )
    state.settings = Settings(max_format=2)
    state.requires = {"expiry": None, "segments": None}
    state.next_seq = 10
    return state


@cache
def expiring_segment() -> tuple[SegmentRecord, bytes]:
    """The segment of that queue, with its entry: one job was claimed before, and stays."""
    jobs = [_job(1, 60), _job(2, 61.5), _job(3, 600), _job(4, None), _job(5, 60, attempt=1)]
    encoded = encode_segment("ready", sort_rows("ready", map(row_of, jobs)))
    return encoded.record(until=1064, at=expiring_at(50)), encoded.body
