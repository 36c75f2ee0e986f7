"""Lines of the archive: a job as JSON, whichever bucketq wrote it."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

import msgspec

from bucketq.errors import CorruptStateError
from bucketq.model.job import JobRecord

CopyKey = tuple[str, int, datetime]
"""What all copies of one finished job agree in, and no other job does: id, number, and when it
finished. An id may be used again, and a queue that was created anew gives out its numbers again."""

_decode = msgspec.json.Decoder(JobRecord).decode
_KNOWN = frozenset(JobRecord.__struct_fields__)


def copy_key(job: JobRecord) -> CopyKey:
    """By what the copies of a finished job are recognised."""
    return (job.id, job.seq, job.finished_at or job.pushed_at)


def decode_line(line: bytes) -> JobRecord:
    """Decode a job, leaving out fields that a newer bucketq may have given it."""
    try:
        return _decode(line)
    except msgspec.ValidationError:
        fields = msgspec.json.decode(line, type=dict[str, msgspec.Raw])
        known = {name: value for name, value in fields.items() if name in _KNOWN}
        return _decode(msgspec.json.encode(known))


def jobs_in_lines(body: bytes, key: str) -> list[JobRecord]:
    """The jobs of a segment. Raises ``CorruptStateError``."""
    try:
        return list(map(_decode, body.splitlines()))
    except msgspec.MsgspecError:
        return [job for job, _ in lines_in(body, key)]


def lines_in(body: bytes, key: str) -> Iterator[tuple[JobRecord, bytes]]:
    """The jobs of a segment, each with its line. Raises ``CorruptStateError``."""
    for number, line in enumerate(body.splitlines(), start=1):
        try:
            yield decode_line(line), line
        except msgspec.MsgspecError as error:
            message = f"archive segment {key}, line {number} cannot be read: {error}"
            raise CorruptStateError(message) from error
