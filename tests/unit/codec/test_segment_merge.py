"""Merging segments whose rows are copied as they are."""

from __future__ import annotations

from array import array
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bucketq.codec import segment_file, segment_index, segment_merge
from bucketq.codec.segment_file import (
    EncodedSegment,
    SegmentRow,
    decode_ids,
    decode_seqs,
    encode_segment,
    sort_rows,
    split_rows,
)
from bucketq.codec.segment_merge import Merged, MergeSource, merge_in_steps, stretches
from bucketq.model.segments import Gone, SegmentIndex
from tests.unit.codec.test_segment_file import NOW, lines_of, part, read_index, row

GROUPS = st.sampled_from([("mail", 0, ""), ("mail", -1, ""), ("mail", 0, "a"), ("zip", 0, "")])
Drawn = list[tuple[tuple[str, int, str], int, bool, bool]]
DRAWN = st.lists(st.tuples(GROUPS, st.integers(0, 3), st.booleans(), st.booleans()), max_size=60)
"""Of each row, in the order of their numbers: its run, its source, whether it has left its source,
and whether it has a unique name."""


@pytest.fixture(autouse=True)
def small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a few rows fill a block, and take several steps."""
    monkeypatch.setattr(segment_index, "BLOCK_BYTES", 400)
    monkeypatch.setattr(segment_merge, "_STEP_LINES", 7)


def rows_of(drawn: Drawn) -> list[tuple[int, bool, SegmentRow]]:
    """The rows: source, whether it has left, and the row."""
    found = []
    for seq, ((kind, priority, group), source, has_left, is_unique) in enumerate(drawn):
        unique = f"u{seq % 3}" if is_unique else None
        made = row(seq, kind=kind, priority=priority, group=group, unique=unique)
        found.append((source, has_left, made))
    return found


def source_of(name: str, rows: Sequence[SegmentRow], left: set[int]) -> MergeSource:
    """What a merge reads of a segment with these rows; ``left`` are the numbers of those gone."""
    encoded = encode_segment("ready", sort_rows("ready", rows))
    gone = Gone()
    for position, seq in enumerate(encoded.seqs):
        if seq in left:
            gone.add(position)
    index, lines = read(encoded)
    seqs = decode_seqs(index, part(encoded.body, index.seqs), name)
    ids = decode_ids(index, part(encoded.body, index.ids), name)
    return MergeSource(name, index.runs, gone, lines, seqs, ids)


def read(encoded: EncodedSegment) -> tuple[SegmentIndex, list[bytes]]:
    """Read a segment as another process does."""
    index = read_index(encoded, encoded.record(1, NOW))
    return index, lines_of(encoded, index)


def merged(sources: Sequence[MergeSource]) -> list[Merged]:
    """Merge at once."""
    return merged_in(sources)[0]


def merged_in(sources: Sequence[MergeSource]) -> tuple[list[Merged], int]:
    """Merge at once; also return in how many steps."""
    steps, count = merge_in_steps(sources), 1
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value, count
        count += 1


@given(DRAWN)
def test_a_merge_has_what_encoding_all_rows_again_would_have(drawn: Drawn) -> None:
    rows = rows_of(drawn)
    sources = [
        source_of(
            str(number),
            some,
            {row.fields.seq for source, has_left, row in rows if source == number and has_left},
        )
        for number in range(4)
        if (some := [row for source, _, row in rows if source == number])
    ]
    live = [row for _, has_left, row in rows if not has_left]
    found = merged(sources)
    if not live:
        assert found == []
        return
    ((encoded, origins),) = found
    wanted = encode_segment("ready", sort_rows("ready", live))
    index, lines = read(encoded)
    other, other_lines = read(wanted)
    assert lines == other_lines
    assert (index.kinds, index.runs) == (other.kinds, other.runs)
    assert (encoded.seqs, encoded.bounds) == (wanted.seqs, wanted.bounds)
    assert list(encoded.ids.hashes) == sorted(wanted.ids.hashes)
    assert sorted(zip(*encoded.ids, strict=True)) == sorted(zip(*wanted.ids, strict=True))
    by_name = {source.name: source for source in sources}
    copied = [line for name, start, stop in origins for line in by_name[name].lines[start:stop]]
    assert copied == lines


def test_what_is_too_much_for_one_segment_goes_to_several(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [row for *_, row in rows_of([(("mail", 0, ""), 0, False, False)] * 20)]
    most = 3 * (len(rows[-1].line) + 1)
    monkeypatch.setattr(segment_merge, "SEGMENT_BYTES", most)
    sources = [source_of("a", rows[:10], {4}), source_of("b", rows[10:], set())]
    found = merged(sources)
    assert [len(encoded.seqs) for encoded, _ in found] == [3] * 6 + [1]
    assert [seq for encoded, _ in found for seq in encoded.seqs] == [*range(4), *range(5, 20)]
    assert found[1][1] == (("a", 3, 4), ("a", 5, 7))
    assert found[3][1] == (("b", 0, 3),)


@given(DRAWN, st.integers(1, 6), st.integers(-1, 1))
def test_segments_are_as_large_as_if_all_rows_were_encoded_again(
    drawn: Drawn, count: int, more: int
) -> None:
    """Also if rows fill one to the last byte."""
    rows = rows_of(drawn)
    live = sort_rows("ready", [row for _, has_left, row in rows if not has_left])
    left = {row.fields.seq for _, has_left, row in rows if has_left}
    sources = [
        source_of(str(number), some, left)
        for number in range(4)
        if (some := [row for source, _, row in rows if source == number])
    ]
    most = sum(len(row.line) + 1 for row in live[:count]) + more
    with pytest.MonkeyPatch.context() as monkeypatch:
        for module in (segment_merge, segment_file):
            monkeypatch.setattr(module, "SEGMENT_BYTES", most)
        wanted = [[row.line for row in part] for part in split_rows(live)]
        assert [read(encoded)[1] for encoded, _ in merged(sources)] == wanted


@pytest.mark.parametrize("is_alternating", [True, False])
def test_a_merge_has_many_steps(is_alternating: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Delayed jobs that fell due are in segments whose numbers alternate row by row."""
    monkeypatch.setattr(segment_merge, "_STEP_PIECES", 8)
    rows = [row for *_, row in rows_of([(("mail", 0, ""), 0, False, False)] * 160)]
    parts = (rows[::2], rows[1::2]) if is_alternating else (rows[:80], rows[80:])
    sources = [source_of(str(number), part, set()) for number, part in enumerate(parts)]
    ((_, origins),), steps = merged_in(sources)
    assert len(origins) == (160 if is_alternating else 2)
    assert steps > 160 // 7 + (4 * 160 // 8 if is_alternating else 0)


