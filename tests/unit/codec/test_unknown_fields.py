"""What a newer bucketq of the same format added is kept; what a person laid out is understood."""

from __future__ import annotations

import json
from typing import Any

import pytest
from msgspec import Raw, structs

from bucketq.codec.decode import decode
from bucketq.codec.document import Document
from bucketq.errors import CorruptStateError
from bucketq.model.base import NewJob
from bucketq.model.operations import (
    AnyOperation,
    Claim,
    Complete,
    Configure,
    Push,
    Request,
)
from bucketq.model.records import BrokerRecord
from bucketq.model.state import State
from bucketq.model.transitions import apply
from tests.unit.codec.objects import (
    NOW,
    WHERE,
    content_of,
    done,
    edited,
    job,
    rest_of,
    small_body,
    small_state,
    stamped,
)

NEWS = b'"news":{"a":[1.50,"\\u00e9\xc3\xa9",null],"b":{}},"more":12345678901234567890123'
VALUE: dict[str, Any] = json.loads(b"{" + NEWS + b"}")

FAILURE = b'{"at":"2024-05-17T12:00:00Z","attempt":1,"cause":"lost","error":"","news":1}'

PLACES = {
    "head": b'"version":1,"commit"',
    "settings": b'"settings":{',
    "broker": b'"broker":{',
    "job": b'{"id":"job-1",',
    "running job": b'{"id":"job-2",',
    "key": b'{"id":"key-1",',
    "session": b'{"id":"session-1",',
    "token": b'{"id":"00000001",',
    "consumer": b'{"id":"consumer-1",',
    "writer": b'{"id":"writer-1",',
}


def with_news(*places: str) -> bytes:
    """The small queue with unknown fields."""
    body = small_body()
    for place in places:
        old = PLACES[place]
        if place == "head":
            body = edited(body, old, NEWS + b"," + old)
        elif place == "settings":
            body = edited(body, b'"settings":{}', b'"settings":{' + NEWS + b',"lease_s":60.0}')
        else:
            at = old.index(b"{") + 1
            body = edited(body, old, old[:at] + NEWS + b"," + old[at:])
    return body


def object_at(content: dict[str, Any], place: str) -> dict[str, Any]:
    """The part of the object that a place means."""
    if place == "head":
        return content
    if place in {"settings", "broker"}:
        found = content[place]
    else:
        table, index = {
            "job": ("jobs", 0),
            "running job": ("jobs", 1),
            "key": ("keys", 0),
            "session": ("sessions", 0),
            "token": ("tokens", 0),
            "consumer": ("consumers", 0),
            "writer": ("writers", 0),
        }[place]
        found = content[table][index]
    assert isinstance(found, dict)
    return found


def change_all(state: State) -> None:
    """Change the head, the settings, every job and the session."""
    operations: tuple[AnyOperation, ...] = (
        Claim(worker="w", secret="0" * 32),
        Complete(job="job-2", lease="lease-2"),
        Configure(changes={"max_attempts": 9}),
        Push(jobs=(NewJob(id="job-5", kind="mail", payload=Raw(b"5"), key="key-5"),)),
    )
    for number, operation in enumerate(operations, start=10):
        apply(state, Request(operation, session="session-1", number=number), NOW).result()
    assert state.broker is not None
    state.broker = structs.replace(state.broker, epoch=8)
    assert state.jobs.by_id["job-1"].status == "running"
    assert state.jobs.by_id["job-2"].status == "done"


def check_kept(content: dict[str, Any], *places: str) -> None:
    for place in PLACES:
        found = object_at(content, place)
        kept = {name: found[name] for name in VALUE if name in found}
        assert kept == (VALUE if place in places else {}), place


@pytest.mark.parametrize("changed", [False, True])
@pytest.mark.parametrize("place", [*PLACES])
def test_an_unknown_field_is_kept_through_reading_and_writing(place: str, *, changed: bool) -> None:
    document = decode(with_news(place), WHERE)
    for number in range(2, 5):
        if changed and number == 3:
            change_all(document.state)
        body = document.prepare(f"commit-{number}").body
        check_kept(json.loads(body), place)
        assert NEWS in body, "it is kept byte for byte"
        document = decode(body, WHERE)


