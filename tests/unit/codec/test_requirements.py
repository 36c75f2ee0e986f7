"""An object of format 2 says what its readers must know; the entries of segments are checked."""

from __future__ import annotations

from copy import deepcopy
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from bucketq.codec.decode import decode
from bucketq.codec.document import Document
from bucketq.codec.heading import read_heading
from bucketq.errors import CorruptStateError, NewerFormatError
from bucketq.model.segments import SegmentRecord
from tests.unit.codec.objects import NOW, WHERE, content_of, job, rest_of, small_state, stamped

ENTRY: dict[str, Any] = {
    "id": "00000000000000000105-9f86d081884c7d65",
    "class": "ready",
    "seq": 5,
    "last": 9,
    "rows": 5,
    "live": 3,
    "bytes": 900,
    "index": 300,
    "crc32": "5f1c0b3a",
    "at": "2024-05-17T12:00:00Z",
    "gone": [[0, 0], [3, 3]],
}


LINE = msgspec.json.encode(ENTRY)


def deep_document() -> Document:
    """The small queue with one segment."""
    state = small_state()
    state.next_seq = 10
    state.cold.rows.add(msgspec.convert(ENTRY, SegmentRecord))
    state.requires["segments"] = None
    return Document(state)


def deep_body() -> bytes:
    return deep_document().prepare("commit-1").body


def with_entry(line: bytes) -> bytes:
    """The same queue with another entry of its segment."""
    rest = rest_of(deep_body())
    assert rest.count(LINE) == 1
    return stamped(rest.replace(LINE, line), number=2)


def refusal(body: bytes, *, accept: bool = False) -> str:
    with pytest.raises(CorruptStateError) as caught:
        decode(body, WHERE, accept=accept)
    assert not isinstance(caught.value, NewerFormatError)
    return str(caught.value)


def test_an_object_is_format_1_until_it_requires_something() -> None:
    body = Document(small_state()).prepare("commit-1").body
    assert body.startswith(b'{"format":1,')
    assert b"requires" not in body
    assert b"segments" not in body
    assert deep_body().startswith(b'{"format":2,')
    assert b'"requires":["segments"],' in deep_body().split(b"\n")[1]


def test_an_object_with_segments_is_read_and_written_as_it_was() -> None:
    document = decode(deep_body(), WHERE)
    assert list(document.state.requires) == ["segments"]
    (segment,) = document.state.cold.rows.segments.values()
    assert msgspec.json.encode(segment.entry()) == LINE
    assert document.state.jobs_count == 4 + 3
    body = document.prepare("commit-2").body
    assert body.split(b"\n")[2:] == deep_body().split(b"\n")[2:]
    assert content_of(decode(body, WHERE).state) == content_of(document.state)


def test_an_object_stays_format_2_when_its_segments_are_gone() -> None:
    document = decode(deep_body(), WHERE)
    (segment,) = document.state.cold.rows.segments.values()
    document.state.cold.rows.drop(segment)
    body = document.prepare("commit-2").body
    assert body.startswith(b'{"format":2,')
    assert b'"segments":[' not in body
    assert list(decode(body, WHERE).state.requires) == ["segments"]


@pytest.mark.parametrize("accept", [False, True])
@pytest.mark.parametrize("required", [b'"segments","news"', b'"news"', b'"news","more"'])
def test_an_object_that_requires_something_unknown_is_refused(
    required: bytes, *, accept: bool
) -> None:
    body = stamped(rest_of(deep_body()).replace(b'["segments"]', b"[" + required + b"]"), number=2)
    message = r"requires news.*, which this bucketq does not know: upgrade bucketq; .* left as it"
    with pytest.raises(NewerFormatError, match=message):
        decode(body, WHERE, accept=accept)


def test_a_broker_is_found_whatever_the_object_requires() -> None:
    heading = read_heading(deep_body(), WHERE)
    state = deep_document().state
    assert (heading.incarnation, heading.broker) == (state.incarnation, state.broker)
    newer = rest_of(deep_body()).replace(b'["segments"]', b'["segments","news"]')
    assert read_heading(stamped(newer, number=2), WHERE) == heading


