"""A commit that encodes only what changed gives the bytes that encoding everything gives."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any
from zlib import crc32

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import Raw

from bucketq.codec import document
from bucketq.codec.decode import decode
from bucketq.codec.document import Document, _ChangeSection, _SegmentSection
from bucketq.codec.layout import END, OPENINGS
from bucketq.model.indexes.table import BLOCK_BITS
from bucketq.model.state import State
from tests.unit.codec.objects import (
    NOW,
    WHERE,
    consumer,
    content_of,
    done,
    edited,
    empty_state,
    job,
    rest_of,
    running,
    small_body,
    small_state,
    stamped,
    token,
    writer,
)
from tests.unit.codec.random_commits import Player, Step, remove_done, steps

BLOCK = 1 << BLOCK_BITS
GROUP_BITS = 1
GROUP = BLOCK << GROUP_BITS

FIRST_LINE = re.compile(rb'\{"format":1,"checksum":"crc32:([0-9a-f]{8})","bytes":([0-9]+),')


@pytest.fixture(scope="module", autouse=True)
def small_groups() -> Iterator[None]:
    """Let a group of blocks be small, so that a queue of a few hundred jobs has several."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(document, "_GROUP_BITS", GROUP_BITS)
        yield


# What is done to a queue between two commits: a verb, and a number that chooses its object.
@settings(max_examples=50)
@given(st.lists(st.lists(steps, max_size=8), min_size=1, max_size=8))
def test_commit_by_commit_the_bytes_are_those_of_a_fresh_start(commits: list[list[Step]]) -> None:
    document = Document(empty_state())
    body = document.prepare("commit-0").body
    kept = Player()
    for number, commit in enumerate(commits, start=1):
        before = kept.elapsed, kept.request
        kept.play(document.state, commit)
        next_body = document.prepare(f"commit-{number}").body
        adopted, bare = decode(body, WHERE), Document(decode(body, WHERE).state)
        for fresh in (adopted, bare):
            player = Player()
            player.elapsed, player.request = before
            player.play(fresh.state, commit)
            assert fresh.prepare(f"commit-{number}").body == next_body
        check_body(next_body, document.state)
        body = next_body


def check_body(body: bytes, state: State) -> None:
    """Check an object against the state, by nothing that the codec is made of."""
    first, rest = body.split(b"\n", 1)
    found = FIRST_LINE.fullmatch(first)
    assert found is not None
    assert (int(found[1], 16), int(found[2])) == (crc32(rest), len(rest))
    content = json.loads(body)
    assert [row["id"] for row in content["jobs"]] == [row.id for row in state.jobs]
    assert [row["seq"] for row in content["jobs"]] == [row.seq for row in state.jobs]
    lines = body.split(b"\n")
    sessions = 3
    keys = sessions + len(content["sessions"]) + 1
    jobs = keys + len(content["keys"]) + 1
    places = {"sessions": sessions, "keys": keys}
    for name, table in (
        ("tokens", state.tokens),
        ("consumers", state.consumers),
        ("writers", state.writers),
        ("audit", state.audit),
        ("workers", state.workers),
    ):
        assert (name in content) == (len(table) > 0)
        if name in content:
            assert lines[jobs - 1] == f'],"{name}":['.encode()
            places[name] = jobs
            jobs += len(content[name]) + 1
    places["jobs"] = jobs
    assert lines[sessions - 1] == b'"sessions":['
    assert lines[keys - 1] == b'],"keys":['
    assert lines[jobs - 1] == b'],"jobs":['
    for name, at in places.items():
        rows = lines[at : at + len(content[name])]
        assert [json.loads(row.removesuffix(b",")) for row in rows] == content[name]
    assert lines[jobs + len(content["jobs"]) :] == [b"]}", b""]
    assert content_of(decode(body, WHERE).state) == content_of(state)


def test_an_empty_queue_has_empty_tables() -> None:
    document = Document(empty_state())
    body = document.prepare("commit-1").body
    assert body.endswith(b'"sessions":[\n],"keys":[\n],"jobs":[\n]}\n')
    check_body(body, document.state)


