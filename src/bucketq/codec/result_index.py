"""The format of an object to which rows on results have moved.

::

    {"rows": [{"id": "00000007", "seq": 7, "at": …, "count": 2, "files": [...], "hashes": "…"}]}

It is beside the segments, and lives by their rules.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from hashlib import blake2b

import msgspec
from msgspec import Struct

from bucketq.errors import CorruptStateError
from bucketq.model.results import ResultRow

_ID = r"[0-9]{20}-[0-9a-f]{16}\.results"


class _Rows(Struct):
    rows: list[ResultRow]


def is_result_index_id(name: str) -> bool:
    """Whether a name has the form of the id of such an object."""
    return re.fullmatch(_ID, name) is not None


def result_index_id(until: int, body: bytes) -> str:
    """Return the id of one that may be introduced up to a version."""
    return f"{until:020d}-{blake2b(body, digest_size=8).hexdigest()}.results"


def encode_result_index(rows: Sequence[ResultRow]) -> bytes:
    """Encode rows."""
    return msgspec.json.encode(_Rows(list(rows))) + b"\n"


def decode_result_index(name: str, body: bytes, where: str) -> list[ResultRow]:
    """Decode rows; ``where`` is what an error calls the object.

    Raises:
        CorruptStateError: It is not the object of this name.
    """
    try:
        if name == result_index_id(int(name[:20]), body):
            rows = msgspec.json.decode(body, type=_Rows).rows
            if all(row.is_sound for row in rows):
                return rows
            reason = "a row does not have as many hashes as results"
        else:
            reason = "its bytes do not fit its name"
    except (ValueError, msgspec.MsgspecError) as error:
        reason = f"it cannot be decoded ({error})"
    raise CorruptStateError(f"{where} cannot be trusted: {reason}; the archive is searched instead")
