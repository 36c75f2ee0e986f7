"""The format of segments: what is written is read back, and damage is noticed."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bucketq.codec import segment_file, segment_index
from bucketq.codec.segment_file import (
    EncodedSegment,
    SegmentRow,
    decode_ids,
    decode_index,
    decode_seqs,
    encode_segment,
    is_segment_id,
    segment_row,
    sort_rows,
    split_rows,
)
from bucketq.codec.segment_lines import split_block
from bucketq.errors import CorruptStateError
from bucketq.model.id_hashes import hash_id
from bucketq.model.segments import (
    Block,
    Gone,
    Line,
    SegmentClass,
    SegmentIndex,
    SegmentRecord,
)

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
CLASSES: list[SegmentClass] = ["ready", "later", "dead", "keys"]


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a few rows fill a block."""
    monkeypatch.setattr(segment_index, "BLOCK_BYTES", 400)


def row(seq: int, *, kind: str = "a", priority: int = 0, **more: Any) -> SegmentRow:
    moment = NOW + timedelta(seconds=seq * 7919 % 101)
    fields = {"id": f"job-{seq}", "kind": kind, "seq": seq, "priority": priority}
    times = {"run_at": moment, "finished_at": moment, "pushed_at": NOW, "at": moment}
    return segment_row(msgspec.json.encode(fields | times | more))


def rows_of(count: int) -> list[SegmentRow]:
    return [row(seq, kind="abc"[seq % 3], priority=seq % 2) for seq in range(1, count + 1)]


def encode(cls: SegmentClass, rows: list[SegmentRow]) -> EncodedSegment:
    return encode_segment(cls, sort_rows(cls, rows))


def read_index(encoded: EncodedSegment, record: SegmentRecord) -> SegmentIndex:
    return decode_index(record, encoded.body[-record.index :], "s")


def part(body: bytes, line: Line | Block) -> bytes:
    return body[line.offset : line.offset + line.length]


def lines_of(encoded: EncodedSegment, index: SegmentIndex) -> list[bytes]:
    lines = []
    for block in index.blocks:
        lines += split_block(block, part(encoded.body, block), "s")
    return lines


@pytest.mark.parametrize("cls", CLASSES)
def test_rows_are_read_back_in_the_order_of_their_class(cls: SegmentClass) -> None:
    rows = rows_of(20)
    encoded = encode(cls, rows)
    record = encoded.record(until=105, at=NOW)
    index = read_index(encoded, record)
    assert index == encoded.index
    assert len(index.blocks) > 3
    lines = lines_of(encoded, index)
    assert lines == [row.line for row in sort_rows(cls, rows)]
    assert (record.rows, record.live, record.seq, record.last) == (20, 20, 1, 20)
    assert (record.until, is_segment_id(record.id), record.bytes) == (105, True, len(encoded.body))
    found: list[Any] = [segment_row(line).fields for line in lines]
    orders: dict[SegmentClass, list[Any]] = {
        "ready": [(each.kind, each.priority, each.seq) for each in found],
        "later": [(each.run_at, each.seq) for each in found],
        "dead": [(each.finished_at, each.seq) for each in found],
        "keys": [(each.at, each.seq) for each in found],
    }
    assert orders[cls] == sorted(orders[cls])


@pytest.mark.parametrize("cls", CLASSES)
def test_every_row_is_found_by_the_hash_of_its_id(cls: SegmentClass) -> None:
    encoded = encode(cls, rows_of(20))
    index = encoded.index
    ids = decode_ids(index, part(encoded.body, index.ids), "s")
    for position, line in enumerate(lines_of(encoded, index)):
        assert list(ids.find(hash_id(segment_row(line).fields.id))) == [position]
    assert list(ids.find(hash_id("job-21"))) == []


@pytest.mark.parametrize("cls", CLASSES)
def test_the_number_of_every_row_is_known_without_the_row(cls: SegmentClass) -> None:
    encoded = encode(cls, rows_of(20))
    seqs = decode_seqs(encoded.index, part(encoded.body, encoded.index.seqs), "s")
    lines = lines_of(encoded, encoded.index)
    assert list(seqs) == [segment_row(line).fields.seq for line in lines]


