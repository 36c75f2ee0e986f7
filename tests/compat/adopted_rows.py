"""A golden state with a segment that a bulk write has put, whose ids follow each other."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import cache

from msgspec import Raw
from msgspec.structs import replace

from bucketq.codec.pushed_rows import pushed_row
from bucketq.codec.segment_file import SegmentRow, encode_segment
from bucketq.commit.request_ids import RequestId
from bucketq.model.base import NewJob
from bucketq.model.segments import SegmentRecord
from bucketq.model.settings import Settings
from bucketq.model.state import State

_CREATED = datetime(2026, 3, 4, 5, 6, tzinfo=UTC)
_RESERVATION = "r00000000000000000007-00112233aabbccdd"
_COUNT = 3


def consecutive(row: SegmentRow) -> SegmentRow:
    """The row of a push as it is in a segment of consecutive rows: without its id and number."""
    line = row.line.removeprefix(b'{"id":"%b",' % row.fields.id.encode())
    return replace(row, line=b"{%b}" % line.removesuffix(b',"seq":%d}' % row.fields.seq))


def adopted_ids() -> list[str]:
    """The ids of its jobs."""
    request = RequestId("01K0BVKXRTE000000000000000", 2)
    return [request.job_id(place) for place in range(_COUNT)]


def adopted() -> State:
    """A queue whose jobs are all in that segment; the second one has left."""
    record = adopted_segment()[0]
    state = State(incarnation="01K0ADOPTED000000000000000", created_at=_CREATED, segments=[record])
    state.settings = Settings(max_format=2)
    state.requires |= {"segments": None, "reservations": None, "consecutive-rows": None}
    state.next_seq = record.last + 1
    return state


@cache
def adopted_segment() -> tuple[SegmentRecord, bytes]:
    """The segment of that queue, with its entry."""
    jobs = [NewJob(id=each, kind="index", payload=Raw(b"1")) for each in adopted_ids()]
    rows = [consecutive(pushed_row(job, place)) for place, job in enumerate(jobs)]
    encoded = encode_segment("ready", rows, adopted_ids()[0])
    record = encoded.record(_RESERVATION, _CREATED + timedelta(seconds=9))
    base = 5
    return replace(
        record,
        seq=base,
        last=base + record.last,
        base=base,
        pushed_at=_CREATED + timedelta(seconds=10),
        live=record.rows - 1,
        gone=((1, 1),),
    ), encoded.body
