"""A golden state of jobs with large payloads and results, one in a segment and two in the archive.

Their side objects are kept too: short ones, because how long they are makes no difference.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import cache

import msgspec
from msgspec import Raw
from msgspec.structs import replace

from bucketq.archive.archive_layout import Layout, hour_of
from bucketq.codec.segment_file import encode_segment, row_of, sort_rows
from bucketq.model.records import Encoding, JobRecord
from bucketq.model.segments import SegmentRecord
from bucketq.model.settings import Settings
from bucketq.model.side_objects import PART_BYTES, SideRef, new_digest, object_name, write_ref
from bucketq.model.state import State

INCARNATION = "01K0LARGE00000000000000000"
TEXT = '{"größe":["L",1.50,null]}'.encode()
FILM = bytes(range(40))
_CREATED = datetime(2026, 2, 3, 4, 5, tzinfo=UTC)
_PART_BYTES = 16
"""A reference says how long its parts are, so that another version can choose another length."""


def _ref(number: int, content: bytes, part_bytes: int = PART_BYTES) -> SideRef:
    digest = new_digest(content).hexdigest()
    name = object_name(INCARNATION, 1064 + number, digest, f"{number:016x}")
    return SideRef(name, len(content), digest, part_bytes)


_PAYLOADS: dict[int, tuple[SideRef, bytes, Encoding]] = {
    1: (_ref(1, TEXT), TEXT, "object"),
    2: (_ref(2, FILM, _PART_BYTES), FILM, "object-bytes"),
    4: (_ref(4, FILM), FILM, "object-bytes"),
    5: (_ref(5, FILM, _PART_BYTES), FILM, "object-bytes"),
    6: (_ref(6, TEXT), TEXT, "object"),
}
_RESULT = _ref(3, TEXT, _PART_BYTES)
_ARCHIVED_RESULT = _ref(7, TEXT, _PART_BYTES)
ARCHIVED_AT = _CREATED + timedelta(seconds=30)


def _job(number: int) -> JobRecord:
    ref, _, encoding = _PAYLOADS[number]
    return JobRecord(
        id=f"job-{number}",
        kind="film",
        status="queued",
        seq=number,
        payload=write_ref(ref),
        payload_encoding=encoding,
        pushed_at=_CREATED + timedelta(seconds=number),
    )


def large() -> State:
    """A queue with large payloads of both forms, and a large result."""
    moment = _CREATED + timedelta(seconds=9)
    done = JobRecord(
        id="job-3",
        kind="film",
        status="done",
        seq=3,
        payload=Raw(b"3"),
        pushed_at=moment,
        attempt=1,
        lease="5" * 32,
        claimed_at=moment,
        finished_at=moment,
        outcome="completed",
        result=write_ref(_RESULT),
        result_encoding="object",
    )
    state = State(
        incarnation=INCARNATION,
        created_at=_CREATED,
        jobs=[_job(1), _job(2), done],
        segments=[large_segment()[0]],
    )
    state.settings = Settings(max_format=2, archive_after_s=1e9)
    state.requires |= {"payloads": None, "segments": None}
    state.next_seq = 9
    return state


@cache
def large_segment() -> tuple[SegmentRecord, bytes]:
    """The segment of that queue, with its entry."""
    encoded = encode_segment("ready", sort_rows("ready", [row_of(_job(4))]))
    return encoded.record(until=1064, at=_CREATED), encoded.body


@cache
def large_archive() -> tuple[str, bytes]:
    """An archive file of that queue with references, and its key in the folder of the archive."""
    moment = ARCHIVED_AT
    ended = replace(_job(5), status="done", attempt=1, lease="5" * 32, finished_at=moment)
    completed = replace(
        ended,
        worker="w",
        claimed_at=moment,
        outcome="completed",
        result=write_ref(_ARCHIVED_RESULT),
        result_encoding="object",
    )
    cancelled = replace(_job(6), status="done", outcome="cancelled", finished_at=moment)
    body = msgspec.json.Encoder().encode_lines([completed, cancelled])
    return Layout("").file_key(hour_of(moment), 1070, body), body


def large_parts() -> dict[str, bytes]:
    """The parts of its side objects, by the ends of their keys."""
    contents = [(ref, content) for ref, content, _ in _PAYLOADS.values()]
    return {
        f"{ref.object}.{part:05d}": content[part * ref.part_bytes :][: ref.part_bytes]
        for ref, content in [*contents, (_RESULT, TEXT), (_ARCHIVED_RESULT, TEXT)]
        for part in range(ref.parts)
    }
