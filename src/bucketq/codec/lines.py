"""The lines of an object's jobs, undecoded, and the segments that hold its other jobs.

For readers of whole tables, which decode many jobs together elsewhere. Format and checksum are
checked, as whenever an object is read. The reader decodes the lines and must allow unknown fields.
Nothing may be written based on them.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec
from msgspec import Struct

from bucketq.codec.decode import check_format, check_frame, decode
from bucketq.codec.layout import END, OPENINGS, SEGMENTS, SEPARATOR
from bucketq.model.segments import JOB_CLASSES, SegmentRecord

_OPENING = OPENINGS["jobs"]
_CLOSING = b"\n]"
_FORMAT_1 = b'{"format":1,'
_encode = msgspec.json.Encoder().encode


class JobLines(NamedTuple):
    """The jobs of one version of a queue: some as lines, and the names of those that are not."""

    hot: list[bytes]
    """The lines of the object's own jobs, in order, without separators."""
    incarnation: str
    """Whose segments they are; empty if there are none."""
    segments: list[SegmentRecord]
    """The segments that hold all other jobs."""


class _SegmentTable(Struct):
    incarnation: str
    segments: list[SegmentRecord] = []


_decode_table = msgspec.json.Decoder(_SegmentTable).decode


def read_job_lines(body: bytes, where: str) -> JobLines:
    """Return the jobs of an object, undecoded.

    Raises:
        NewerFormatError: A newer bucketq wrote it.
        CorruptStateError: It is not an object that bucketq wrote.
    """
    check_format(body, where)
    check_frame(body, where)
    incarnation, segments = _read_segments(body, where)
    opening = body.find(_OPENING)
    text = body[opening + len(_OPENING) : -len(END)]
    if opening < 0 or not body.endswith(END) or _CLOSING in text:
        # A newer bucketq may write more tables behind the jobs, or in another order.
        lines = [_encode(job) for job in decode(body, where).state.jobs]
    else:
        lines = text[1:].split(SEPARATOR) if text else []
    return JobLines(lines, incarnation, segments)


def _read_segments(body: bytes, where: str) -> tuple[str, list[SegmentRecord]]:
    """Return the incarnation of an object, and its segments of jobs."""
    if body.startswith(_FORMAT_1) and OPENINGS[SEGMENTS] not in body:
        return "", []
    try:
        table = _decode_table(body)
        incarnation, found = table.incarnation, table.segments
    except msgspec.MsgspecError:  # A newer bucketq may have added fields.
        state = decode(body, where).state
        incarnation = state.incarnation
        found = [segment.entry() for segment in state.cold.rows.segments.values()]
    return incarnation, [each for each in found if each.cls in JOB_CLASSES]
