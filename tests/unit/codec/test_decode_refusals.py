"""Whatever is wrong with an object, it is refused with the reason, and never taken for empty."""

from __future__ import annotations

import json
import re
from copy import deepcopy
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bucketq.codec.decode import decode
from bucketq.codec.document import Document
from bucketq.errors import CorruptStateError, NewerFormatError
from bucketq.model.operations import Claim, List, ReadStats, Request, Tidy
from bucketq.model.transitions import apply
from tests.unit.codec.objects import (
    NOW,
    WHERE,
    content_of,
    edited,
    rest_of,
    small_body,
    small_state,
    stamped,
    written,
)

BODY = small_body()
CONTENT: dict[str, Any] = json.loads(BODY)


def refusal(body: bytes, *, accept: bool = False) -> str:
    """The message with which an object is refused."""
    with pytest.raises(CorruptStateError) as caught:
        decode(body, WHERE, accept=accept)
    assert not isinstance(caught.value, NewerFormatError)
    message = str(caught.value)
    assert message.startswith(f"{WHERE} is not a queue that can be trusted: ")
    assert "left as it is" in message
    return message


def test_the_object_that_is_damaged_below_is_readable_to_begin_with() -> None:
    assert content_of(decode(BODY, WHERE).state)["jobs"]
    assert content_of(decode(written(CONTENT), WHERE).state) == content_of(
        decode(BODY, WHERE).state
    )


def test_an_empty_object_is_refused() -> None:
    assert "it is empty" in refusal(b"")


@pytest.mark.parametrize(
    "body", [b"\n", b" ", b"\0", b"queue", b"<xml/>", b"{", b"{]", b"\xff\xfe"]
)
def test_what_is_not_json_is_refused_with_the_place(body: bytes) -> None:
    assert re.search(r"not valid JSON at line \d+, column \d+", refusal(body))
    refusal(body, accept=True)


@pytest.mark.parametrize(
    "body", [b"{}", b"[]", b"null", b"0", b'""', b"[{}]", b'{"jobs":[]}', b'{"version":3}', b"{}\n"]
)
def test_json_of_another_kind_is_refused(body: bytes) -> None:
    assert "it is JSON, but not a bucketq queue" in refusal(body)
    refusal(body, accept=True)


def test_an_object_that_is_truncated_anywhere_is_refused() -> None:
    for length in range(len(BODY)):
        refusal(BODY[:length])
    assert "truncated at byte 500" in refusal(BODY[:500])


def test_not_even_accepting_it_lets_a_truncated_object_through() -> None:
    for length in range(len(BODY) - 1):
        refusal(BODY[:length], accept=True)
    assert decode(BODY[:-1], WHERE, accept=True).state.version == 1  # Only the last line break.


def test_an_object_in_which_a_single_bit_flipped_is_refused() -> None:
    for at in range(len(BODY)):
        for bit in range(8):
            damaged = bytearray(BODY)
            damaged[at] ^= 1 << bit
            with pytest.raises(CorruptStateError):
                decode(bytes(damaged), WHERE)


def test_an_object_with_any_other_byte_in_its_first_line_is_refused() -> None:
    for at in range(BODY.index(b"\n") + 1):
        for byte in range(256):
            damaged = BODY[:at] + bytes([byte]) + BODY[at + 1 :]
            if damaged != BODY:
                with pytest.raises(CorruptStateError):
                    decode(damaged, WHERE)


def test_accepting_damage_takes_it_or_refuses_it_and_nothing_else() -> None:
    for at in range(len(BODY)):
        for byte in (0x22, 0x31, 0x7D, 0xFF):
            damaged = BODY[:at] + bytes([byte]) + BODY[at + 1 :]
            try:
                document = decode(damaged, WHERE, accept=True)
            except CorruptStateError:
                continue
            decode(document.prepare("commit-2").body, WHERE)


@pytest.mark.parametrize(
    "garbage", [b"\n", b" ", b"\0", b"}", BODY, b'{"format":1}', b"\0" * 4096, b"x"]
)
def test_an_object_with_something_behind_it_is_refused(garbage: bytes) -> None:
    assert "changed by hand or damaged" in refusal(BODY + garbage)


