"""What columns mean, and which are refused by name and type."""

from __future__ import annotations

import pytest
from pyspark.sql import types as t

from bucketq.errors import InvalidRequestError
from bucketq.spark.format_options import write_options
from bucketq.spark.table.write_columns import WriteColumns, plan_columns

TEXT, WHOLE = t.StringType(), t.LongType()


def frame(**columns: t.DataType) -> t.StructType:
    return t.StructType([t.StructField(name, kind) for name, kind in columns.items()])


def plan(schema: t.StructType, **options: str) -> WriteColumns:
    return plan_columns(schema, write_options({"path": "file:///q/queue.json", **options}))


def test_every_field_of_a_job_can_be_a_column() -> None:
    schema = frame(
        id=TEXT,
        kind=TEXT,
        payload=TEXT,
        priority=t.ShortType(),
        delay_s=t.DoubleType(),
        run_at=t.TimestampType(),
        max_attempts=t.IntegerType(),
        key=TEXT,
        tags=t.MapType(TEXT, TEXT),
    )
    found = plan(schema)
    assert found.fields.keys() == set(schema.names) - {"payload"}
    assert (found.payload, found.form) == (2, "json")


def test_names_are_found_in_any_case_as_spark_finds_them() -> None:
    found = plan(frame(KIND=TEXT, Payload=t.BinaryType()))
    assert (found.fields, found.payload, found.form) == ({"kind": 0}, 1, "bytes")


@pytest.mark.parametrize(
    "kind",
    [
        t.ArrayType(WHOLE),
        t.StructType([t.StructField("a", t.DateType())]),
        t.MapType(TEXT, t.TimestampNTZType()),
        t.DecimalType(10, 2),
        t.NullType(),
    ],
)
def test_a_payload_of_any_type_that_json_supports_is_a_value(kind: t.DataType) -> None:
    assert plan(frame(kind=TEXT, payload=kind)).form == "value"


def test_a_star_packs_all_columns_that_are_not_fields_of_a_job() -> None:
    found = plan(frame(kind=TEXT, a=WHOLE, key=TEXT, b=TEXT), payloadColumns="*")
    assert (found.payload, found.packed) == (None, {"a": 1, "b": 3})
    assert found.fields == {"kind": 0, "key": 2}


def test_a_column_of_the_payload_is_not_a_field_of_the_job() -> None:
    found = plan(frame(id=WHOLE, name=TEXT), payloadColumns="ID, name", kind="x")
    assert (found.packed, found.fields, found.kind) == ({"id": 0, "name": 1}, {}, "x")


@pytest.mark.parametrize(
    ("schema", "options", "message"),
    [
        (frame(payload=TEXT), {}, "no kind: add a column kind"),
        (frame(kind=TEXT, payload=TEXT), {"kind": "x"}, "a column kind and an option kind"),
        (frame(kind=TEXT), {}, "no column payload"),
        (frame(kind=TEXT, paylod=TEXT), {}, "no column payload: .* there are kind, paylod"),
        (frame(kind=TEXT, payload=TEXT, prio=WHOLE), {}, "unknown column 'prio'"),
        (frame(kind=TEXT, payload=TEXT, priority=TEXT), {}, "priority is string and must be int"),
        (frame(kind=WHOLE, payload=TEXT), {}, "kind is bigint and must be string"),
        (
            frame(kind=TEXT, payload=TEXT, run_at=t.TimestampNTZType()),
            {},
            "run_at is timestamp_ntz and must be timestamp",
        ),
        (
            frame(kind=TEXT, payload=TEXT, tags=t.MapType(TEXT, WHOLE)),
            {},
            "must be map<string,string>",
        ),
        (frame(kind=TEXT, payload=t.MapType(WHOLE, TEXT)), {}, "map with keys of type bigint"),
        (
            frame(kind=TEXT, payload=t.StructType([t.StructField("x", t.DayTimeIntervalType())])),
            {},
            "payload.x is interval .* cannot be encoded as JSON",
        ),
        (
            frame(kind=TEXT, payload=t.ArrayType(t.BinaryType())),
            {},
            r"payload\[\] is binary inside a payload",
        ),
        (
            frame(kind=TEXT, a=WHOLE, b=t.BinaryType()),
            {"payloadColumns": "*"},
            "column b is binary inside a payload",
        ),
        (frame(kind=TEXT, a=WHOLE), {"payloadColumns": "b"}, "no column 'b'; there are kind, a"),
        (frame(kind=TEXT, a=WHOLE, b=TEXT), {"payloadColumns": "a"}, "unknown column 'b'"),
        (frame(kind=TEXT, key=TEXT), {"payloadColumns": "*"}, "no column is left"),
        (
            frame(kind=TEXT, payload=TEXT, a=TEXT),
            {"payloadColumns": "a"},
            "a column payload and an option payloadColumns",
        ),
    ],
)
def test_an_invalid_column_is_rejected_by_name(
    schema: t.StructType, options: dict[str, str], message: str
) -> None:
    with pytest.raises(InvalidRequestError, match=message):
        plan(schema, **options)


def test_two_columns_of_one_name_are_rejected() -> None:
    schema = t.StructType([t.StructField(name, TEXT) for name in ("kind", "payload", "Kind")])
    with pytest.raises(InvalidRequestError, match="two columns are called 'Kind'"):
        plan(schema)
