"""The lines of an object's jobs, undecoded.

For readers of whole tables, which decode many jobs together elsewhere. Format and checksum are
checked, as whenever an object is read. The reader decodes the lines and must allow unknown fields.
Nothing may be written based on them.
"""

from __future__ import annotations

import msgspec

from bucketq.codec.decode import check_format, check_frame, decode
from bucketq.codec.layout import END, OPENINGS, SEPARATOR

_OPENING = OPENINGS["jobs"]
_CLOSING = b"\n]"
_encode = msgspec.json.Encoder().encode


def read_job_lines(body: bytes, where: str) -> list[bytes]:
    """Return the lines of an object's jobs, in order, without separators.

    Raises:
        NewerFormatError: A newer bucketq wrote it.
        CorruptStateError: It is not an object that bucketq wrote.
    """
    check_format(body, where)
    check_frame(body, where)
    opening = body.find(_OPENING)
    text = body[opening + len(_OPENING) : -len(END)]
    if opening < 0 or not body.endswith(END) or _CLOSING in text:
        # A newer bucketq may write more tables behind the jobs, or in another order.
        return [_encode(job) for job in decode(body, where).state.jobs]
    return text[1:].split(SEPARATOR) if text else []