def test_bytes_lost_in_the_middle_and_replaced_by_as_many_are_noticed() -> None:
    assert "changed by hand or damaged" in refusal(BODY[:600] + b"\0" * 100 + BODY[700:])


def test_refusing_a_valid_raw_edit_says_how_to_accept_it() -> None:
    message = refusal(BODY.replace(b'"page":1}', b'"page":9}'))
    assert "changed by hand or damaged" in message
    assert "not valid JSON" not in message
    assert "bucketq repair --accept" in message


@pytest.mark.parametrize(
    ("old", "new", "line", "column"),
    [
        (b'"version":1,"c', b'"version":1"c', 2, 12),
        (b'"id":"session-1",', b'"id":"session-1,', 4, None),
        (b'"id":"job-1","kind"', b'"id":"job-1";"kind"', 14, 14),
        (b'{"page":2}', b"{page:2}", 15, None),
        (b'{"page":3}', b'{"page":NaN}', 16, None),
        (b'{"page":4}', b'{"page":4', 18, 1),
        (b"\n]}\n", b"\n)\n]}\n", 18, 1),
    ],
)
@pytest.mark.parametrize("accept", [False, True])
def test_a_raw_edit_that_broke_the_json_is_refused_with_its_line(
    old: bytes, new: bytes, line: int, column: int | None, *, accept: bool
) -> None:
    assert BODY.count(old) == 1
    message = refusal(BODY.replace(old, new), accept=accept)
    found = re.search(r"not valid JSON at line (\d+), column (\d+)", message)
    assert found is not None, message
    assert int(found[1]) == line
    assert column is None or int(found[2]) == column


@pytest.mark.parametrize(
    "body",
    [
        stamped(rest_of(BODY), number=3),
        stamped(rest_of(BODY), number=999_999_999_999),
        b'{"format":3}',
        b'{"format":3,',
        b'{"format":3,\0\xff garbage',
        b'{ "format" : 3 ,\n "jobs": {"by": "id"}}',
        b'{"format":3,"jobs":' + b"[" * 100_000,
        b'{"jobs":{"by":"id"},"format":3}',
        json.dumps(CONTENT | {"format": 4}, indent=2, sort_keys=True).encode(),
    ],
    ids=ascii,
)
@pytest.mark.parametrize("accept", [False, True])
def test_a_newer_format_is_refused_as_such_whatever_the_rest_looks_like(
    body: bytes, *, accept: bool
) -> None:
    with pytest.raises(NewerFormatError, match=r"has format \d+, .* up to 2: upgrade bucketq"):
        decode(body, WHERE, accept=accept)


@pytest.mark.parametrize("number", [0, -1, -999])
@pytest.mark.parametrize("accept", [False, True])
def test_a_format_that_never_was_is_refused(number: int, *, accept: bool) -> None:
    assert f"no format {number}" in refusal(stamped(rest_of(BODY), number=number), accept=accept)


@pytest.mark.parametrize("value", [b"1.5", b'"1"', b"true", b"null", b"[1]", b"1e0", b"9" * 5000])
@pytest.mark.parametrize("accept", [False, True])
def test_a_format_that_is_not_a_number_is_refused(value: bytes, *, accept: bool) -> None:
    refusal(BODY.replace(b'{"format":1', b'{"format":' + value), accept=accept)


def test_a_first_line_that_was_formatted_is_refused_as_a_change_by_hand() -> None:
    body = BODY.replace(b'{"format":1,', b'{ "format": 1,')
    assert "changed by hand: its first line" in refusal(body)


