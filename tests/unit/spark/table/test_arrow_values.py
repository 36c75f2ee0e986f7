"""Cells as values: what Arrow says itself, sooner."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bucketq.spark.table.arrow_values import in_utc, values_of

ATOMS = (
    pa.int64(),
    pa.float64(),
    pa.bool_(),
    pa.string(),
    pa.binary(),
    pa.date32(),
    pa.decimal128(10, 2),
    pa.timestamp("us", tz="UTC"),
    pa.timestamp("us"),
    pa.timestamp("ms", tz="UTC"),
)


def _structs(inner: st.SearchStrategy[pa.DataType]) -> st.SearchStrategy[pa.DataType]:
    names = st.sampled_from("abcd")
    return st.lists(st.tuples(names, inner), max_size=4, unique_by=lambda each: each[0]).map(
        pa.struct
    )


TYPES = st.recursive(
    st.sampled_from(ATOMS),
    lambda inner: (
        _structs(inner) | inner.map(pa.list_) | inner.map(lambda kind: pa.map_(pa.string(), kind))
    ),
    max_leaves=6,
)


def value_of(kind: pa.DataType) -> st.SearchStrategy[Any]:
    """Values of a type, among them none at all."""
    if pa.types.is_struct(kind):
        values: st.SearchStrategy[Any] = st.fixed_dictionaries(
            {each.name: value_of(each.type) for each in kind}
        )
    elif pa.types.is_list(kind):
        values = st.lists(value_of(kind.value_type), max_size=3)
    elif pa.types.is_map(kind):
        keys = st.text("xyz", max_size=3)
        values = st.dictionaries(keys, value_of(kind.item_type), max_size=3).map(
            lambda found: list(found.items())
        )
    else:
        values = atom_of(kind)
    return st.none() | values


def atom_of(kind: pa.DataType) -> st.SearchStrategy[Any]:
    if pa.types.is_timestamp(kind):
        zones = st.none() if kind.tz is None else st.just(UTC)
        times = st.datetimes(timezones=zones)
        return times.map(lambda at: at.replace(microsecond=at.microsecond // 1000 * 1000))
    if pa.types.is_decimal(kind):
        return st.decimals(-1000, 1000, places=2)
    atoms: dict[pa.DataType, st.SearchStrategy[Any]] = {
        pa.int64(): st.integers(-(2**63), 2**63 - 1),
        pa.float64(): st.floats(allow_nan=False),
        pa.bool_(): st.booleans(),
        pa.string(): st.text(),
        pa.binary(): st.binary(),
        pa.date32(): st.dates(),
    }
    return atoms[kind]


@given(st.data())
def test_values_are_the_same_as_those_of_to_pylist(data: st.DataObject) -> None:
    kind = data.draw(TYPES)
    column = pa.array(data.draw(st.lists(value_of(kind), max_size=6)), kind)
    cut = column.slice(data.draw(st.integers(0, 3)), data.draw(st.integers(0, 6)))
    for each in (column, cut):
        assert values_of(each) == each.to_pylist(maps_as_pydicts="strict")


def test_a_null_struct_differs_from_a_struct_of_nulls() -> None:
    kind = pa.struct([("at", pa.timestamp("us", tz="UTC"))])
    values = [None, {"at": None}, {"at": datetime(2026, 1, 2, tzinfo=UTC)}]
    assert values_of(pa.array(values, kind)) == values


def test_a_time_is_read_to_the_microsecond_in_any_year() -> None:
    times = [datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC), None]
    assert values_of(pa.array(times, pa.timestamp("us", tz="UTC"))) == times


def test_two_fields_of_one_name_raise_as_in_arrow() -> None:
    time = pa.array([0], pa.timestamp("us"))
    column = pa.StructArray.from_arrays([time, time], names=["a", "a"])
    with pytest.raises(ValueError, match="duplicate field names"):
        values_of(column)


def test_times_come_in_utc_however_deep_they_are() -> None:
    there = pa.timestamp("us", tz="America/St_Johns")
    kind = pa.struct([("at", there), ("many", pa.list_(pa.map_(pa.string(), there)))])
    at = datetime(2026, 7, 1, 12, tzinfo=UTC)
    column = pa.array([{"at": at, "many": [[("x", at)]]}], kind)
    batch = in_utc(pa.RecordBatch.from_arrays([column], names=["value"]))
    assert "St_Johns" not in str(batch.schema)
    assert values_of(batch.column(0)) == [{"at": at, "many": [{"x": at}]}]
