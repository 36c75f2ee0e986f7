"""Checks all of a segment against its entry in the queue object, for ``bucketq doctor --deep``.

What one process reads of a segment is checked by checksums. Here everything is: the length, the
index, the lines of numbers and hashes, every row, and whether they agree. Rows that can be read are
returned even if others cannot.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from functools import partial
from typing import Any, NamedTuple, TypeVar

from bucketq.codec.segment_file import (
    SortFields,
    decode_ids,
    decode_index,
    decode_seqs,
    order_of,
    segment_row,
)
from bucketq.codec.segment_lines import complete_lines, decode_jobs, decode_keys, split_block
from bucketq.errors import CorruptStateError
from bucketq.model.id_hashes import hash_id, unique_name
from bucketq.model.indexes.cold_segment import Segment
from bucketq.model.job_ids import distance
from bucketq.model.records import JobRecord, KeyRecord
from bucketq.model.segments import (
    Block,
    Line,
    SegmentClass,
    SegmentIds,
    SegmentIndex,
)

_MOST_PROBLEMS = 5
"""So many problems of a segment are described: a damaged one may have thousands of the same."""

_MEANING: dict[SegmentClass, str] = {
    "ready": "a job that waits",
    "later": "a job that waits for its time",
    "dead": "a dead job",
    "keys": "an idempotency key",
}

A = TypeVar("A")


class CheckedRow(NamedTuple):
    """A row that can be read and has not left."""

    position: int
    seq: int
    line: bytes


class CheckedSegment(NamedTuple):
    """What is wrong with a segment, and what can be read of it."""

    problems: tuple[str, ...]
    rows: list[CheckedRow]
    lost: int
    """How many rows that have not left cannot be read."""
    doubtful: Sequence[CheckedRow] = ()
    """Rows that can be read, if it is unknown which rows have left."""


def check_segment(segment: Segment, body: bytes, where: str) -> CheckedSegment:
    """Check the bytes of a segment; ``where`` is what messages call it."""
    check = _Check(segment, body, where)
    check.run()
    hidden = len(check.problems) - _MOST_PROBLEMS
    problems = check.problems[:_MOST_PROBLEMS] + ([f"and {hidden:,} more"] if hidden > 0 else [])
    return CheckedSegment(tuple(problems), check.rows, segment.live - len(check.rows))


class _Check:
    def __init__(self, segment: Segment, body: bytes, where: str) -> None:
        self.problems: list[str] = []
        self.rows: list[CheckedRow] = []
        self._segment = segment
        self._record = segment.record
        self._body = body
        self._where = where

    def run(self) -> None:
        record = self._record
        if len(self._body) != record.bytes:
            self._note(f"it has {len(self._body):,} bytes instead of {record.bytes:,}")
        text = self._body[record.bytes - record.index : record.bytes]
        index = self._attempt(lambda: decode_index(record, text, self._where))
        if index is None:
            return
        seqs = self._attempt(
            lambda: decode_seqs(index, self._cut(index.seqs), self._where, record.base)
        )
        ids = self._attempt(lambda: decode_ids(index, self._cut(index.ids), self._where))
        found = dict(self._read(index))
        for position, fields in found.items():
            self._check_place(position, fields, seqs, ids)
        self._check_order(found)
        if len(found) == record.rows:
            self._check_index(index, found)
            self._check_expiries(index, found)
        numbers = seqs or array("Q", (fields.seq for fields in found.values()))
        if numbers and (min(numbers), max(numbers)) != (record.seq, record.last):
            self._note(
                f"its numbers go from {min(numbers)} to {max(numbers)}, but the queue says from "
                f"{record.seq} to {record.last}"
            )

    def _read(self, index: SegmentIndex) -> Iterator[tuple[int, SortFields | JobRecord]]:
        """Yield the rows that can be read and fit the class, also those that have left."""
        for block in index.blocks:
            lines = self._attempt(partial(split_block, block, self._cut(block), self._where))
            if lines is None:
                continue
            for position, written in enumerate(lines, block.start):
                line = self._attempt(partial(self._complete, position, written))
                row = None if line is None else self._decode(position, line)
                if line is None or row is None:
                    continue
                fields = segment_row(line).fields
                if position not in self._segment.gone:
                    self.rows.append(CheckedRow(position, fields.seq, line))
                if _fits(self._record.cls, row):
                    yield position, fields
                else:
                    self._note(
                        f"the row at position {position} is not {_MEANING[self._record.cls]}"
                    )

    def _complete(self, position: int, line: bytes) -> bytes:
        return complete_lines([line], position, self._where, self._record.pushed)[0]

    def _decode(self, position: int, line: bytes) -> JobRecord | KeyRecord | None:
        if self._record.cls == "keys":
            keys = self._attempt(lambda: decode_keys([line], position, self._where))
            return keys[0] if keys else None
        jobs = self._attempt(lambda: decode_jobs([line], position, self._where))
        return jobs[0][0] if jobs else None

    def _check_place(
        self,
        position: int,
        fields: SortFields | JobRecord,
        seqs: array[int] | None,
        ids: SegmentIds | None,
    ) -> None:
        if seqs is not None and (position >= len(seqs) or seqs[position] != fields.seq):
            self._note(f"the row at position {position} has another number than its segment says")
        if first := self._record.first_id:
            is_found = distance(first, fields.id) == position
        else:
            is_found = ids is None or position in ids.find(hash_id(fields.id))
        if not is_found:
            self._note(f"the row at position {position} cannot be found by its id {fields.id}")
        if ids is not None and fields.unique is not None:
            name = unique_name(fields.kind, fields.unique)
            if position not in ids.find(hash_id(name)):
                self._note(f"the row at position {position} cannot be found by its unique name")

    def _check_expiries(
        self, index: SegmentIndex, found: dict[int, SortFields | JobRecord]
    ) -> None:
        """Check that the jobs are found when they expire."""
        record, times = self._record, dict[int, list[datetime]]()
        if record.cls not in ("ready", "later"):
            return
        starts, live = [block.start for block in index.blocks], list[datetime]()
        for position, fields in found.items():
            if fields.expires_at is None or fields.attempt:
                continue
            place = bisect_right(starts, position) - 1
            times.setdefault(place, []).append(fields.expires_at)
            if position not in self._segment.gone:
                live.append(fields.expires_at)
        expected = [(place, min(some), max(some)) for place, some in sorted(times.items())]
        if list(index.expiries) != expected:
            self._note("its index does not say when its jobs expire")
        if live and (record.expires_at is None or record.expires_at > min(live)):
            self._note("the queue does not know when the next of its jobs expires")

    def _check_order(self, found: dict[int, SortFields | JobRecord]) -> None:
        before: Any = None
        for position, fields in found.items():
            order = order_of(self._record.cls, fields)
            if before is not None and order <= before:
                self._note(f"the row at position {position} is out of order")
            before = order

    def _check_index(self, index: SegmentIndex, found: dict[int, SortFields | JobRecord]) -> None:
        for run in index.runs:
            some = [found[position] for position in range(run.start, run.stop)]
            expected = (run.kind, run.priority, run.group)
            is_same = all((f.kind, f.priority, f.group) == expected for f in some)
            lowest = min(fields.seq for fields in some)
            if not is_same or lowest != self._record.base + run.seq:
                self._note(f"the run from position {run.start} on is not what its rows are")
        for position, number in enumerate(index.kind_numbers):
            if index.kinds[number] != found[position].kind:
                self._note(f"the row at position {position} has another kind than its index says")
        if index.times is not None:
            ends = (found[0], found[self._record.rows - 1])
            times = tuple(order_of(self._record.cls, fields)[0] for fields in ends)
            if times != index.times:
                self._note("its times are not those of its first and last row")

    def _cut(self, part: Line | Block) -> bytes:
        return self._body[part.offset : part.offset + part.length]

    def _attempt(self, read: Callable[[], A]) -> A | None:
        try:
            return read()
        except CorruptStateError as error:
            _, _, reason = str(error).partition(" cannot be trusted: ")
            self._note(reason.partition("; it is left as it is")[0] or str(error))
            return None

    def _note(self, problem: str) -> None:
        self.problems.append(problem)


def _fits(cls: SegmentClass, row: JobRecord | KeyRecord) -> bool:
    if isinstance(row, KeyRecord):
        return cls == "keys"
    if cls == "dead":
        return row.status == "dead"
    return row.status == "queued" and (cls != "later" or row.run_at is not None)