WRONG = [
    ("version", "1", "$.version"),
    ("version", 0, "version 0"),
    ("commit", "commit-9", "does not fit its commits"),
    ("commits", [], "does not fit its commits"),
    ("commits", [1], "$.commits[0]"),
    ("incarnation", None, "$.incarnation"),
    ("created_at", "yesterday", "$.created_at"),
    ("created_at", "2024-05-17T12:00:00", "created_at is a time without a zone"),
    ("broker", {}, "$.broker"),
    ("broker", [], "$.broker"),
    ("settings", None, "$.settings"),
    ("settings", {"lease_s": "long"}, "$.settings.lease_s"),
    ("settings", {"backoff": {"base": 1}}, "$.settings.backoff"),
    ("paused", 0, "$.paused"),
    ("paused_kinds", "index", "$.paused_kinds"),
    ("next_seq", 4, "next_seq is 4, but jobs have numbers up to 4"),
    ("next_seq", -1, "next_seq is -1"),
    ("horizon", 1.5, "$.horizon"),
    ("sessions", {}, "$.sessions"),
    ("keys", None, "$.keys"),
    ("jobs", [[]], "$.jobs[0]"),
    ("jobs", "none", "$.jobs"),
]
WRONG_IN_ROW = [
    ("jobs", 0, "status", "waiting", "$.jobs[0].status"),
    ("jobs", 1, "seq", "2", "$.jobs[1].seq"),
    ("jobs", 1, "id", 7, ""),
    ("jobs", 2, "pushed_at", 1715947200, "$.jobs[2].pushed_at"),
    ("jobs", 2, "errors", [{"at": "2024-05-17T12:00:00Z"}], "$.jobs[2].errors[0]"),
    ("jobs", 0, "tags", {"a": 1}, "$.jobs[0].tags"),
    ("jobs", 0, "pushed_at", "2024-05-17T12:00:00", "jobs[0] (job-1) has a time without a zone"),
    ("jobs", 0, "run_at", "2024-05-17T12:00:00", "jobs[0] (job-1) has a time without a zone"),
    ("jobs", 1, "claimed_at", "2024-05-17T12:00:00", "jobs[1] (job-2) has a time without a zone"),
    ("jobs", 1, "heartbeat_at", "2024-05-17T12:00:00", "jobs[1] (job-2) has a time without"),
    ("jobs", 3, "finished_at", "2024-05-17T12:00:00", "jobs[3] (job-4) has a time without a zone"),
    ("jobs", 1, "lease", None, "jobs[1] (job-2) is running without a lease"),
    ("jobs", 1, "worker", None, "jobs[1] (job-2) is running without a lease and a worker"),
    ("jobs", 2, "outcome", None, "jobs[2] (job-3) is done without an outcome"),
    ("jobs", 2, "finished_at", None, "jobs[2] (job-3) is done without an outcome and a time"),
    ("jobs", 1, "id", "job-1", "jobs[1] has the id of jobs[0], 'job-1'"),
    ("jobs", 2, "seq", 2, "jobs[2] (job-3): number 2 follows number 2"),
    ("jobs", 1, "seq", 9, ""),
    ("jobs", 0, "seq", -1, "jobs[0] (job-1): number -1"),
    ("jobs", 3, "seq", 77, "jobs have numbers up to 77"),
    ("sessions", 0, "done", [[1]], "sessions[0] (session-1): done must be pairs"),
    ("sessions", 0, "done", [[1, 2, 3]], "sessions[0] (session-1): done must be pairs"),
    ("sessions", 0, "done", [[3, 1]], "sessions[0] (session-1): done must be pairs"),
    ("sessions", 0, "answers", {"one": 1}, "$.sessions[0].answers"),
    ("sessions", 0, "digests", {"one": "00"}, "$.sessions[0].digests"),
    ("sessions", 0, "at", "2024-05-17T12:00:00", "sessions[0].at is a time without a zone"),
    ("keys", 0, "at", "2024-05-17T12:00:00", "keys[0].at is a time without a zone"),
    ("keys", 0, "seq", None, "$.keys[0].seq"),
    ("tokens", 0, "created_at", "2024-05-17T12:00:00", "tokens[0].created_at is a time without"),
    ("tokens", 0, "expires_at", "2024-05-17T12:00:00", "tokens[0].expires_at is a time without"),
    ("tokens", 0, "rights", ["push", "everything"], "$.tokens[0].rights[1]"),
    ("tokens", 0, "rights", "push", "$.tokens[0].rights"),
    ("tokens", 0, "digest", None, "$.tokens[0].digest"),
    ("consumers", 0, "at", "2024-05-17T12:00:00", "consumers[0].at is a time without a zone"),
    ("consumers", 0, "epoch", 0, "consumers[0] (consumer-1) has an epoch or a batch below"),
    ("consumers", 0, "batch", -1, "consumers[0] (consumer-1) has an epoch or a batch below"),
    ("consumers", 0, "batch", 0, "consumers[0] (consumer-1) has jobs without a batch"),
    ("consumers", 0, "secret", "", "consumers[0] (consumer-1) has jobs without a batch"),
    ("consumers", 0, "jobs", ["job-2", "job-2"], "consumers[0] (consumer-1) has a job twice"),
    ("consumers", 0, "jobs", "job-2", "$.consumers[0].jobs"),
    ("writers", 0, "at", "2024-05-17T12:00:00", "writers[0].at is a time without a zone"),
    ("writers", 0, "part", "one", "$.writers[0].part"),
    ("jobs", 1, "lease_s", "long", "$.jobs[1].lease_s"),
]


