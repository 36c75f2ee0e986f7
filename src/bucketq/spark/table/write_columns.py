"""Maps the columns of a DataFrame to fields of jobs, by name and type, before a row is read.

An unknown column is rejected, and never dropped or added to the payload silently: a mistyped
``priority`` would otherwise be noticed only when the jobs have run.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from pyspark.sql import types as t

from bucketq.errors import InvalidRequestError
from bucketq.spark.format_options import ALL_COLUMNS, WriteOptions
from bucketq.spark.format_values import refuse

PayloadForm = Literal["json", "bytes", "value"]
"""JSON as text or VARIANT, bytes as they are, or another value, which is encoded as JSON."""

_DEPTH_MAX = 50
"""Far deeper than real schemas, and far below the depth at which JSON decoders give up."""


def _is_text(kind: t.DataType) -> bool:
    return isinstance(kind, t.StringType)


def _is_whole(kind: t.DataType) -> bool:
    return isinstance(kind, t.IntegralType)


def _is_number(kind: t.DataType) -> bool:
    return isinstance(kind, t.IntegralType | t.FloatType | t.DoubleType)


def _is_tags(kind: t.DataType) -> bool:
    return isinstance(kind, t.MapType) and _is_text(kind.keyType) and _is_text(kind.valueType)


_FIELDS: dict[str, tuple[str, Callable[[t.DataType], bool]]] = {
    "id": ("string", _is_text),
    "kind": ("string", _is_text),
    "priority": ("int", _is_whole),
    "delay_s": ("double", _is_number),
    "expires_in_s": ("double", _is_number),
    "run_at": ("timestamp", lambda kind: isinstance(kind, t.TimestampType)),
    "max_attempts": ("int", _is_whole),
    "key": ("string", _is_text),
    "tags": ("map<string,string>", _is_tags),
    "job_group": ("string", _is_text),
}
"""The columns that are fields of a job: the type that each must have, and a check of it."""

_ATOMS = (
    t.StringType
    | t.BinaryType
    | t.BooleanType
    | t.NumericType
    | t.DateType
    | t.TimestampType
    | t.TimestampNTZType
    | t.NullType
)


@dataclass(frozen=True)
class WriteColumns:
    """Which columns of a frame become which fields of a job, by their index."""

    fields: dict[str, int]
    payload: int | None
    """The column that is the payload."""
    form: PayloadForm
    packed: dict[str, int]
    """Or else the columns that make up the payload, an object."""
    kind: str | None
    """The kind of all rows, if there is no column for it."""


def plan_columns(schema: t.StructType, options: WriteOptions) -> WriteColumns:
    """Map the columns. Raises ``InvalidRequestError`` that names a wrong one."""
    indexes = _indexes(schema)
    packed = _packed(schema, options)
    payload = None if packed else _payload_index(schema, indexes)
    fields: dict[str, int] = {}
    for name, index in indexes.items():
        if schema[index].name in packed or index == payload:
            continue
        if name not in _FIELDS:
            raise _unknown(schema[index].name, has_payload=payload is not None)
        _check_field(schema[index], name)
        fields[name] = index
    _check_kind(fields, options)
    if payload is not None and not isinstance(schema[payload].dataType, t.VariantType):
        _check_value(schema[payload].dataType, "payload")
    for name, index in packed.items():
        _check_value(schema[index].dataType, name, depth=1)
    form = "value" if payload is None else _form(schema[payload].dataType)
    return WriteColumns(fields, payload, form, packed, options.kind)


def _indexes(schema: t.StructType) -> dict[str, int]:
    """Return the index of each column by its name in lower case, as Spark ignores case."""
    indexes: dict[str, int] = {}
    for index, name in enumerate(schema.names):
        if name.lower() in indexes:
            refuse(f"two columns are called {name!r}: rename or drop one of them")
        indexes[name.lower()] = index
    return indexes


def _packed(schema: t.StructType, options: WriteOptions) -> dict[str, int]:
    """Return the columns that make up the payload, by the names that they have in it."""
    wanted = options.payload_columns
    if wanted == (ALL_COLUMNS,):
        chosen = {
            name: index
            for index, name in enumerate(schema.names)
            if name.lower() not in _FIELDS and name.lower() != "payload"
        }
        if not chosen:
            refuse(
                "option payloadColumns: no column is left for the payload; those of the frame "
                f"are {', '.join(schema.names) or 'none'}"
            )
    else:
        indexes = _indexes(schema)
        for name in wanted:
            if name.lower() not in indexes:
                refuse(
                    f"option payloadColumns: no column {name!r}; there are "
                    f"{', '.join(schema.names) or 'none'}"
                )
        chosen = {schema.names[indexes[name.lower()]]: indexes[name.lower()] for name in wanted}
    if chosen and "payload" in _indexes(schema) and "payload" not in map(str.lower, chosen):
        refuse("there is a column payload and an option payloadColumns: drop one of them")
    return chosen


def _payload_index(schema: t.StructType, indexes: dict[str, int]) -> int:
    index = indexes.get("payload")
    if index is None:
        refuse(
            "no column payload: add one, or name the columns that make up the payload, as in "
            'option("payloadColumns", "a,b"), or "*" for all that are not fields of a job; '
            f"there are {', '.join(schema.names) or 'none'}"
        )
    return index


def _check_field(column: t.StructField, name: str) -> None:
    wanted, is_right = _FIELDS[name]
    if is_right(column.dataType) or isinstance(column.dataType, t.NullType):
        return
    refuse(
        f"column {column.name} is {column.dataType.simpleString()} and must be {wanted}: cast it, "
        "or put it in the payload"
    )


def _check_kind(fields: dict[str, int], options: WriteOptions) -> None:
    if "kind" in fields and options.kind is not None:
        refuse("there is a column kind and an option kind: drop one of them")
    if "kind" not in fields and options.kind is None:
        refuse(
            "no kind: add a column kind, or give all rows the same one, as in "
            'option("kind", "index")'
        )


def _form(kind: t.DataType) -> PayloadForm:
    if isinstance(kind, t.StringType | t.VariantType):
        return "json"
    return "bytes" if isinstance(kind, t.BinaryType) else "value"


def _check_value(kind: t.DataType, where: str, depth: int = 0) -> None:
    """Check that values of a type can be encoded as JSON."""
    if depth > _DEPTH_MAX:
        refuse(f"column {where} is nested deeper than {_DEPTH_MAX} levels: flatten it")
    if isinstance(kind, t.StructType):
        for field in kind.fields:
            _check_value(field.dataType, f"{where}.{field.name}", depth + 1)
    elif isinstance(kind, t.ArrayType):
        _check_value(kind.elementType, f"{where}[]", depth + 1)
    elif isinstance(kind, t.MapType):
        if not _is_text(kind.keyType):
            refuse(
                f"column {where} is a map with keys of type {kind.keyType.simpleString()}: keys "
                "in JSON are strings, cast them"
            )
        _check_value(kind.valueType, f"{where}[]", depth + 1)
    elif isinstance(kind, t.BinaryType) and depth:
        refuse(
            f"column {where} is binary inside a payload, which JSON would turn into text: encode "
            "it yourself, as with base64(), or make it the whole payload"
        )
    elif not isinstance(kind, _ATOMS):
        refuse(
            f"column {where} is {kind.simpleString()}, which cannot be encoded as JSON: cast it to "
            "a string"
        )


def _unknown(name: str, *, has_payload: bool) -> InvalidRequestError:
    known = ", ".join([*_FIELDS, "payload"])
    hint = "drop it, or put it in the payload" if has_payload else "name it in payloadColumns too"
    return InvalidRequestError(
        f"unknown column {name!r}: {hint}; a job is made of the columns {known}"
    )
