"""JSON of Arrow columns of simple types, without a Python object for each value."""

from __future__ import annotations

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bucketq.spark.table.row_columns import TEXT, join_texts, text_of

_NULL = pa.scalar(b"null", TEXT)
_SPACE, _QUOTE, _BACKSLASH = b' "\\'


def json_of(column: pa.Array) -> pa.LargeBinaryArray | None:
    """Return the JSON of each value, as msgspec encodes it; None: this column needs msgspec.

    It has whole numbers, booleans, and texts of which none has letters that JSON escapes, or
    structs of these.
    """
    kind = column.type
    if pa.types.is_struct(kind):
        return _objects(column)
    if pa.types.is_integer(kind) or pa.types.is_boolean(kind):
        return pc.fill_null(column.cast(pa.string()).cast(TEXT), _NULL)
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        texts = column.cast(TEXT)
        letters = np.frombuffer(text_of(texts), np.uint8)
        if (letters < _SPACE).any() or (letters == _QUOTE).any() or (letters == _BACKSLASH).any():
            return None
        return pc.fill_null(join_texts(b'"', texts, b'"'), _NULL)
    return None


def _objects(column: pa.StructArray) -> pa.LargeBinaryArray | None:
    names = [field.name for field in column.type]
    if not names or len(set(names)) < len(names):
        return None
    parts: list[bytes | pa.LargeBinaryArray] = []
    for name, values in zip(names, column.flatten(), strict=True):
        found = json_of(values)
        if found is None:
            return None
        parts += [b"," if parts else b"{", msgspec.json.encode(name) + b":", found]
    return pc.if_else(column.is_valid(), join_texts(*parts, b"}"), _NULL)