@pytest.mark.parametrize("accept", [False, True])
@pytest.mark.parametrize(("field", "value", "place"), WRONG)
def test_a_wrong_value_is_refused_with_its_place(
    field: str, value: object, place: str, *, accept: bool
) -> None:
    assert place in refusal(written(CONTENT | {field: value}), accept=accept)


@pytest.mark.parametrize("accept", [False, True])
@pytest.mark.parametrize(("table", "index", "field", "value", "place"), WRONG_IN_ROW)
def test_a_wrong_value_in_a_row_is_refused_with_its_place(
    table: str, index: int, field: str, value: object, place: str, *, accept: bool
) -> None:
    content = deepcopy(CONTENT)
    content[table][index][field] = value
    assert place in refusal(written(content), accept=accept)


@pytest.mark.parametrize("field", [*CONTENT])
def test_a_field_of_the_object_that_is_missing_is_named(field: str) -> None:
    rest = {name: value for name, value in CONTENT.items() if name != field}
    if field in {"format", "checksum", "bytes", "tokens", "consumers", "writers"}:
        return
    assert f"missing required field `{field}`" in refusal(written(rest))


@pytest.mark.parametrize("table", ["sessions", "keys", "tokens", "consumers", "writers", "jobs"])
def test_a_field_of_a_row_that_is_missing_is_named(table: str) -> None:
    for field in ("id", "seq"):
        content = deepcopy(CONTENT)
        del content[table][0][field]
        message = refusal(written(content))
        assert f"missing required field `{field}`" in message
        assert f"$.{table}[0]" in message


@pytest.mark.parametrize("table", ["sessions", "keys", "tokens", "consumers", "writers", "jobs"])
def test_rows_that_stand_twice_or_out_of_order_are_refused(table: str) -> None:
    content = deepcopy(CONTENT)
    row = content[table][0]
    content[table] = [row, row]
    assert f"{table}[1] has the id of {table}[0]" in refusal(written(content))
    content[table] = [row | {"id": "other", "seq": row["seq"] + 1}, row]
    assert f"{table}[1] (" in refusal(written(content))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b'"id":"job-1"', b'"id":"\\ud800"'),
        (b'"id":"job-1"', b'"id":"\\udc00 low first"'),
        (b'"id":"job-1"', b'"id":"\\ud800\\u0041"'),
        (b'{"page":1}', b'"\\ud800 alone"'),
        (b'{"page":1}', b'{"\\ud800\\n":1}'),
        (b'"id":"job-1"', b'"id":"\xed\xa0\x80"'),
        (b'{"page":1}', b'"\xed\xa0\x80"'),
        (b'"id":"job-1"', b'"id":"\xff"'),
        (b'{"page":1}', b'"\xff"'),
        (b'{"page":1}', b'"\xc3"'),
        (b'{"page":1}', b'"\xc0\x80"'),
        (b'{"page":1}', b"NaN"),
        (b'{"page":1}', b"[Infinity]"),
        (b'{"page":1}', b"-Infinity"),
        (b'{"page":1}', b"0x10"),
        (b'{"page":1}', b"01"),
        (b'{"page":1}', b"'1'"),
        (b'{"page":1}', b"[1,]"),
        (b'{"page":1}', b'"a\nb"'),
        (b'{"page":1}', b'"\0"'),
        (b'{"page":1}', b"// one\n1"),
    ],
)
@pytest.mark.parametrize("accept", [False, True])
def test_invalid_text_or_values_are_refused_with_their_line(
    old: bytes, new: bytes, *, accept: bool
) -> None:
    assert re.search(
        r"not valid JSON at line 1[45],", refusal(edited(BODY, old, new), accept=accept)
    )


