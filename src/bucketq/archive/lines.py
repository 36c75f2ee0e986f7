"""Lines of the archive: a job as JSON, whichever bucketq wrote it."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from bucketq.errors import CorruptStateError
from bucketq.model.job import JobRecord

_decode = msgspec.json.Decoder(JobRecord).decode
_KNOWN = frozenset(JobRecord.__struct_fields__)


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
