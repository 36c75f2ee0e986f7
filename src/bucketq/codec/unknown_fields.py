"""Fields that this version of bucketq does not know: newer code wrote them, and they are kept."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

import msgspec
from msgspec import Raw, Struct

S = TypeVar("S", bound=Struct)

_encode = msgspec.json.Encoder().encode
_decode_fields = msgspec.json.Decoder(dict[str, Raw]).decode


def encode_row(row: Struct, unknown: Mapping[str, Raw] | None) -> bytes:
    """Encode a row with the fields that this code does not know, on one line."""
    text = _encode(row)
    if b"\n" in text:  # A payload came with line breaks between its values.
        text = msgspec.json.format(text, indent=-1)
    if not unknown:
        return text
    return text[:-1] + (b"" if text == b"{}" else b",") + _encode(unknown)[1:]


def split_fields(
    fields: dict[str, Raw], shape: type[Struct]
) -> tuple[dict[str, Raw], dict[str, Raw]]:
    """Return the fields that ``shape`` has, and the others, each of these on one line."""
    unknown = {
        name: Raw(msgspec.json.format(bytes(value), indent=-1))
        for name, value in fields.items()
        if name not in shape.__struct_encode_fields__
    }
    return {name: value for name, value in fields.items() if name not in unknown}, unknown


def decode_row(
    line: bytes, shape: type[S], decode: Callable[[bytes], S]
) -> tuple[S, dict[str, Raw]]:
    """Decode a row that ``decode`` refused, maybe for its unknown fields; return these apart.

    Raises:
        msgspec.ValidationError: Something else is wrong with it.
    """
    known, unknown = split_fields(_decode_fields(line), shape)
    return decode(_encode(known)), unknown
