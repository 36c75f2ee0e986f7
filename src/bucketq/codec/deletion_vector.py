"""The format of a vector: for some segments, a bit for each row that has left.

::

    {"segments": {"00000000000000000105-9f86d081884c7d65": "gAA…"}}

Rows mostly leave a segment in order, and then a few ranges in its entry say which. If they leave in
any order, the ranges would make the queue object large. Then they are written to a vector, which
the entry names. The bits are in base64, the first row in the highest bit of the first byte.
"""

from __future__ import annotations

import re
from base64 import b64decode, b64encode
from collections.abc import Mapping, Sequence
from hashlib import blake2b

import msgspec
from msgspec import Struct

from bucketq.errors import CorruptStateError
from bucketq.model.segments import Gone, Range

SUFFIX = ".gone"
_ID = r"[0-9]{20}-[0-9a-f]{16}\.gone"
_BITS = 8
"""Of a byte."""


class _Vector(Struct):
    segments: dict[str, str]


def is_vector_id(name: str) -> bool:
    """Whether a name has the form of a vector's id."""
    return re.fullmatch(_ID, name) is not None


def vector_id(until: int, body: bytes) -> str:
    """Return the id of a vector that may be introduced up to a version."""
    return f"{until:020d}-{_digest(body)}{SUFFIX}"


def encode_vector(gone: Mapping[str, Sequence[Range]]) -> bytes:
    """Encode the positions that have left, by segment."""
    return msgspec.json.encode(_Vector({name: _bits(gone[name]) for name in sorted(gone)})) + b"\n"


def decode_vector(name: str, body: bytes, where: str) -> dict[str, Gone]:
    """Decode a vector; ``where`` is what an error calls it.

    Raises:
        CorruptStateError: It is not the vector of this name.
    """
    if name != vector_id(int(name[:20]), body):
        raise _untrusted(where, "its bytes do not fit its name")
    try:
        segments = msgspec.json.decode(body, type=_Vector).segments
        return {segment: _gone(bits) for segment, bits in segments.items()}
    except (ValueError, msgspec.MsgspecError) as error:
        raise _untrusted(where, f"it cannot be decoded ({error})") from error


def _untrusted(where: str, reason: str) -> CorruptStateError:
    return CorruptStateError(
        f"{where} cannot be trusted: {reason}; it is left as it is, and only rows of its segments "
        "are affected (`bucketq doctor --deep` checks all segments)"
    )


def _digest(body: bytes) -> str:
    return blake2b(body, digest_size=8).hexdigest()


def _bits(ranges: Sequence[Range]) -> str:
    bits = bytearray(ranges[-1][1] // _BITS + 1)
    for first, last in ranges:
        for position in range(first, last + 1):
            bits[position // _BITS] |= 0x80 >> position % _BITS
    return b64encode(bits).decode()


def _gone(text: str) -> Gone:
    gone = Gone()
    for place, byte in enumerate(b64decode(text, validate=True)):
        for bit in range(_BITS):
            if byte & (0x80 >> bit):
                gone.add(place * _BITS + bit)
    return gone
