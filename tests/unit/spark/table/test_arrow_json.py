"""JSON of columns is what msgspec makes of each value."""

from __future__ import annotations

from typing import Any

import msgspec
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bucketq.spark.table.arrow_json import json_parts
from bucketq.spark.table.row_columns import join_texts, sizes_of

INNER = pa.struct([("b", pa.bool_()), ('te"xt\n', pa.string())])
OUTER = pa.struct(
    [("n", pa.int64()), ("small", pa.int8()), ("in", INNER), ("t", pa.large_string())]
)
TEXT = st.none() | st.text(st.characters(codec="utf-8"), max_size=5)
VALUE = st.none() | st.fixed_dictionaries(
    {
        "n": st.none() | st.integers(-(2**63), 2**63 - 1),
        "small": st.none() | st.integers(-128, 127),
        "in": st.none() | st.fixed_dictionaries({"b": st.none() | st.booleans(), 'te"xt\n': TEXT}),
        "t": TEXT,
    }
)


@given(st.lists(VALUE, max_size=6), st.integers(0, 3))
def test_json_of_columns_equals_that_of_values(values: list[Any], start: int) -> None:
    column = pa.array(values, OUTER)[start:]
    parts = json_parts(column)
    if parts is None:
        texts = msgspec.json.encode(values)
        assert b"\\" in texts.replace(b'"te\\"xt\\n":', b"")
    else:
        found = join_texts(*parts).to_pylist()
        assert found == [msgspec.json.encode(value) for value in column.to_pylist()]
        assert sizes_of(parts).tolist() == [*map(len, found)]


@pytest.mark.parametrize(
    "column",
    [
        pa.array([1.5]),
        pa.array([[1]]),
        pa.array([{"x": 1.5}]),
        pa.array(["\x1f"]),
        pa.array(['a"']),
        pa.array(["\\"]),
        pa.Array.from_buffers(pa.string(), 1, pa.array([b"\xff"], pa.binary()).buffers()),
        pa.array([{}], pa.struct([])),
    ],
)
def test_other_columns_need_msgspec(column: pa.Array) -> None:
    assert json_parts(column) is None
    assert json_parts(pa.array(["\x7f ü\u2028"])) is not None