@pytest.mark.parametrize(("opening", "closing"), [(b"[", b"]"), (b'{"a":', b"}")])
@pytest.mark.parametrize("closed", [True, False])
@pytest.mark.parametrize("accept", [False, True])
def test_hostile_nesting_is_refused_wherever_it_stands(
    opening: bytes, closing: bytes, *, closed: bool, accept: bool
) -> None:
    deep = opening * 100_000 + (b"1" + closing * 100_000 if closed else b"")
    refusal(deep, accept=accept)
    places = [
        (b'{"page":1}', deep),
        (b'"version":1,"c', b'"unknown":' + deep + b',"version":1,"c'),
        (b'"id":"job-1"', b'"unknown":' + deep + b',"id":"job-1"'),
        (b'"id":"job-1"', b'"unknown":1,"id":' + deep),
        (b'["job-1"]', deep),
        (b'"settings":{}', b'"settings":{"unknown":' + deep + b"}"),
    ]
    for old, new in places:
        body = edited(BODY, old, new)
        refusal(body, accept=accept)
        refusal(body + b" ", accept=accept)


def test_settings_that_make_no_sense_are_not_accepted_from_an_editor() -> None:
    body = written(CONTENT | {"settings": {"lease_s": -5.0}})
    assert "lease_s must be between" in refusal(body, accept=True)
    body = written(CONTENT | {"settings": {"backoff": {"factor": 0.5}}})
    assert "factor >= 1" in refusal(body, accept=True)


@given(st.binary(max_size=60))
def test_no_bytes_whatever_raise_anything_else(body: bytes) -> None:
    for candidate in (body, stamped(body), b"{" + body, BODY[:60] + body):
        for accept in (False, True):
            with pytest.raises(CorruptStateError):
                decode(candidate, WHERE, accept=accept)


values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.sampled_from(["", "done", "running", "job-1", "2024-05-17T12:00:00Z", "2024-05-17"])
    | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=5,
)


@settings(max_examples=150)
@given(st.data())
def test_content_in_which_anything_was_replaced_is_refused_or_served(data: st.DataObject) -> None:
    content = deepcopy(CONTENT)
    place: Any = content
    while isinstance(place, dict | list) and place:
        choices = list(place) if isinstance(place, dict) else list(range(len(place)))
        key = data.draw(st.sampled_from(choices))
        if not isinstance(place[key], dict | list) or data.draw(st.booleans()):
            place[key] = data.draw(values)
            break
        place = place[key]
    for accept in (False, True):
        try:
            document = decode(written(content), WHERE, accept=accept)
        except CorruptStateError:
            continue
        check_served(document)


def check_served(document: Document) -> None:
    """Check that a queue which was let through can be worked with, and written."""
    claim = Claim(worker="w", secret="0" * 32, limit=5)
    for operation in (Tidy(), ReadStats(), List(), claim):
        apply(document.state, Request(operation, session="session-1", number=9), NOW)
    decode(document.prepare("commit-2").body, WHERE)


def test_the_state_of_the_object_above_can_be_served() -> None:
    check_served(Document(small_state()))


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"hashes": "AAAA"}, r"results\[0\] \(1\) does not have as many hashes as results"),
        ({"hashes": "?"}, r"results\[0\] \(1\) does not have as many hashes"),
        ({"files": []}, r"results\[0\] \(1\) names neither archive files nor an object"),
        ({"at": "2026-01-01T00:00:00"}, r"results\[0\].at is a time without a zone"),
        ({"seq": 0.5}, r"results\[0\]"),
    ],
)
def test_rows_on_results_that_cannot_be_used_are_refused(
    change: dict[str, object], reason: str
) -> None:
    row = {"id": "1", "seq": 1, "at": "2026-01-01T00:00:00Z", "count": 1, "files": ["f"]}
    sound = CONTENT | {"results": [row | {"hashes": "AAAAAA=="}]}
    assert decode(written(sound), WHERE).state.results.count == 1
    assert re.search(
        reason, refusal(written(CONTENT | {"results": [sound["results"][0] | change]}))
    )
