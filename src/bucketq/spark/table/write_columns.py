"""Which column of a DataFrame says what of a job, checked by name and type before a row is read.

A column that is not understood is refused and never dropped or packed unasked: a mistyped
``priority`` would otherwise be noticed only when the jobs have run.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from pyspark.sql import types as t

from bucketq.errors import InvalidRequestError
from bucketq.spark.format_options import EVERY_COLUMN, WriteOptions

PayloadForm = Literal["json", "bytes", "value"]
"""JSON as text, bytes as they are, or any other value, which is written as JSON."""

_DEEPEST = 50


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
    "run_at": ("timestamp", lambda kind: isinstance(kind, t.TimestampType)),
    "max_attempts": ("int", _is_whole),
    "key": ("string", _is_text),
    "tags": ("map<string,string>", _is_tags),
}
"""The columns that are fields of a job, the type that each should have, and whether it does."""

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
class Columns:
    """What the columns of a frame mean."""

    fields: dict[str, int]
    """The place of each column that is a field of a job."""
    payload: int | None
    """The place of the column that is the payload."""
    form: PayloadForm
    packed: dict[str, int]
    """Or the columns that make up the payload, an object."""
    kind: str | None
    """The kind of all rows, where no column says it."""


def plan_columns(schema: t.StructType, options: WriteOptions) -> Columns:
    """Find out what the columns mean. Raises ``InvalidRequestError`` that names the wrong one."""
    places = _places(schema)
    packed = _packed(schema, options)
    payload = None if packed else _payload_place(schema, places)
    fields: dict[str, int] = {}
    for name, place in places.items():
        if schema[place].name in packed or place == payload:
            continue
        if name not in _FIELDS:
            raise _unknown(schema[place].name, has_payload=payload is not None)
        _check_field(schema[place], name)
        fields[name] = place
    _check_kind(fields, options)
    if payload is not None:
        _check_value(schema[payload].dataType, "payload")
    for name, place in packed.items():
        _check_value(schema[place].dataType, name, depth=1)
    form = "value" if payload is None else _form(schema[payload].dataType)
    return Columns(fields, payload, form, packed, options.kind)


def _places(schema: t.StructType) -> dict[str, int]:
    """The place of each column by its name in lower case; Spark does not heed case either."""
    places: dict[str, int] = {}
    for place, name in enumerate(schema.names):
        if name.lower() in places:
            message = f"two columns are called {name!r}: rename or drop one of them"
            raise InvalidRequestError(message)
        places[name.lower()] = place
    return places


def _packed(schema: t.StructType, options: WriteOptions) -> dict[str, int]:
    """The columns that make up the payload, by the names that they will have in it."""
    wanted = options.payload_columns
    if wanted == (EVERY_COLUMN,):
        chosen = {
            name: place
            for place, name in enumerate(schema.names)
            if name.lower() not in _FIELDS and name.lower() != "payload"
        }
        if not chosen:
            message = (
                "option payloadColumns: no column is left for the payload; those of the frame "
                f"are {', '.join(schema.names) or 'none'}"
            )
            raise InvalidRequestError(message)
    else:
        places = _places(schema)
        for name in wanted:
            if name.lower() not in places:
                message = (
                    f"option payloadColumns: no column {name!r}; there are "
                    f"{', '.join(schema.names) or 'none'}"
                )
                raise InvalidRequestError(message)
        chosen = {schema.names[places[name.lower()]]: places[name.lower()] for name in wanted}
    if chosen and "payload" in _places(schema) and "payload" not in map(str.lower, chosen):
        message = "there is a column payload and an option payloadColumns: drop one of them"
        raise InvalidRequestError(message)
    return chosen


def _payload_place(schema: t.StructType, places: dict[str, int]) -> int:
    place = places.get("payload")
    if place is None:
        message = (
            "no column payload: add one, or name the columns that make up the payload, as in "
            'option("payloadColumns", "a,b"), or "*" for all that say nothing else of a job; '
            f"there are {', '.join(schema.names) or 'none'}"
        )
        raise InvalidRequestError(message)
    return place


def _check_field(column: t.StructField, name: str) -> None:
    wanted, is_right = _FIELDS[name]
    if is_right(column.dataType) or isinstance(column.dataType, t.NullType):
        return
    message = (
        f"column {column.name} is {column.dataType.simpleString()} and must be {wanted}: cast it, "
        "or put it in the payload"
    )
    raise InvalidRequestError(message)


def _check_kind(fields: dict[str, int], options: WriteOptions) -> None:
    if "kind" in fields and options.kind is not None:
        message = "there is a column kind and an option kind: drop one of them"
        raise InvalidRequestError(message)
    if "kind" not in fields and options.kind is None:
        message = (
            "no kind: add a column kind, or give all rows the same one, as in "
            'option("kind", "index")'
        )
        raise InvalidRequestError(message)


def _form(kind: t.DataType) -> PayloadForm:
    if isinstance(kind, t.StringType):
        return "json"
    return "bytes" if isinstance(kind, t.BinaryType) else "value"


def _check_value(kind: t.DataType, where: str, depth: int = 0) -> None:
    """See that JSON has a way to say values of a type."""
    if depth > _DEEPEST:
        message = f"column {where} is nested deeper than {_DEEPEST} levels: flatten it"
        raise InvalidRequestError(message)
    if isinstance(kind, t.StructType):
        for field in kind.fields:
            _check_value(field.dataType, f"{where}.{field.name}", depth + 1)
    elif isinstance(kind, t.ArrayType):
        _check_value(kind.elementType, f"{where}[]", depth + 1)
    elif isinstance(kind, t.MapType):
        if not _is_text(kind.keyType):
            message = (
                f"column {where} is a map with keys of type {kind.keyType.simpleString()}: keys "
                "in JSON are strings, cast them"
            )
            raise InvalidRequestError(message)
        _check_value(kind.valueType, f"{where}[]", depth + 1)
    elif isinstance(kind, t.BinaryType) and depth:
        message = (
            f"column {where} is binary inside a payload, which JSON would turn into text: encode "
            "it yourself, as with base64(), or make it the whole payload"
        )
        raise InvalidRequestError(message)
    elif not isinstance(kind, _ATOMS):
        message = (
            f"column {where} is {kind.simpleString()}, which cannot be encoded as JSON: cast it to "
            "a string"
        )
        raise InvalidRequestError(message)


def _unknown(name: str, *, has_payload: bool) -> InvalidRequestError:
    known = ", ".join([*_FIELDS, "payload"])
    hint = "drop it, or put it in the payload" if has_payload else "name it in payloadColumns too"
    return InvalidRequestError(
        f"unknown column {name!r}: {hint}; a job is made of the columns {known}"
    )