def test_a_queue_that_became_empty_looks_like_one_that_was_never_filled() -> None:
    document = Document(empty_state())
    for seq in range(1, 200):
        document.state.put_job(done(seq))
    document.state.put_key("key", "job-1", "digest", NOW)
    document.state.put_row(token(1))
    document.state.put_row(consumer(1))
    document.state.put_row(writer(1))
    document.state.sessions.write("session", [(1, None, "00c0ffee")], NOW, version=1)
    document.state.next_seq = 200
    document.prepare("commit-1")
    document.state.forget("tokens", "00000001")
    document.state.forget("consumers", "consumer-1")
    document.state.forget("writers", "writer-1")
    remove_done(document.state, 200)
    document.state.forget_key("key")
    document.state.sessions.table.remove("session")
    body = document.prepare("commit-2").body
    assert body.endswith(b'"sessions":[\n],"keys":[\n],"jobs":[\n]}\n')
    check_body(body, document.state)


@pytest.fixture
def encoded(monkeypatch: pytest.MonkeyPatch) -> list[list[int]]:
    """The numbers of the rows of each block that is encoded."""
    blocks: list[list[int]] = []
    encode_rows = document._Section._encode_rows

    def spy(section: Any, state: State, rows: list[Any]) -> bytes:
        blocks.append([row.seq for row in rows])
        return encode_rows(section, state, rows)

    monkeypatch.setattr(document._Section, "_encode_rows", spy)
    return blocks


def large_document(count: int) -> Document:
    document = Document(empty_state())
    for seq in range(1, count + 1):
        document.state.put_job(done(seq) if seq % 2 else job(seq))
    document.state.next_seq = count + 1
    return document


def test_a_commit_encodes_the_blocks_that_were_touched_and_no_others(
    encoded: list[list[int]],
) -> None:
    document = large_document(4 * GROUP)
    document.prepare("commit-1")
    assert sum(map(len, encoded)) == 4 * GROUP
    encoded.clear()
    document.state.put_job(running(200))
    document.prepare("commit-2")
    assert encoded == [list(range(192, 256))]
    encoded.clear()
    document.prepare("commit-3")
    assert encoded == []


def test_a_queue_just_read_encodes_the_blocks_that_were_touched_and_no_others(
    encoded: list[list[int]],
) -> None:
    first = large_document(4 * GROUP)
    first.state.put_key("key-1", "job-1", "digest", NOW)
    first.state.sessions.write("session-1", [(1, None, "00c0ffee")], NOW, version=1)
    body = first.prepare("commit-1").body
    encoded.clear()
    document = decode(body, WHERE)
    document.state.put_job(running(4 * GROUP - 10))
    read_body = document.prepare("commit-2").body
    assert encoded == [list(range(4 * GROUP - BLOCK, 4 * GROUP))]
    first.state.put_job(running(4 * GROUP - 10))
    assert first.prepare("commit-2").body == read_body


@pytest.mark.parametrize(
    "gone",
    [
        range(1, BLOCK),
        range(1, 3 * BLOCK),
        range(BLOCK, 2 * BLOCK),
        range(GROUP - BLOCK, GROUP + BLOCK),
        range(4 * GROUP - BLOCK, 4 * GROUP + 1),
        range(BLOCK, 4 * GROUP),
        range(1, 4 * GROUP + 1),
        range(1, 4 * GROUP + 1, 2),
    ],
    ids=[
        "first block",
        "first blocks",
        "middle",
        "group edge",
        "end",
        "most",
        "all",
        "every other",
    ],
)
def test_rows_that_leave_take_their_blocks_with_them(gone: range) -> None:
    document = large_document(4 * GROUP)
    read = decode(document.prepare("commit-1").body, WHERE)
    for one in (document, read):
        for seq in gone:
            one.state.jobs.remove(f"job-{seq}")
    body = document.prepare("commit-2").body
    assert read.prepare("commit-2").body == body
    check_body(body, document.state)
    for one in (document, read):
        one.state.put_job(job(4 * GROUP + 1))
        one.state.next_seq = 4 * GROUP + 2
    body = document.prepare("commit-3").body
    assert read.prepare("commit-3").body == body
    check_body(body, document.state)


def test_prepared_bytes_do_not_follow_later_changes() -> None:
    document = Document(small_state())
    prepared = document.prepare("commit-1")
    copy = bytes(bytearray(prepared.body))
    document.state.put_job(done(1))
    document.prepare("commit-2")
    assert prepared.body == copy
    assert (prepared.version, prepared.commit) == (1, "commit-1")