def test_a_ready_segment_has_a_run_for_each_kind_and_priority() -> None:
    encoded = encode("ready", rows_of(20))
    lines = [segment_row(line).fields for line in lines_of(encoded, encoded.index)]
    assert [(run.kind, run.priority) for run in encoded.index.runs] == [
        (kind, priority) for kind in "abc" for priority in (0, 1)
    ]
    for run in encoded.index.runs:
        inside = lines[run.start : run.stop]
        assert {(each.kind, each.priority) for each in inside} == {(run.kind, run.priority)}
        assert run.seq == min(each.seq for each in inside)


@pytest.mark.parametrize("cls", ["ready", "later", "dead"])
@given(left=st.sets(st.integers(0, 19)))
def test_kinds_are_counted_without_the_rows_that_have_left(
    cls: SegmentClass, left: set[int]
) -> None:
    encoded = encode(cls, rows_of(20))
    gone = Gone()
    for position in left:
        gone.add(position)
    kinds = [segment_row(line).fields.kind for line in lines_of(encoded, encoded.index)]
    stay = [kind for position, kind in enumerate(kinds) if position not in left]
    assert encoded.index.count_kinds(gone) == {kind: stay.count(kind) for kind in set(stay)}


def test_the_same_rows_give_the_same_bytes_in_any_order() -> None:
    rows = rows_of(20)
    assert encode("ready", rows).body == encode("ready", rows[::-1]).body


def test_unknown_fields_are_kept() -> None:
    encoded = encode("ready", [row(1, colour="green")])
    (line,) = lines_of(encoded, encoded.index)
    assert msgspec.json.decode(line)["colour"] == "green"


def test_a_large_row_has_a_block_of_its_own() -> None:
    encoded = encode("ready", [row(1), row(2, payload="x" * 2000), row(3)])
    assert [block.stop - block.start for block in encoded.index.blocks] == [1, 1, 1]


def test_rows_are_split_by_size_and_none_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segment_file, "SEGMENT_BYTES", 1000)
    rows = [*rows_of(20), row(21, payload="x" * 3000), row(22)]
    parts = list(split_rows(rows))
    assert [each for part in parts for each in part] == rows
    assert all(len(part) == 1 or sum(len(r.line) + 1 for r in part) <= 1000 for part in parts)


def test_any_damaged_byte_is_noticed() -> None:
    encoded = encode("ready", rows_of(6))
    record = encoded.record(until=1, at=NOW)
    for place in range(len(encoded.body)):
        damaged = bytearray(encoded.body)
        damaged[place] ^= 1
        with pytest.raises(CorruptStateError, match="segment s cannot be trusted"):
            read_all(bytes(damaged), record)
    read_all(encoded.body, record)


def test_a_truncated_segment_is_refused() -> None:
    encoded = encode("ready", rows_of(6))
    record = encoded.record(until=1, at=NOW)
    for length in (0, 10, len(encoded.body) - 1):
        with pytest.raises(CorruptStateError):
            read_all(encoded.body[:length], record)


def read_all(body: bytes, record: SegmentRecord) -> None:
    start = record.bytes - record.index
    index = decode_index(record, body[start : record.bytes], "s")
    decode_seqs(index, part(body, index.seqs), "s")
    decode_ids(index, part(body, index.ids), "s")
    for block in index.blocks:
        split_block(block, part(body, block), "s")


def test_names_of_other_objects_are_not_segment_ids() -> None:
    assert is_segment_id("00000000000000000105-9f86d081884c7d65")
    for name in (
        "105-9f86d081884c7d65",
        "00000000000000000105-9F86D081884C7D65",
        "0000000000000000010\N{ARABIC-INDIC DIGIT FIVE}-9f86d081884c7d65",
        "00000000000000000105-9f86d081884c7d65\n",
        "r0-a/b",
        "",
    ):
        assert not is_segment_id(name)