def test_unknown_fields_everywhere_are_kept_together_while_everything_changes() -> None:
    document = decode(with_news(*PLACES), WHERE)
    known = content_of(decode(small_body(), WHERE).state)
    read = content_of(document.state)
    assert read["jobs"] == known["jobs"]
    assert read["sessions"] == known["sessions"]
    assert read["settings"].lease_s == 60
    change_all(document.state)
    first = document.prepare("commit-2").body
    second = decode(first, WHERE).prepare("commit-3").body
    for body in (first, second):
        content = json.loads(body)
        check_kept(content, *PLACES)
        assert content["jobs"][4]["id"] == "job-5"
        assert content["settings"]["max_attempts"] == 9
        assert content["broker"]["epoch"] == 8
    # A job, a key, and the table with what the operator has done.
    assert len(second.split(b"\n")) == len(small_body().split(b"\n")) + 4


def test_incremental_and_fresh_encoding_agree_with_unknown_fields() -> None:
    document = decode(with_news(*PLACES), WHERE)
    body = document.prepare("commit-2").body
    fresh = decode(body, WHERE)
    for one in (document, fresh):
        one.state.put_job(done(1, id="job-1"))
    assert document.prepare("commit-3").body == fresh.prepare("commit-3").body


def test_the_unknown_fields_of_a_row_that_left_do_not_come_back_with_another() -> None:
    document = decode(with_news("key", "job"), WHERE)
    document.state.forget_key("key-1")
    document.state.jobs.remove("job-1")
    document.prepare("commit-2")
    document.state.put_key("key-1", "job-9", "digest-9", NOW)
    document.state.put_job(job(5, id="job-1"))
    document.state.next_seq = 6
    check_kept(json.loads(document.prepare("commit-3").body))
    assert document.state.extra == {}


def test_the_unknown_fields_of_a_broker_do_not_pass_to_the_next() -> None:
    document = decode(with_news("broker", "head"), WHERE)
    document.state.broker = BrokerRecord("10.0.0.43:3000", "broker-2", 8, NOW)
    check_kept(json.loads(document.prepare("commit-2").body), "head")
    document.state.broker = None
    assert json.loads(document.prepare("commit-3").body)["broker"] is None
    assert [*document.state.extra] == [("head", "")]


def test_an_unknown_field_with_line_breaks_in_it_is_written_on_one_line() -> None:
    body = edited(small_body(), b'{"id":"job-1",', b'{"news":{\n"a":\n1},"id":"job-1",')
    body = decode(body, WHERE).prepare("commit-2").body
    assert b',"news":{"a":1}}' in body
    assert len(body.split(b"\n")) == len(small_body().split(b"\n"))


def test_a_queue_with_unknown_fields_is_taken_over_line_by_line_as_well() -> None:
    first = decode(with_news(*PLACES), WHERE).prepare("commit-2").body
    second = decode(first, WHERE).prepare("commit-3").body
    assert first.split(b"\n")[2:] == second.split(b"\n")[2:]


@pytest.mark.parametrize(
    ("old", "new", "place"),
    [
        (b'"settings":{}', b'"settings":{"backoff":{"news":1}}', "$.settings.backoff"),
        (b'"attempt":5', b'"attempt":5,"backoff":{"news":1}', "$.jobs[3].backoff"),
        (
            b'"attempt":5',
            b'"attempt":5,"errors":[' + FAILURE + b"]",
            "$.jobs[3].errors[0]",
        ),
    ],
)
def test_an_unknown_field_that_cannot_be_kept_is_refused_and_not_dropped(
    old: bytes, new: bytes, place: str
) -> None:
    with pytest.raises(CorruptStateError) as caught:
        decode(edited(small_body(), old, new), WHERE)
    assert "unknown field `news`" in str(caught.value)
    assert place in str(caught.value)


def test_what_is_wrong_beside_an_unknown_field_is_refused_with_its_place() -> None:
    body = edited(with_news("job"), b'"seq":3', b'"seq":"3"')
    with pytest.raises(CorruptStateError, match=r"\$\.jobs\[2\]\.seq"):
        decode(body, WHERE)


@pytest.mark.parametrize("indent", [None, 0, 2, "\t"])
@pytest.mark.parametrize("sort", [False, True])
@pytest.mark.parametrize("news", [False, True])
def test_an_object_that_was_formatted_is_accepted_and_written_as_ours(
    indent: int | str | None, *, sort: bool, news: bool
) -> None:
    original = with_news(*PLACES) if news else small_body()
    content = json.loads(original)
    formatted = json.dumps(content, indent=indent, sort_keys=sort, ensure_ascii=False).encode()
    with pytest.raises(CorruptStateError):
        decode(formatted, WHERE)
    accepted = decode(formatted, WHERE, accept=True)
    expected = content_of(decode(original, WHERE).state)
    assert content_of(accepted.state) | {"extra": None} == expected | {"extra": None}
    body = accepted.prepare("commit-2").body
    if not news:
        assert body == decode(original, WHERE).prepare("commit-2").body
    assert len(body.split(b"\n")) == len(small_body().split(b"\n"))
    assert json.loads(body)["jobs"] == content["jobs"]
    check_kept(json.loads(body), *(PLACES if news else ()))
    decode(body, WHERE)


