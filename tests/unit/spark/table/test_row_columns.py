"""Segments that are made of columns have the bytes that they would have if made row by row."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, pairwise

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bucketq.codec import segment_index
from bucketq.codec.pushed_rows import pushed_row
from bucketq.codec.segment_file import encode_segment, sort_rows
from bucketq.model.job_ids import distance
from bucketq.model.settings import Settings
from bucketq.spark.table import row_columns
from bucketq.spark.table.row_columns import (
    RowColumns,
    _sorted_places,
    cut_rows,
    encode_columns,
)
from bucketq.spark.table.row_encoding import decode_rows, encode_batches, encode_rows
from bucketq.spark.table.write_columns import WriteColumns
from tests.compat.adopted_rows import consecutive

WRITE = "01M7F5B2YZ8Q4X1VJ6T3N9KDAE"
ROWS = st.lists(
    st.tuples(
        st.sampled_from(["index", "email", "a", "z/1"]),
        st.none() | st.sampled_from(["1", '{"a":"ü"}', '"%s"' % ("x" * 90)]),
        st.none() | st.integers(-2, 2),
        st.none() | st.integers(1, 3),
        st.none() | st.dictionaries(st.sampled_from("ab"), st.text(max_size=3), max_size=2),
    ),
    min_size=1,
    max_size=40,
)


@pytest.fixture(autouse=True, scope="module")
def small_blocks() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(segment_index, "BLOCK_BYTES", 500)
        patch.setattr(row_columns, "_HASHED_AT_ONCE", 8)
        yield


def columns(rows: list[tuple[object, ...]], names: tuple[str, ...]) -> pa.RecordBatch:
    types = {
        "kind": pa.string(),
        "payload": pa.string(),
        "priority": pa.int32(),
        "max_attempts": pa.int32(),
        "tags": pa.map_(pa.string(), pa.string()),
    }
    values = dict(zip(types, zip(*rows, strict=True), strict=True))
    values["tags"] = tuple(tags and [*tags.items()] for tags in values["tags"])
    return pa.RecordBatch.from_arrays(
        [pa.array(values[name], types[name]) for name in names], names=list(names)
    )


FIELDS = (
    ("kind", "payload"),
    ("kind", "payload", "priority"),
    ("kind", "payload", "priority", "max_attempts", "tags"),
)


@given(ROWS, st.sampled_from(FIELDS), st.integers(1, 40))
def test_a_segment_of_columns_equals_one_of_rows(
    rows: list[tuple[object, ...]], names: tuple[str, ...], some: int
) -> None:
    batch = columns(rows, names)
    places = {name: place for place, name in enumerate(names) if name != "payload"}
    meaning = WriteColumns(places, 1, "json", {}, None)
    batches = [batch[:some], batch[some:]]
    staged = encode_rows(batches, meaning, Settings(), WRITE, 3)
    expected = [pushed_row(job, place) for place, job in enumerate(decode_rows(staged.body))]
    encoded = encode_batches(batches, meaning, Settings(), WRITE, 3)
    [found] = [encode_columns(each) for each in cut_rows(encoded, 1 << 20)]
    is_one_run = len({(row.fields.kind, row.fields.priority) for row in expected}) == 1
    first_id = ""
    if is_one_run:
        first_id, expected = expected[0].fields.id, [consecutive(row) for row in expected]
    assert found == encode_segment("ready", sort_rows("ready", expected), first_id)
    for place, row in enumerate(expected):
        assert distance(expected[0].fields.id, row.fields.id) == place


@given(st.lists(st.integers(1, 60), min_size=1, max_size=20), st.data())
def test_rows_are_cut_into_segments_whatever_the_batches(
    lengths: list[int], data: st.DataObject
) -> None:
    def made(some: range) -> RowColumns:
        return RowColumns(
            pa.array([b"id-%d" % place for place in some], pa.large_binary()),
            pa.array(["k"] * len(some), pa.string()).dictionary_encode(),
            np.zeros(len(some), np.int64),
            [pa.array([b"x" * lengths[place] for place in some], pa.large_binary())],
            np.array([lengths[place] for place in some], np.int64),
            np.zeros(len(some), np.uint32),
        )

    def ids(rows: list[RowColumns]) -> list[bytes]:
        return [*chain.from_iterable(each.ids.to_pylist() for each in rows)]

    count, limit_bytes = len(lengths), 150
    marks = sorted({0, count, *data.draw(st.lists(st.integers(0, count), max_size=4))})
    batches = [made(range(start, stop)) for start, stop in pairwise(marks)]
    found = [ids(each) for each in cut_rows(batches, limit_bytes)]
    assert found == [ids(each) for each in cut_rows([made(range(count))], limit_bytes)]
    assert [*chain.from_iterable(found)] == [b"id-%d" % place for place in range(count)]
    for each in cut_rows(batches, limit_bytes):
        assert (
            len(ids(each)) == 1
            or len(encode_columns(each).body.partition(b'\n"')[0]) <= limit_bytes
        )


@pytest.mark.parametrize("spread", [1, 2**12, 2**63 // 300])
def test_hashes_are_sorted_also_if_they_are_close(spread: int) -> None:
    numbers = np.array([(place * 7 % 300) // 2 * spread for place in range(300)], np.uint64)
    assert (_sorted_places(numbers) == np.argsort(numbers, kind="stable")).all()


def test_no_rows_are_no_segment() -> None:
    assert [*cut_rows([], 100)] == []
    batch = columns([("k", "1", 0, 0, None)], ("kind", "payload"))[:0]
    encoded = encode_batches(
        [batch], WriteColumns({"kind": 0}, 1, "json", {}, None), Settings(), WRITE, 0
    )
    assert [*cut_rows(encoded, 100)] == []
