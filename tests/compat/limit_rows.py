"""Golden states of jobs with groups, in the object and in a segment, and of limits."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any

from msgspec import Raw

from bucketq.codec.segment_file import encode_segment, row_of, sort_rows
from bucketq.model.limits import BucketRecord, LimitRecord
from bucketq.model.records import JobRecord
from bucketq.model.schedules import ScheduleRecord
from bucketq.model.segments import SegmentRecord
from bucketq.model.settings import Settings
from bucketq.model.state import State

_CREATED = datetime(2026, 3, 4, 5, 6, tzinfo=UTC)


def limited_at(seconds: float) -> datetime:
    """A moment after the queue was created."""
    return _CREATED + timedelta(seconds=seconds)


def _job(number: int, group: str, **fields: Any) -> JobRecord:
    given: dict[str, Any] = {"kind": "report", "status": "queued", "group": group} | fields
    return JobRecord(
        id=f"job-{number}",
        seq=number,
        payload=Raw(b"%d" % number),
        pushed_at=limited_at(number),
        **given,
    )


def limited() -> State:
    """A queue with groups, some of their jobs in a segment, and limits."""
    claimed = {"status": "running", "attempt": 1, "lease": "1ea5e", "worker": "w"}
    claimed |= {"claimed_at": limited_at(20), "heartbeat_at": limited_at(20)}
    state = State(
        incarnation="01K0GR0VPS0000000000000000",
        created_at=_CREATED,
        jobs=[_job(7, "acme", **claimed), _job(8, "größe L"), _job(9, "", kind="email")],
        segments=[limited_segment()[0]],
        schedules=[_schedule()],
        limits=[
            LimitRecord(id="kind=email", seq=1, running=5, rate=100, period_s=60.0),
            LimitRecord(id="group=*", seq=2, running=2),
            LimitRecord(id="group=acme", seq=5, rate=3, period_s=1.5),
        ],
        buckets=[BucketRecord(id="group=acme", seq=4, full_at=limited_at(20.5))],
    )
    state.settings = Settings(max_format=2, max_limits=50)
    state.requires = dict.fromkeys(("groups", "limits", "segments", "schedules"))
    state.waiting.turns.last_served = {("", 0): "acme", ("9f86d081884c7d65", -5): ""}
    state.next_seq = 10
    return state


def _schedule() -> ScheduleRecord:
    return ScheduleRecord(
        id="hourly",
        seq=1,
        kind="report",
        payload=Raw(b"{}"),
        created_at=limited_at(1),
        decided_at=limited_at(2),
        every_s=3600.0,
        group="acme",
    )


@cache
def limited_segment() -> tuple[SegmentRecord, bytes]:
    """The segment of that queue, with its entry: runs of a kind, a priority and a group each."""
    jobs = [_job(1, "acme"), _job(2, "zeta"), _job(3, ""), _job(4, "acme")]
    jobs.append(_job(5, "beta", priority=-5))
    encoded = encode_segment("ready", sort_rows("ready", map(row_of, jobs)))
    return encoded.record(until=1064, at=limited_at(15)), encoded.body
