"""The jobs of an object as the lines that they are.

For readers of whole tables, which decode many jobs elsewhere and together. The format and the
checksum are compared, as whenever an object is read; what the lines say is for the reader to find
out, who must allow for fields that he does not know. Nothing may be written on the strength of it.
"""

from __future__ import annotations

import msgspec

from bucketq.codec.decode import check_format, check_frame, decode
from bucketq.codec.layout import END, OPENINGS, SEPARATOR

_OPENING = OPENINGS["jobs"]
_CLOSING = b"\n]"
_encode = msgspec.json.Encoder().encode


def read_job_lines(body: bytes, where: str) -> list[bytes]:
    """The lines of an object's jobs, in their order, without what separates them.

    Raises:
        NewerFormatError: A newer bucketq wrote it.
        CorruptStateError: It is not an object that bucketq wrote.
    """
    check_format(body, where)
    check_frame(body, where)
    opening = body.find(_OPENING)
    text = body[opening + len(_OPENING) : -len(END)]
    if opening < 0 or not body.endswith(END) or _CLOSING in text:
        # Another bucketq has written it in its own way, and behind the jobs there may be more.
        return [_encode(job) for job in decode(body, where).state.jobs]
    return text[1:].split(SEPARATOR) if text else []
