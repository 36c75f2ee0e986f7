"""Rows as jobs: payloads as a push would write them, ids that do not change, rows named."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bucketq.errors import (
    BucketQError,
    InvalidRequestError,
    PayloadError,
    PayloadTooLargeError,
    RejectedError,
)
from bucketq.model import check
from bucketq.model.base import NewJob
from bucketq.model.settings import Settings
from bucketq.queue import payload as payloads
from bucketq.spark.table.row_columns import RowColumns
from bucketq.spark.table.row_encoding import (
    are_json_lines,
    decode_rows,
    encode_each,
    encode_fast,
    encode_rows,
    encode_values,
)
from bucketq.spark.table.write_columns import PayloadForm, WriteColumns

WRITE = "01M7F5B2YZ8Q4X1VJ6T3N9KDAE"


def columns(form: PayloadForm, *fields: str) -> WriteColumns:
    """The payload is the first column, and these fields follow."""
    places = {name: place for place, name in enumerate(fields, start=1)}
    return WriteColumns(places, 0, form, {}, None if "kind" in places else "x")


def specs(
    batch: pa.RecordBatch,
    meaning: WriteColumns,
    *,
    settings: Settings | None = None,
    write_id: str = WRITE,
    partition: int = 0,
) -> list[NewJob]:
    rows = encode_rows([batch], meaning, settings or Settings(), write_id, partition)
    found = list(decode_rows(rows.body))
    assert len(found) == len(rows.sizes) == batch.num_rows
    return found


def batch(*arrays: pa.Array) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(list(arrays), names=[str(n) for n in range(len(arrays))])


def pushed(job: NewJob) -> bytes:
    """The JSON that a push of it stores."""
    assert job.payload_encoding is None
    return bytes(job.payload)


def test_text_is_stored_as_json_on_one_line() -> None:
    texts = ['{"a": 1}', '\n {"a":\n 1e400}\t', None, '"ü"']
    found = [pushed(job) for job in specs(batch(pa.array(texts)), columns("json"))]
    assert found == [b'{"a": 1}', b'{"a":1e400}', b"null", '"ü"'.encode()]


def test_binary_payloads_are_stored_as_bytes() -> None:
    found = specs(batch(pa.array([b"\x00\xff", b""], pa.binary())), columns("bytes"))
    assert [job.payload_encoding for job in found] == ["base64", "base64"]
    read = [payloads.decode(job.payload, "base64", bytes, "payload") for job in found]
    assert read == [b"\x00\xff", b""]


def test_a_value_is_encoded_as_by_a_push() -> None:
    newfoundland = timezone(timedelta(hours=-3, minutes=-30))
    kind = pa.struct(
        [
            ("at", pa.timestamp("us", tz="America/St_Johns")),
            ("many", pa.list_(pa.timestamp("us", tz="America/St_Johns"))),
            ("day", pa.date32()),
            ("price", pa.decimal128(10, 2)),
            ("map", pa.map_(pa.string(), pa.map_(pa.string(), pa.int64()))),
            ("none", pa.string()),
        ]
    )
    at = datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=newfoundland)
    value = {
        "at": at,
        "many": [at],
        "day": date(2026, 1, 2),
        "price": Decimal("1.50"),
        "map": [("a", [("b", 1)])],
        "none": None,
    }
    [job] = specs(batch(pa.array([value], kind)), columns("value"))
    in_utc = "2026-01-02T06:34:05.678901Z"
    assert json.loads(pushed(job)) == {
        "at": in_utc,
        "many": [in_utc],
        "day": "2026-01-02",
        "price": "1.50",
        "map": {"a": {"b": 1}},
        "none": None,
    }


def test_packed_columns_become_one_object() -> None:
    meaning = WriteColumns({}, None, "value", {"name": 1, "n": 0}, "x")
    found = specs(batch(pa.array([1, None]), pa.array(["a", "b"])), meaning)
    assert [pushed(job) for job in found] == [b'{"name":"a","n":1}', b'{"name":"b","n":null}']


def test_fields_are_read_from_their_columns_and_left_out_if_null() -> None:
    at = datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)
    rows = batch(
        pa.array(["1", "2"]),
        pa.array(["mine", None]),
        pa.array(["a", "b"]),
        pa.array([-5, None], pa.int16()),
        pa.array([None, 1.5]),
        pa.array([at, None], pa.timestamp("us", tz="America/St_Johns")),
        pa.array([3, None]),
        pa.array(["k", None]),
        pa.array([[("t", "1")], None], pa.map_(pa.string(), pa.string())),
        pa.array(["acme", None]),
    )
    names = ("id", "kind", "priority", "delay_s", "run_at", "max_attempts", "key", "tags")
    deep = Settings(max_format=2)
    first, second = specs(rows, columns("json", *names, "job_group"), settings=deep)
    assert first == NewJob(
        kind="a",
        payload=first.payload,
        id="mine",
        priority=-5,
        run_at=at,
        max_attempts=3,
        key="k",
        tags={"t": "1"},
        group="acme",
    )
    assert second == NewJob(kind="b", payload=second.payload, id=second.id, delay_s=1.5)


def test_rows_may_expire() -> None:
    rows = batch(pa.array(["1", "2"]), pa.array([30.5, None]))
    first, second = specs(rows, columns("json", "expires_in_s"), settings=Settings(max_format=2))
    assert (first.expires_in_s, second.expires_in_s) == (30.5, None)
    with pytest.raises(RejectedError, match=r"row 0 .* max_format 2"):
        specs(rows, columns("json", "expires_in_s"))


def test_ids_follow_from_write_partition_and_row_alone() -> None:
    def ids(given: list[list[str]], write_id: str = WRITE, partition: int = 0) -> list[str]:
        batches = [batch(pa.array(each)) for each in given]
        rows = encode_rows(batches, columns("json"), Settings(), write_id, partition)
        return [job.id for job in decode_rows(rows.body)]

    first = ids([["1", "2"], ["3"]])
    assert ids([["7"], ["8", "9"]]) == first
    assert all(each.startswith(WRITE[:10]) and len(each) == 26 for each in first)
    others = [ids([["1", "2", "3"]], partition=1), ids([["1", "2", "3"]], "nightly.7")]
    assert len({each for many in [first, *others] for each in many}) == 9
    assert ids([["1", "2", "3"]], "nightly.7") == others[1]


@pytest.mark.parametrize(
    ("write_id", "first"),
    [
        ("2f1c9f2e-3a38-4a52-9f0e-0c8d0f3f6a11/0", "5MH8G43VV80EET36WPB4MB4Y53"),
        ("nightly-2026-11-01", "5PJRQ7R8118TTF4G5MYTFMJPZH"),
        ("01JCXJ5V9E8K3Q2N7T4W6Y1Z0A", "01JCXJ5V9E31MJD5P6JT7ZZMG9"),
    ],
    ids=["of a stream", "of a user", "made"],
)
def test_ids_are_those_that_older_versions_made(write_id: str, first: str) -> None:
    """So that a write or a stream that an older version began is resumed, and not repeated."""
    rows = pa.RecordBatch.from_pydict({"payload": ["1"]})
    columns = WriteColumns({}, 0, "json", {}, "x")
    encoded = encode_rows([rows], columns, Settings(), write_id, 3)
    assert [job.id for job in decode_rows(encoded.body)] == [first]


def test_an_id_does_not_depend_on_rows_with_their_own_ids() -> None:
    meaning = columns("json", "id")
    texts = pa.array(["1", "2"])
    own = specs(batch(texts, pa.array(["mine", None])), meaning)
    none = specs(batch(texts, pa.array([None, None], pa.string())), meaning)
    assert own[1].id == none[1].id


@pytest.mark.parametrize(
    ("given", "form", "kind", "message"),
    [
        (pa.array(["1", "{"]), "json", PayloadError, "not valid JSON"),
        (pa.array(["1", ""]), "json", PayloadError, "not valid JSON"),
        (pa.array(["1", "{\n"]), "json", PayloadError, "not valid JSON"),
        (pa.array([1.0, float("nan")]), "value", PayloadError, "NaN or infinity"),
        (pa.array(["1", '"' + "x" * 100 + '"']), "json", PayloadTooLargeError, "payload too large"),
    ],
)
def test_a_row_that_cannot_be_pushed_is_named(
    given: pa.Array, form: PayloadForm, kind: type[BucketQError], message: str
) -> None:
    settings = Settings(max_payload_bytes=50)
    with pytest.raises(kind, match=f"row 1 of partition 4 cannot be pushed: .*{message}"):
        specs(batch(given), columns(form), settings=settings, partition=4)


def test_a_row_with_delay_s_and_run_at_is_rejected() -> None:
    at = pa.array([datetime(2026, 1, 2, tzinfo=UTC)], pa.timestamp("us", tz="UTC"))
    rows = batch(pa.array(["1"]), pa.array([1.0]), at)
    with pytest.raises(InvalidRequestError, match=r"row 0 .* delay_s or run_at, not both"):
        specs(rows, columns("json", "delay_s", "run_at"))


def test_the_sizes_are_those_of_the_payloads() -> None:
    given = [batch(pa.array(["1", "[1,2]"])), batch(pa.array(['"ü"']))]
    rows = encode_rows(given, columns("json"), Settings(), WRITE, 0)
    assert list(rows.sizes) == [1, 5, 4]
    assert msgspec.json.decode(rows.body.splitlines()[1])["payload"] == [1, 2]


VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats()
    | st.text()
    | st.datetimes(timezones=st.just(UTC))
    | st.decimals(allow_nan=False),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=10,  # Nested three deep; a hundred take ten times as long to draw.
)


@given(st.lists(VALUES, max_size=20))
def test_values_are_encoded_together_as_each_would_be_alone(values: list[Any]) -> None:
    assert outcomes(lambda: encode_values(values)) == outcomes(
        lambda: (payloads.encode(value, "payload") for value in values)
    )


def outcomes(encode: Callable[[], Iterator[payloads.Body]]) -> list[object]:
    """What comes of values, up to the first that is refused."""
    found: list[object] = []
    try:
        found.extend((bytes(raw), encoding) for raw, encoding in encode())
    except PayloadError as error:
        found.append(str(error))
    return found


def test_one_value_that_cannot_be_encoded_does_not_affect_others() -> None:
    together = encode_values(["a", object(), "b"])
    assert next(together)[0] == msgspec.Raw(b'"a"')
    with pytest.raises(PayloadError, match="cannot be encoded as JSON"):
        next(together)


TEXTS = VALUES.map(lambda value: json.dumps(value, default=str)) | st.sampled_from(
    ["", "{", " 1", "1 ", "[1,\n2]", "1,2", "[" * 200, '"' + "x" * 50 + '"', '"\\ud83d\\ude00ü"']
)
PLAIN = st.lists(
    st.tuples(
        st.sampled_from(["a", "index", "?", None]),
        st.none() | TEXTS,
        st.sampled_from([None, 0, 0, 7, -(2**31), 2**31 + 1]),
    ),
    min_size=1,
    max_size=5,
)


def read(rows: RowColumns) -> tuple[list[Any], ...]:
    columns = (rows.ids, rows.kinds, rows.priorities, rows.lines, rows.sizes)
    return tuple(column.tolist() for column in columns)


def made_ids(count: int) -> pa.LargeBinaryArray:
    return pa.array([b"id-%d" % number for number in range(count)], pa.large_binary())


@given(PLAIN)
def test_the_fast_encoding_equals_that_of_single_rows(
    rows: list[tuple[str | None, str | None, int | None]],
) -> None:
    kinds, texts, priorities = zip(*rows, strict=True)
    given_rows = batch(
        pa.array(texts, pa.string()), pa.array(kinds, pa.string()), pa.array(priorities, pa.int64())
    )
    meaning, settings = columns("json", "kind", "priority"), Settings(max_payload_bytes=100)
    ids = made_ids(len(rows))
    plain = encode_fast(given_rows, meaning, settings, ids)
    if plain is None:
        with pytest.raises(BucketQError, match=r"row .* of partition 4 cannot be pushed"):
            encode_each(given_rows, meaning, settings, ids, (0, 4))
    else:
        assert read(plain) == read(encode_each(given_rows, meaning, settings, ids, (0, 4)))


STRUCTS = st.fixed_dictionaries(
    {
        "n": st.none() | st.integers(0, 9),
        "text": st.none() | st.text(),
        "x": st.none() | st.floats(),
    }
)


@given(st.lists(STRUCTS, min_size=1, max_size=5), st.booleans())
def test_the_fast_encoding_of_values_equals_that_of_single_rows(
    values: list[dict[str, Any]], has_floats: bool
) -> None:
    fields = {"n": pa.int64(), "text": pa.string(), "x": pa.float64()}
    if not has_floats:
        del fields["x"]
    given_rows = batch(pa.array(values, pa.struct(fields)))
    ids = made_ids(len(values))
    plain = encode_fast(given_rows, columns("value"), Settings(), ids)
    if plain is None:
        with pytest.raises(PayloadError, match="NaN or infinity"):
            encode_each(given_rows, columns("value"), Settings(), ids, (0, 4))
    else:
        each = encode_each(given_rows, columns("value"), Settings(), ids, (0, 4))
        assert read(plain) == read(each)


def test_a_value_that_is_too_large_is_named() -> None:
    rows = batch(pa.array([{"a": "x" * 10}, {"a": "x" * 11}]))
    meaning, ids, settings = columns("value"), made_ids(2), Settings(max_payload_bytes=18)
    assert encode_fast(rows[:1], meaning, settings, ids[:1]) is not None
    assert encode_fast(rows, meaning, settings, ids) is None
    with pytest.raises(PayloadTooLargeError, match=r"row 1 of partition 4 cannot be pushed"):
        encode_each(rows, meaning, settings, ids, (0, 4))


@given(st.lists(TEXTS, min_size=1, max_size=4))
def test_texts_are_found_to_be_json_as_each_would_be_alone(texts: list[str]) -> None:
    bodies = [text.encode() for text in texts]
    if are_json_lines(pa.array(bodies, pa.large_binary()), 60):
        for body in bodies:
            check.body(msgspec.Raw(body), "payload", "max_payload_bytes", 60)


@pytest.mark.parametrize(
    "texts",
    [
        ["[1,", "2]", "3 4"],
        ["1 2", "[3,", "4]"],
        ["[1", "2]", "3,4"],
        ["1", " 2"],
        ["1", "2\r"],
        ["1\n2", "[", "]"],
        ["[" * 101 + "]" * 101],
        [b'"\xff"', b"1"],
    ],
)
def test_texts_that_are_json_only_together_are_noticed(texts: list[str | bytes]) -> None:
    assert not are_json_lines(pa.array(texts, pa.large_binary()), 1000)
    assert are_json_lines(pa.array(["1", "[2,3]"], pa.large_binary()), 5)
    assert not are_json_lines(pa.array(["1", "[2,3]"], pa.large_binary()), 4)


def test_rows_with_more_fields_are_not_encoded_fast() -> None:
    for name, more in (("key", pa.array(["k"])), ("id", pa.array(["mine"]))):
        rows = batch(pa.array(["1"]), more)
        assert encode_fast(rows, columns("json", name), Settings(), made_ids(1)) is None
    raw = batch(pa.array([b"x"]))
    assert encode_fast(raw, columns("bytes"), Settings(), made_ids(1)) is None


def test_a_bad_row_is_named_by_its_number_in_the_partition() -> None:
    given_rows = [batch(pa.array(["1", "2"])), batch(pa.array(["3", "{"]))]
    with pytest.raises(PayloadError, match="row 3 of partition 7 cannot be pushed"):
        encode_rows(given_rows, columns("json"), Settings(), WRITE, 7)