def test_a_commit_moves_the_version_and_the_ring_and_forgets_the_changes() -> None:
    document = Document(small_state())
    for number in range(1, 100):
        prepared = document.prepare(f"commit-{number}")
    state = decode(prepared.body, WHERE).state
    assert state.version == 99
    assert list(state.commits) == [f"commit-{number}" for number in range(36, 100)]
    assert not document.state.has_changes
    assert document.state.size_bytes == state.size_bytes == len(prepared.body)


def test_a_payload_with_line_breaks_between_its_values_is_written_on_one_line() -> None:
    document = Document(small_state())
    broken = Raw(b'{\n  "a": [1,\n 2],\r\n "b": "kept  \\n as it is"\n}')
    document.state.put_job(job(1, payload=broken))
    body = document.prepare("commit-1").body
    assert b'"payload":{"a":[1,2],"b":"kept  \\n as it is"}' in body
    assert len(body.split(b"\n")) == len(small_body().split(b"\n"))
    decode(body, WHERE)


OTHER_LINES = [
    (b',\n{"id":"job-64"', b', \n{"id":"job-64"'),
    (b',\n{"id":"job-64"', b',{"id":"job-64"'),
    (b'{"id":"job-128","kind":"index"', b'{"kind":"index","id":"job-128"'),
    (b'{"id":"job-1",', b'{ "id":"job-1",'),
    (b"\n]}\n", b" ]}\n"),
    (b"\n]}\n", b"\n]\n}\n\n"),
    (b'\n],"keys"', b'],"keys"'),
    (b'\n],"jobs"', b'],\n"jobs"'),
]
OTHER_ROWS = [
    (b',\n{"id":"job-2"', b',{"id":"job-2"'),
    (b'{"page":100}', b'{\n"page":[\n],"jobs":[\n1]}'),
    (b'{"page":150}', b"[\n]"),
    (b'{"id":"job-2","kind":"index"', b'{"kind":"index","id":"job-2"'),
]


def medium_document() -> Document:
    document = large_document(3 * BLOCK - 20)
    document.state.put_key("key", "job-1", "digest", NOW)
    return document


@pytest.mark.parametrize(("old", "new"), OTHER_LINES + OTHER_ROWS)
def test_an_object_that_another_hand_laid_out_is_never_mixed_up_with_ours(
    old: bytes, new: bytes
) -> None:
    body = medium_document().prepare("commit-1").body
    other = decode(edited(body, old, new), WHERE)
    expected = content_of(other.state)
    for number in (150, 3, 64):
        row = other.state.jobs.by_id[f"job-{number}"]
        other.state.put_job(row)
        state = decode(other.prepare(f"commit-{number}").body, WHERE).state
        assert [plain_id(row) for row in content_of(state)["jobs"]] == [
            plain_id(row) for row in expected["jobs"]
        ]


def plain_id(row: dict[str, Any]) -> tuple[object, ...]:
    return row["id"], row["seq"], row["status"], b"".join(row["payload"].split())


@pytest.mark.parametrize(("old", "new"), OTHER_LINES)
def test_a_table_in_which_blocks_do_not_begin_as_ours_is_laid_out_anew(
    old: bytes, new: bytes
) -> None:
    body = medium_document().prepare("commit-1").body
    other = decode(edited(body, old, new), WHERE)
    assert other.prepare("commit-2").body == decode(body, WHERE).prepare("commit-2").body


def test_tables_in_another_order_are_put_into_ours() -> None:
    body = medium_document().prepare("commit-1").body
    head, rest = rest_of(body).split(OPENINGS["keys"])
    keys, jobs = rest.removesuffix(END).split(OPENINGS["jobs"])
    swapped = stamped(head + OPENINGS["jobs"] + jobs + OPENINGS["keys"] + keys + END)
    other = decode(swapped, WHERE).prepare("commit-2").body
    assert other == decode(body, WHERE).prepare("commit-2").body


def test_rows_are_kept_as_parts_of_the_last_object_and_not_beside_it() -> None:
    document = medium_document()
    for number in (1, 2):
        document.state.put_job(running(100))
        body = document.prepare(f"commit-{number}").body
        for section in document._sections.values():
            if isinstance(section, _SegmentSection | _ChangeSection):
                continue  # They are small.
            assert all(memoryview(text).obj is body for text in section._texts.values())
