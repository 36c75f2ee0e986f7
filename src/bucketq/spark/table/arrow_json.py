"""JSON of Arrow columns of simple types, without a Python object for each value."""

from __future__ import annotations

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from bucketq.spark.table.row_columns import TEXT, TextPart, join_texts, letters_of

_NULL = b"null"
"""No scalar of PyArrow: making one imports pandas, for which most Spark processes have no use."""
_SPACE, _QUOTE, _BACKSLASH = b' "\\'


def json_parts(column: pa.Array) -> list[TextPart] | None:
    """Return the JSON of each value, as msgspec encodes it; None: this column needs msgspec.

    It has whole numbers, booleans, and texts of which none has letters that JSON escapes, or
    structs of these. The parts are to be joined row by row: they become parts of longer lines, and
    are copied once.
    """
    kind = column.type
    if pa.types.is_struct(kind):
        parts = _object_parts(column)
    elif pa.types.is_integer(kind) or pa.types.is_boolean(kind):
        return [pc.fill_null(column.cast(pa.string()).cast(TEXT), _NULL)]
    elif pa.types.is_string(kind) or pa.types.is_large_string(kind):
        parts = _text_parts(column)
    else:
        return None
    if parts is None or not column.null_count:
        return parts
    return [pc.if_else(column.is_valid(), join_texts(*parts), pa.scalar(_NULL, TEXT))]


def _text_parts(column: pa.Array) -> list[TextPart] | None:
    texts = column.cast(TEXT)
    letters = letters_of(texts)
    if (letters < _SPACE).any() or (letters == _QUOTE).any() or (letters == _BACKSLASH).any():
        return None
    try:
        column.validate(full=True)  # It may not be UTF-8: Spark makes a text of any bytes.
    except pa.ArrowInvalid:
        return None
    return [b'"', texts, b'"']


def _object_parts(column: pa.StructArray) -> list[TextPart] | None:
    names = [field.name for field in column.type]
    if not names or len(set(names)) < len(names):
        return None
    parts: list[TextPart] = []
    for name, values in zip(names, column.flatten(), strict=True):
        found = json_parts(values)
        if found is None:
            return None
        parts += [b"," if parts else b"{", msgspec.json.encode(name), b":", *found]
    return [*parts, b"}"]
