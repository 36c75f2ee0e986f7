"""Lines of archive files: one job each, as JSON, from any version of bucketq."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

import msgspec

from bucketq.errors import CorruptStateError
from bucketq.model.indexes.finished_jobs import finished_at
from bucketq.model.records import JobRecord

CopyKey = tuple[str, int, datetime]
"""Identifies a finished job: its id, its ``seq`` and when it finished. An id may be used again, and
a queue that was deleted and created again starts with ``seq`` 1."""

_decode = msgspec.json.Decoder(JobRecord).decode
_KNOWN = frozenset(JobRecord.__struct_fields__)


def copy_key(job: JobRecord) -> CopyKey:
    """Return what all copies of a finished job have in common."""
    return (job.id, job.seq, finished_at(job))


def decode_line(line: bytes) -> JobRecord:
    """Decode a job without the fields of a newer bucketq."""
    try:
        return _decode(line)
    except msgspec.ValidationError:
        fields = msgspec.json.decode(line, type=dict[str, msgspec.Raw])
        known = {name: value for name, value in fields.items() if name in _KNOWN}
        return _decode(msgspec.json.encode(known))


def jobs_in_lines(body: bytes, key: str) -> list[JobRecord]:
    """Return the jobs of an archive file. Raises ``CorruptStateError``."""
    try:
        return list(map(_decode, body.splitlines()))
    except msgspec.MsgspecError:
        return [job for job, _ in lines_in(body, key)]


def lines_in(body: bytes, key: str) -> Iterator[tuple[JobRecord, bytes]]:
    """Yield the jobs of an archive file, each with its line. Raises ``CorruptStateError``."""
    for number, line in enumerate(body.splitlines(), start=1):
        try:
            yield decode_line(line), line
        except msgspec.MsgspecError as error:
            raise CorruptStateError(
                f"archive file {key}, line {number} cannot be decoded: {error}"
            ) from error
