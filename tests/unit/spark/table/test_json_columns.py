"""JSON as typed columns: what fits is decoded, and what does not is null."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import types as t

from bucketq.errors import InvalidRequestError
from bucketq.spark.chosen_columns import choose_columns
from bucketq.spark.table.job_schema import DDL
from bucketq.spark.table.json_columns import json_column, variant_texts

INT, LONG, TEXT, PRICE = t.IntegerType(), t.LongType(), t.StringType(), t.DecimalType(5, 2)


def struct(**fields: t.DataType) -> t.StructType:
    return t.StructType([t.StructField(name, kind) for name, kind in fields.items()])


def decoded(kind: t.DataType, *texts: str | None) -> list[Any]:
    values: list[Any] = json_column(pa.array(texts, pa.string()), kind).to_pylist()
    return values


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        (struct(a=INT, b=TEXT), '{"a":1,"b":"x","c":2}', {"a": 1, "b": "x"}),
        (struct(a=INT, b=TEXT), '{"a":"1"}', {"a": None, "b": None}),
        (struct(a=INT), "[1]", None),
        (struct(a=INT), "null", None),
        (struct(a=struct(b=t.ArrayType(INT))), '{"a":{"b":[1,"x",3]}}', {"a": {"b": [1, None, 3]}}),
        (struct(a=TEXT), '{"a":{"b":[1]}}', {"a": '{"b":[1]}'}),
        (t.MapType(TEXT, INT), '{"a":1,"b":true}', [("a", 1), ("b", None)]),
        (t.ArrayType(t.DoubleType()), "[1,2.5,true]", [1.0, 2.5, None]),
        (t.ByteType(), "128", None),
        (LONG, "9223372036854775807", 2**63 - 1),
        (LONG, "9223372036854775808", None),
        (t.DoubleType(), "1" + "0" * 400, None),
        (t.BooleanType(), "1", None),
        (PRICE, '"123.456"', Decimal("123.46")),
        (PRICE, "1234", None),
        (PRICE, '"NaN"', None),
        (t.TimestampType(), '"2026-11-17T10:00:00+01:00"', datetime(2026, 11, 17, 9, tzinfo=UTC)),
        (t.TimestampType(), '"yesterday"', None),
        (t.DateType(), '"2026-11-17"', date(2026, 11, 17)),
    ],
)
def test_what_fits_is_decoded_and_the_rest_is_null(
    kind: t.DataType, text: str, value: object
) -> None:
    assert decoded(kind, text, None) == [value, None]


def test_variants_are_made_of_json_and_turned_into_it_again() -> None:
    texts = ['{"a":[1,2.50,null,"b"]}', "12345678901234567.89", '"text"', "true", None]
    column = json_column(pa.array(texts, pa.string()), t.VariantType())
    assert variant_texts(column).to_pylist() == texts
    assert decoded(struct(a=t.VariantType()), "{}") == [{"a": None}]


@pytest.mark.parametrize(
    "kind", [t.BinaryType(), struct(a=t.BinaryType()), t.MapType(INT, TEXT)], ids=str
)
def test_types_that_json_does_not_have_are_refused(kind: t.DataType) -> None:
    with pytest.raises(InvalidRequestError, match="JSON cannot be read as"):
        choose_columns(struct(payload=kind), DDL)


def test_only_payloads_and_results_have_other_types() -> None:
    with pytest.raises(InvalidRequestError, match="the column id is string, and not int"):
        choose_columns(struct(id=INT), DDL)
    chosen = choose_columns(struct(Payload=struct(a=INT), result=t.VariantType()), DDL)
    assert chosen.ours == ("payload", "result")
    assert all(chosen.shapes)
