"""Payloads and results as the types that a query gives them: structs, arrays, maps, VARIANT.

They are JSON. What does not fit its type is null, at the depth at which it does not fit, as with
Spark's ``from_json``; fields that the type does not name are left out. Decoding them here spares a
query a ``from_json`` of each row, and lets a schema describe jobs as a whole.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal, DecimalException
from functools import partial
from typing import Any

import msgspec
import pyarrow as pa
from pyspark.sql import types as t

from bucketq.errors import InvalidRequestError

JSON_COLUMNS = ("payload", "result")
"""The columns that hold JSON."""
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode

_Fit = Callable[[Any], Any]
"""Makes a value of JSON fit a type; None if it does not."""


def json_column(texts: pa.Array, kind: t.DataType) -> pa.Array:
    """Decode JSON texts as values of a type."""
    fit = fitting(kind)
    if isinstance(kind, t.VariantType):  # It keeps numbers to the last digit.
        values = [text and _variant_of(text) for text in texts.to_pylist()]
    else:
        values = [None if text is None else fit(_decode(text)) for text in texts.to_pylist()]
    return pa.array(values, _arrow_type(kind))


def variant_texts(column: pa.Array) -> pa.Array:
    """Return the values of a VARIANT column as JSON texts."""
    texts = [
        None if each is None else t.VariantVal(each["value"], each["metadata"]).toJson()
        for each in column.to_pylist()
    ]
    return pa.array(texts, pa.string())


def fitting(kind: t.DataType) -> _Fit:
    """Return what makes values fit a type.

    Raises:
        InvalidRequestError: There is no such value in JSON.
    """
    if (known := _ATOMS.get(type(kind))) is not None:
        return known
    match kind:
        case t.StructType():
            return _struct(kind)
        case t.ArrayType():
            each = fitting(kind.elementType)
            return lambda value: [*map(each, value)] if isinstance(value, list) else None
        case t.MapType() if isinstance(kind.keyType, t.StringType):
            return _map(fitting(kind.valueType))
        case t.DecimalType():
            return _decimal(kind)
    message = (
        f"JSON cannot be read as {kind.simpleString()}: use structs, arrays, maps with text keys, "
        "VARIANT, texts, numbers, booleans, dates and times"
    )
    raise InvalidRequestError(message)


def _struct(kind: t.StructType) -> _Fit:
    fields = [(field.name, fitting(field.dataType)) for field in kind]
    return lambda value: (
        {name: None if (of := value.get(name)) is None else fit(of) for name, fit in fields}
        if isinstance(value, dict)
        else None
    )


def _map(each: _Fit) -> _Fit:
    return lambda value: (
        [(name, each(of)) for name, of in value.items()] if isinstance(value, dict) else None
    )


def _flag(value: Any) -> bool | None:
    return value if isinstance(value, bool) else None


def _whole(value: Any, bits: int) -> int | None:
    is_whole = isinstance(value, int) and not isinstance(value, bool)
    return value if is_whole and -1 << (bits - 1) <= value < 1 << (bits - 1) else None


def _float(value: Any) -> float | None:
    try:
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        return float(value) if is_number else None
    except OverflowError:
        return None


def _text(value: Any) -> str | None:
    return value if value is None or isinstance(value, str) else _encode(value).decode()


def _variant(value: Any) -> dict[str, bytes] | None:
    return _variant_of(_encode(value).decode())


def _variant_of(text: str) -> dict[str, bytes] | None:
    try:
        made = t.VariantVal.parseJson(text)
    except Exception:  # noqa: BLE001 - whatever a VARIANT of this Spark cannot hold
        return None
    return {"value": made.value, "metadata": made.metadata}


def _decimal(kind: t.DecimalType) -> _Fit:
    unit, most = Decimal(1).scaleb(-kind.scale), Decimal(10) ** (kind.precision - kind.scale)

    def fit(value: Any) -> Decimal | None:
        if isinstance(value, bool) or not isinstance(value, int | float | str):
            return None
        try:
            found = Decimal(str(value)).quantize(unit)
            return found if abs(found) < most else None
        except DecimalException:
            return None

    return fit


def _time(value: Any, *, is_zoned: bool) -> datetime | None:
    if not isinstance(value, str):
        return None
    try:
        found = datetime.fromisoformat(value)
        if not is_zoned:
            return found.replace(tzinfo=None)
        return found.replace(tzinfo=UTC) if found.tzinfo is None else found.astimezone(UTC)
    except (ValueError, OverflowError):
        return None


def _date(value: Any) -> date | None:
    try:
        return date.fromisoformat(value) if isinstance(value, str) else None
    except ValueError:
        return None


_ATOMS: dict[type[t.DataType], _Fit] = {
    t.VariantType: _variant,
    t.StringType: _text,
    t.BooleanType: _flag,
    t.ByteType: partial(_whole, bits=8),
    t.ShortType: partial(_whole, bits=16),
    t.IntegerType: partial(_whole, bits=32),
    t.LongType: partial(_whole, bits=64),
    t.FloatType: _float,
    t.DoubleType: _float,
    t.TimestampType: partial(_time, is_zoned=True),
    t.TimestampNTZType: partial(_time, is_zoned=False),
    t.DateType: _date,
}


def _arrow_type(kind: t.DataType) -> pa.DataType:
    from pyspark.sql.pandas.types import to_arrow_type  # noqa: PLC0415 - it imports pandas

    return to_arrow_type(kind, timezone="UTC")