def test_rows_are_one_stretch_only_if_they_are_of_one_segment() -> None:
    places = [("a", 0), ("b", 1), ("b", 2), ("a", 3), ("a", 5), ("a", 4)]
    found = [("a", 0, 1), ("b", 1, 3), ("a", 3, 4), ("a", 5, 6), ("a", 4, 5)]
    assert stretches(places) == tuple(found)
    assert stretches([]) == ()


def test_a_row_that_is_larger_than_a_segment_may_be_is_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rows = [row for *_, row in rows_of([(("mail", 0, ""), 0, False, False)] * 3)]
    monkeypatch.setattr(segment_merge, "SEGMENT_BYTES", 10)
    assert [len(encoded.seqs) for encoded, _ in merged([source_of("a", rows, set())])] == [1, 1, 1]


@pytest.mark.parametrize("seqs", [[4, 0, 2], [1, 3, 5]], ids=["in no order", "of others"])
def test_wrong_numbers_do_not_keep_a_merge_from_ending(seqs: list[int]) -> None:
    """A segment is written by processes that are trusted, and may be wrong all the same."""
    rows = [row for *_, row in rows_of([(("mail", 0, ""), 0, False, False)] * 6)]
    one, other = source_of("a", rows[::2], set()), source_of("b", rows[1::2], set())
    one = one._replace(seqs=array("Q", seqs))
    ((encoded, origins),) = merged([one, other])
    assert sorted(encoded.seqs) == sorted([*seqs, 1, 3, 5])
    assert sum(stop - start for _, start, stop in origins) == 6