def test_what_is_required_is_found_whatever_the_rest_looks_like() -> None:
    with pytest.raises(NewerFormatError, match="requires news"):
        decode(b'{"format":2,"jobs":{"by":"id"},"requires":["news"]}', WHERE)


@pytest.mark.parametrize("accept", [False, True])
@pytest.mark.parametrize(
    ("old", "new", "number"),
    [
        (b'"requires":["segments"],', b"", 2),
        (b'["segments"]', b"[]", 2),
        (b'["segments"]', b'["segments"]', 1),
        (b'"requires":["segments"],', b"", 1),
    ],
)
def test_a_format_that_does_not_fit_what_is_required_is_refused(
    old: bytes, new: bytes, number: int, *, accept: bool
) -> None:
    body = stamped(rest_of(deep_body()).replace(old, new), number=number)
    assert f"format {number} does not fit what it requires" in refusal(body, accept=accept)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"id": "queue.json"}, "has no id of its own"),
        ({"id": "00000000000000000105-9F86D081884C7D65"}, "has no id of its own"),
        ({"id": "../00000000000000000105-9f86d081884c7d65"}, "has no id of its own"),
        ({"last": 10}, "goes up to 10"),
        ({"live": 4}, "do not fit"),
        ({"gone": [[0, 4]], "live": 0}, "do not fit"),
        ({"gone": [[4, 5]]}, "do not fit"),
        ({"at": "2024-05-17T12:00:00"}, "has a time without a zone"),
    ],
)
def test_an_entry_that_contradicts_itself_is_refused(changes: dict[str, Any], reason: str) -> None:
    message = refusal(with_entry(msgspec.json.encode(ENTRY | changes)))
    assert "segments[0]" in message
    assert reason in message


@pytest.mark.parametrize("gone", [[[3, 2]], [[0, 1], [1, 1]], [[2, 3], [0, 0]]])
def test_ranges_that_are_out_of_order_are_refused(gone: list[list[int]]) -> None:
    assert "out of order" in refusal(with_entry(msgspec.json.encode(ENTRY | {"gone": gone})))


def test_two_entries_of_one_segment_are_refused() -> None:
    assert "has no id of its own" in refusal(with_entry(LINE + b",\n" + LINE))


def test_an_unknown_field_of_an_entry_is_kept_until_the_segment_leaves() -> None:
    line = LINE.replace(b'"class":"ready"', b'"class":"ready","news":[1.50]')
    document = decode(with_entry(line), WHERE)
    segment = next(iter(document.state.cold.rows.segments.values()))
    segment.leave(1, 1)
    document.state.cold.rows.is_touched = True
    body = document.prepare("commit-2").body
    assert b'"gone":[[0,1],[3,3]],"news":[1.50]}' in body
    document = decode(body, WHERE)
    document.state.cold.rows.drop(next(iter(document.state.cold.rows.segments.values())))
    assert b"news" not in document.prepare("commit-3").body


def test_entries_are_written_in_the_order_of_class_number_and_id() -> None:
    document = deep_document()
    state, other = document.state, deepcopy(ENTRY)
    for cls, seq, name in [
        ("later", 1, "a"),
        ("dead", 7, "b"),
        ("ready", 5, "8"),
        ("keys", 9, "c"),
    ]:
        other |= {"class": cls, "seq": seq, "id": f"00000000000000000105-{name * 16}"}
        state.cold.rows.add(msgspec.convert(other, SegmentRecord))
    content = msgspec.json.decode(document.prepare("commit-1").body)
    order = [(each["class"], each["seq"], each["id"][-1]) for each in content["segments"]]
    assert order == [
        ("dead", 7, "b"),
        ("keys", 9, "c"),
        ("later", 1, "a"),
        ("ready", 5, "8"),
        ("ready", 5, "5"),
    ]


def test_a_job_of_a_segment_that_is_pushed_behind_others_keeps_the_table_in_order() -> None:
    document = decode(deep_body(), WHERE)
    document.state.jobs.insert([job(6, pushed_at=NOW + timedelta(seconds=1))])
    rows = msgspec.json.decode(document.prepare("commit-2").body)["jobs"]
    assert [row["seq"] for row in rows] == [1, 2, 3, 4, 6]
