"""The lines of a segment: blocks of rows are cut into lines, and these are decoded.

``segment_file`` describes the whole format. What the lines of a push leave out, because only its
commit decides it or because it follows from their positions, is added here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar
from zlib import crc32

import msgspec
from msgspec import Struct

from bucketq.codec.segment_index import refuse_segment
from bucketq.codec.unknown_fields import decode_row, encode_row
from bucketq.model.indexes.segment_reads import DecodedJobs
from bucketq.model.job_ids import ids_after
from bucketq.model.records import JobRecord, KeyRecord, Unknown
from bucketq.model.segments import Block, Pushed

S = TypeVar("S", bound=Struct)

_decode_job = msgspec.json.Decoder(JobRecord).decode
_decode_key = msgspec.json.Decoder(KeyRecord).decode
_encode = msgspec.json.Encoder().encode


def split_block(block: Block, text: bytes, where: str) -> list[bytes]:
    """Return the lines of a block.

    Raises:
        CorruptStateError: They are not what the index says.
    """
    if len(text) != block.length or crc32(text) != block.crc:
        refuse_segment(where, f"the rows from position {block.start} on do not fit its index")
    return text[:-1].split(b"\n")


def decode_jobs(
    lines: Sequence[bytes], start: int, where: str, pushed: Pushed | None = None
) -> DecodedJobs:
    """Decode the jobs of some lines, of which the first is at position ``start``.

    ``pushed`` is what the lines of a push leave out.

    Raises:
        CorruptStateError: One of them is not a job.
    """
    if pushed is not None:
        rest = b',"status":"queued","pushed_at":%b}' % _encode(pushed.at)
        if pushed.first_id:
            lines = [*_with_ids(lines, start, pushed.first_id)]
        lines = [line[:-1] + rest for line in lines]
    try:
        jobs, unknown = [_decode_job(line) for line in lines], dict[int, Unknown]()
    except msgspec.ValidationError:
        jobs, unknown = _decode_with_unknown(lines, start, where, JobRecord, _decode_job)
    if pushed is not None:
        for job in jobs:  # They were made a moment ago, and no other code has seen them.
            msgspec.structs.force_setattr(job, "seq", pushed.base + job.seq)
    return jobs, unknown


def _with_ids(lines: Sequence[bytes], start: int, first_id: str) -> Iterable[bytes]:
    """Return lines with the ids and the numbers that follow from their positions."""
    ids = ids_after(first_id, start)
    for position, line in enumerate(lines, start):
        yield b'{"id":"%b","seq":%d,%b' % (next(ids).encode(), position, line[1:])


def complete_lines(
    lines: Sequence[bytes], start: int, where: str, pushed: Pushed | None
) -> Sequence[bytes]:
    """Return lines as they would be in the queue object; only those of a push are not.

    Raises: as ``decode_jobs``.
    """
    if pushed is None:
        return lines
    jobs, unknown = decode_jobs(lines, start, where, pushed)
    return [encode_row(job, unknown.get(at)) for at, job in enumerate(jobs, start)]


def decode_keys(lines: Sequence[bytes], start: int, where: str) -> list[KeyRecord]:
    """Decode the idempotency keys of some lines, of which the first is at position ``start``.

    Raises:
        CorruptStateError: One of them is not a key.
    """
    try:
        return [_decode_key(line) for line in lines]
    except msgspec.ValidationError:
        return _decode_with_unknown(lines, start, where, KeyRecord, _decode_key)[0]


def _decode_with_unknown(
    lines: Sequence[bytes], start: int, where: str, shape: type[S], decode: Callable[[bytes], S]
) -> tuple[list[S], dict[int, Unknown]]:
    rows, found = list[S](), dict[int, Unknown]()
    for position, line in enumerate(lines, start):
        try:
            row, unknown = decode_row(line, shape, decode)
        except msgspec.ValidationError as error:
            refuse_segment(where, f"the row at position {position} cannot be decoded ({error})")
        rows.append(row)
        if unknown:
            found[position] = unknown
    return rows, found
