"""Fast conversion of Arrow columns to Python values, with times in UTC."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa


def values_of(column: pa.Array) -> list[Any]:
    """Return the values of a column as ``to_pylist`` does, with structs and maps as dictionaries.

    Arrow is fast at that except for timestamps, and for every type that may hold a map. So structs
    with such fields are assembled here, column by column.
    """
    kind = column.type
    if pa.types.is_timestamp(kind) and kind.unit == "us" and kind.tz in {None, "UTC"}:
        return _times(column)
    names = [field.name for field in kind] if pa.types.is_struct(kind) else []
    is_slow = _is_slow(kind)
    if not is_slow or not names or len(set(names)) < len(names):
        values: list[Any] = column.to_pylist(maps_as_pydicts="strict" if is_slow else None)
        return values
    rows = zip(*map(values_of, column.flatten()), strict=True)
    is_valid = column.is_valid().to_pylist()
    return [
        dict(zip(names, row, strict=True)) if valid else None
        for row, valid in zip(rows, is_valid, strict=True)
    ]


def _is_slow(kind: pa.DataType) -> bool:
    if pa.types.is_struct(kind):
        return any(_is_slow(field.type) for field in kind)
    if pa.types.is_list(kind):
        return _is_slow(kind.value_type)
    return bool(pa.types.is_map(kind) or pa.types.is_timestamp(kind))


def _times(column: pa.Array) -> list[datetime | None]:
    first = datetime(1970, 1, 1, tzinfo=None if column.type.tz is None else UTC)
    return [
        None if number is None else first + timedelta(0, 0, number)
        for number in column.cast(pa.int64()).to_pylist()
    ]


def in_utc(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return a batch with its timestamps in UTC: Spark sends them in the session's time zone."""
    schema = pa.schema([field.with_type(_type_in_utc(field.type)) for field in batch.schema])
    return batch if schema.equals(batch.schema) else batch.cast(schema)


def _type_in_utc(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_timestamp(kind) and kind.tz is not None:
        return pa.timestamp(kind.unit, tz="UTC")
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_type_in_utc(field.type)) for field in kind])
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_type_in_utc(kind.value_type)))
    if pa.types.is_map(kind):
        return pa.map_(kind.key_field, kind.item_field.with_type(_type_in_utc(kind.item_type)))
    return kind
