"""A line of the archive is cut into payload, result and the rest, however it was written."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from msgspec import Raw

from bucketq.archive.archive_lines import decode_line
from bucketq.archive.parquet_format import ArchivedRow, cut
from bucketq.model.records import JobRecord

TEXTS = st.sampled_from(['a,"payload":1', ',"result":{}', "}", "{", "[", "]}", '"', "\\", "ä", ""])
KEYS = st.sampled_from(["payload", "result", "x"])
VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 99) | TEXTS,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=8,
)
ABSENT = object()


def fields_of(payload: Any, result: Any, extra: Any, kind: str) -> dict[str, Any]:
    """A line as a dict, in the order in which a queue writes it."""
    job = JobRecord(
        id="a",
        kind=kind,
        status="done",
        seq=1,
        payload=Raw(msgspec.json.encode(payload)),
        pushed_at=datetime(2026, 2, 15, tzinfo=UTC),
        tags={"x": "0", "payload": "1", "result": "2"},
    )
    fields: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(job))
    if result is not ABSENT:
        fields["result"] = result
    if extra is not ABSENT:
        fields["newer"] = extra
    return fields


@given(
    VALUES,
    VALUES | st.just(ABSENT),
    VALUES | st.just(ABSENT),
    TEXTS.map(lambda text: f"k{text}"),
    st.integers(0, 9),
    st.booleans(),
)
@example({"x": 1}, {"result": {}}, {"result": {"result": {}}}, "index", 0, False)
@example(1, 1, {"payload": 1, "result": 1}, "index", 3, False)
@example("1", ABSENT, ABSENT, "index", 6, False)
def test_a_line_is_cut_into_what_it_is_made_of(
    payload: Any, result: Any, extra: Any, kind: str, turns: int, spaced: bool
) -> None:
    fields = fields_of(payload, result, extra, kind)
    names = list(fields)
    turned = {name: fields[name] for name in names[turns:] + names[:turns]}
    line = msgspec.json.encode(turned)
    if spaced:
        line = msgspec.json.format(line, indent=1)
    found = cut(ArchivedRow(decode_line(line), line))
    expected = dict(turned)
    assert msgspec.json.decode(found[0]) == expected.pop("payload")
    assert (found[1] is None) == (result is ABSENT)
    if found[1] is not None:
        assert msgspec.json.decode(found[1]) == expected.pop("result")
    assert msgspec.json.decode(found[2]) == expected


@pytest.mark.parametrize("result", [ABSENT, None, {"ok": [1, {"result": "}"}]}])
def test_a_line_of_a_queue_keeps_every_byte_of_the_rest(result: Any) -> None:
    fields = fields_of({"payload": [1, 2]}, result, ABSENT, "index")
    line = msgspec.json.encode(fields)
    rest = {name: value for name, value in fields.items() if name not in ("payload", "result")}
    assert cut(ArchivedRow(decode_line(line), line))[2].encode() == msgspec.json.encode(rest)


def test_of_a_key_that_stands_twice_the_last_counts() -> None:
    line = msgspec.json.encode(fields_of(12, 34, ABSENT, "index"))
    line = line[:-1] + b',"payload":1,"result":3}'
    job = decode_line(line)
    payload, result, rest = cut(ArchivedRow(job, line))
    assert (payload, result) == ("1", "3")
    assert decode_line(f'{rest[:-1]},"payload":{payload},"result":{result}}}'.encode()) == job