def test_an_edit_that_is_accepted_takes_effect_and_is_stamped() -> None:
    changed = small_body().replace(b'{"page":1}', b'{\n  "page": 10,\n\n  "of": [ 1,\n 2 ]\n}')
    document = decode(changed, WHERE, accept=True)
    assert bytes(document.state.jobs.by_id["job-1"].payload) == b'{"page":10,"of":[1,2]}'
    body = document.prepare("commit-2").body
    assert b'"payload":{"page":10,"of":[1,2]},' in body
    assert decode(body, WHERE).state.jobs.by_id["job-1"] == document.state.jobs.by_id["job-1"]


def test_an_intact_object_is_accepted_as_well() -> None:
    body = small_body()
    accepted, read = decode(body, WHERE, accept=True), decode(body, WHERE)
    assert content_of(accepted.state) == content_of(read.state)
    assert accepted.prepare("commit-2").body == read.prepare("commit-2").body


def test_an_object_without_its_checksum_is_accepted_only_when_told() -> None:
    body = b"{" + b'"format":1,' + rest_of(small_body())
    with pytest.raises(CorruptStateError, match="first line"):
        decode(body, WHERE)
    assert decode(body, WHERE, accept=True).state.version == 1


def test_a_field_that_says_its_default_is_read_and_then_left_out() -> None:
    body = edited(small_body(), b'{"page":1}', b'{"page":1},"priority":0,"tags":null')
    document = decode(body, WHERE)
    document.state.put_job(document.state.jobs.by_id["job-1"])
    expected = Document(small_state())
    expected.prepare("commit-1")
    assert document.prepare("commit-2").body == expected.prepare("commit-2").body


def test_the_order_of_fields_in_a_row_does_not_matter() -> None:
    content = json.loads(small_body())
    content["jobs"] = [dict(reversed(row.items())) for row in content["jobs"]]
    rest = json.dumps({k: content[k] for k in [*content][3:]}).encode()[1:]
    document = decode(stamped(rest), WHERE)
    assert [row.id for row in document.state.jobs] == ["job-1", "job-2", "job-3", "job-4"]


def test_tokens_that_an_older_writer_kept_in_the_head_go_back_to_their_table() -> None:
    body = small_body()
    tokens = json.loads(body)["tokens"]
    line = json.dumps(tokens, separators=(",", ":")).encode()
    rest = rest_of(body)
    start, end = rest.index(b'\n],"tokens":['), rest.index(b'\n],"consumers":[')
    older = stamped(rest[:start] + rest[end:])
    older = edited(older, PLACES["head"], b'"tokens":' + line + b"," + PLACES["head"])
    document = decode(older, WHERE)
    assert content_of(document.state) == content_of(decode(body, WHERE).state)
    written = document.prepare("commit-2").body
    assert written.count(b'"tokens":') == 1
    assert b'\n],"tokens":[\n{"id":"00000001",' in written
    assert json.loads(written)["tokens"] == tokens


def test_a_table_of_tokens_without_rows_is_read_and_left_out() -> None:
    rest = rest_of(small_body())
    start, end = rest.index(b'\n],"tokens":['), rest.index(b'\n],"consumers":[')
    document = decode(stamped(rest[:start] + b'\n],"tokens":[' + rest[end:]), WHERE)
    assert len(document.state.tokens) == 0
    written = document.prepare("commit-2").body
    assert b'"tokens"' not in written
    assert json.loads(written)["keys"] == json.loads(small_body())["keys"]


@pytest.mark.parametrize("behind", ["sessions", "keys", "tokens", "consumers", "writers", "jobs"])
def test_a_table_that_a_newer_writer_put_between_the_others_is_kept_once(behind: str) -> None:
    body, table = small_body(), b'\n],"news":[\n{"id":"n1","seq":1},\n{"id":"n2","seq":2}'
    following = {
        "sessions": b'\n],"keys":[',
        "keys": b'\n],"tokens":[',
        "tokens": b'\n],"consumers":[',
        "consumers": b'\n],"writers":[',
        "writers": b'\n],"jobs":[',
        "jobs": b"\n]}\n",
    }[behind]
    document = decode(edited(body, following, table + following), WHERE)
    written = document.prepare("commit-2").body
    assert written.count(b'"news"') == 1
    content = json.loads(written)
    assert [row["id"] for row in content.pop("news")] == ["n1", "n2"]
    assert content[behind] == json.loads(body)[behind]
