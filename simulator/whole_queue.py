"""The whole state of a queue: the rows of a head, and those of the segments that it names.

The checkers judge whole states, so that every promise is checked for rows in segments as well. How
rows are found is written here a second time, in the simplest way, and compared with what the real
code finds (``compare``): the state must be the one of a queue that never spills.
"""

from __future__ import annotations

from array import array
from base64 import b64decode
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any, TypeVar

import msgspec

from bucketq.codec.decode import decode
from bucketq.codec.deletion_vector import decode_vector
from bucketq.codec.segment_file import decode_ids, decode_index, decode_seqs
from bucketq.codec.segment_lines import decode_jobs, decode_keys, split_block
from bucketq.model.effects.dead_jobs import dead_jobs
from bucketq.model.effects.reads import oldest_queued
from bucketq.model.indexes.lane import lane_of
from bucketq.model.indexes.segment_reads import DecodedJobs
from bucketq.model.records import JobRecord, KeyRecord
from bucketq.model.segments import (
    Block,
    Gone,
    Line,
    Pushed,
    SegmentIds,
    SegmentIndex,
    SegmentRecord,
)
from bucketq.model.state import State

ReadSegment = Callable[[str, str], bytes | None]
"""Returns the bytes of a segment or vector, by incarnation and id; None if there is none."""

R = TypeVar("R", JobRecord, KeyRecord)


@dataclass(frozen=True)
class WholeQueue:
    """One version of a queue, with all its rows."""

    head: State
    """What the object holds."""
    whole: State
    """The same without segments: all rows are in the object."""
    doubled: tuple[str, ...]
    """Rows that are in more than one place."""
    missing: tuple[str, ...]
    """Segments that cannot be read."""


class WholeReader:
    """Reads segments that are in memory. They never change, so each is decoded once."""

    def __init__(self, read: ReadSegment) -> None:
        """Read segments with ``read``."""
        self._read = read
        self._jobs: dict[tuple[str, Pushed | None], list[JobRecord]] = {}
        self._keys: dict[str, list[KeyRecord]] = {}
        self._parts: StoredParts | None = None
        self._found: dict[str, JobRecord] = {}
        """The jobs that ``compare`` found, in a head with the segments ``_found_in``."""
        self._found_in: list[SegmentRecord] = []

    def whole(self, body: bytes, where: str) -> WholeQueue:
        """Return the queue whose head is ``body``."""
        head = decode(body, where).state
        if not head.cold.rows.segments:
            return WholeQueue(head, head, (), ())
        jobs, keys = list(head.jobs), list(head.keys)
        missing = list[str]()
        for segment in head.cold.rows.segments.values():
            record = segment.record
            found = self._read(head.incarnation, record.id)
            vector = self._read(head.incarnation, record.vector) if record.vector else b""
            if found is None or vector is None:
                missing.append(record.id)
            elif record.cls == "keys":
                keys += _live(record, self._keys_of(record, found), vector)
            else:
                jobs += _live(record, self._jobs_of(record, found), vector)
        doubled = [f"job {seq}" for seq in _doubled(jobs)] + [
            f"key {seq}" for seq in _doubled(keys)
        ]
        whole = _without_segments(head, _once(jobs), _once(keys))
        return WholeQueue(head, whole, tuple(doubled), tuple(missing))

    def compare(self, queue: WholeQueue, now: datetime) -> str:
        """Return how the head, as the real code reads it, differs from the whole; "": it does not.

        The head is changed: rows become decoded. Where a job is found depends on nothing but its
        own row and the entries of the segments, so a job is looked up again if either has changed.
        """
        head, whole = queue.head, queue.whole
        entries = [segment.record for segment in head.cold.rows.segments.values()]
        if entries != self._found_in:
            self._found, self._found_in = {}, entries
        looked_up = [job for job in whole.jobs if self._found.get(job.id) != job]
        if self._parts is None:
            self._parts = StoredParts(partial(self._read, head.incarnation))
        head.cold.rows.cache = self._parts
        head.attach_cold()
        pairs = [
            ("counts", head.counts, whole.counts),
            ("jobs", head.jobs_count, whole.jobs_count),
            ("dead jobs", head.dead_count, whole.dead_count),
            ("oldest", oldest_queued(head), oldest_queued(whole)),
        ]
        head.promote(now)
        whole.promote(now)
        lanes = dict.fromkeys(lane_of(job.kind, job.group) for job in whole.jobs)
        pairs += [
            (f"next {name}", head.waiting.head_of(name, now), whole.waiting.head_of(name, now))
            for name in lanes
        ]
        pairs += [(job.id, head.find_job(job.id), job) for job in looked_up]
        self._found = whole.jobs.by_id
        pairs.append(("order of the dead", list(dead_jobs(head)), list(dead_jobs(whole))))
        return "; ".join(f"{what}: {a} is not {b}" for what, a, b in pairs if a != b)

    def _jobs_of(self, record: SegmentRecord, body: bytes) -> list[JobRecord]:
        slot = (record.id, record.pushed)
        if slot not in self._jobs:
            lines = body.split(b"\n")[: record.rows]
            if record.pushed is not None:
                lines = [_completed(line, record.pushed) for line in lines]
            self._jobs[slot] = decode_jobs(lines, 0, record.id)[0]
        return self._jobs[slot]

    def _keys_of(self, record: SegmentRecord, body: bytes) -> list[KeyRecord]:
        if record.id not in self._keys:
            self._keys[record.id] = decode_keys(body.split(b"\n")[: record.rows], 0, record.id)
        return self._keys[record.id]


class StoredParts:
    """All parts of segments, decoded once when they are asked for: nothing is ever missing."""

    def __init__(self, read: Callable[[str], bytes | None]) -> None:
        """Read segments with ``read``, by id."""
        self._read = read
        self._known: dict[tuple[str, object], Any] = {}

    def index(self, segment: SegmentRecord) -> SegmentIndex:
        """Return the index of a segment."""
        index: SegmentIndex = self._once(
            (segment.id, "index"),
            lambda: decode_index(segment, self._body(segment)[-segment.index :], segment.id),
        )
        return index

    def seqs(self, segment: SegmentRecord) -> array[int]:
        """Return the number of each row of a segment."""
        index = self.index(segment)
        seqs: array[int] = self._once(
            (segment.id, ("seqs", segment.base)),
            lambda: decode_seqs(index, self._part(segment, index.seqs), segment.id, segment.base),
        )
        return seqs

    def ids(self, segment: SegmentRecord) -> SegmentIds:
        """Return the hashes of a segment's ids."""
        index = self.index(segment)
        ids: SegmentIds = self._once(
            (segment.id, "ids"),
            lambda: decode_ids(index, self._part(segment, index.ids), segment.id),
        )
        return ids

    def jobs(self, segment: SegmentRecord, block: Block, start: int, stop: int) -> DecodedJobs:
        """Return the jobs of a block from a position to before another."""
        pushed = segment.pushed
        jobs, unknown = self._once(
            (segment.id, (block.start, pushed)),
            lambda: decode_jobs(self._lines(segment, block), block.start, segment.id, pushed),
        )
        return jobs[start - block.start : stop - block.start], unknown

    def keys(self, segment: SegmentRecord, block: Block, start: int, stop: int) -> list[KeyRecord]:
        """Return the idempotency keys of a block from a position to before another."""
        keys: list[KeyRecord] = self._once(
            (segment.id, block.start),
            lambda: decode_keys(self._lines(segment, block), block.start, segment.id),
        )
        return keys[start - block.start : stop - block.start]

    def vector(self, segment: SegmentRecord) -> Gone:
        """Return the positions of a segment that are in its vector."""
        name = segment.vector
        vectors: dict[str, Gone] = self._once(
            (name, "vector"), lambda: decode_vector(name, self._read(name) or b"", name)
        )
        return vectors[segment.id]

    def is_damaged(self, segment: SegmentRecord) -> bool:
        """Return False."""
        del segment
        return False

    def has_block(self, segment: SegmentRecord, block: Block) -> bool:
        """Return True."""
        del segment, block
        return True

    def _once(self, slot: tuple[str, object], decode_part: Callable[[], Any]) -> Any:
        if slot not in self._known:
            self._known[slot] = decode_part()
        return self._known[slot]

    def _lines(self, segment: SegmentRecord, block: Block) -> list[bytes]:
        return split_block(block, self._part(segment, block), segment.id)

    def _part(self, segment: SegmentRecord, part: Block | Line) -> bytes:
        return self._body(segment)[part.offset : part.offset + part.length]

    def _body(self, segment: SegmentRecord) -> bytes:
        body = self._read(segment.id)
        if body is None:
            message = f"segment {segment.id} is not there"
            raise AssertionError(message)
        return body


def _completed(line: bytes, pushed: Pushed) -> bytes:
    """Return the line of a push as it would be in the head."""
    fields: dict[str, Any] = msgspec.json.decode(line)
    number = pushed.base + fields.pop("seq")
    row = fields | {"seq": number, "status": "queued", "pushed_at": pushed.at}
    return msgspec.json.encode(row)


def _live(record: SegmentRecord, rows: list[R], vector: bytes) -> list[R]:
    gone = {at for first, last in record.gone for at in range(first, last + 1)}
    if vector:
        bits = b64decode(msgspec.json.decode(vector)["segments"][record.id])
        gone |= {at for at in range(8 * len(bits)) if bits[at // 8] & (0x80 >> at % 8)}
    return [row for position, row in enumerate(rows) if position not in gone]


def _doubled(rows: list[R]) -> list[int]:
    return [seq for seq, count in Counter(row.seq for row in rows).items() if count > 1]


def _once(rows: list[R]) -> list[R]:
    return sorted({row.seq: row for row in rows}.values(), key=lambda row: row.seq)


def _without_segments(head: State, jobs: list[JobRecord], keys: list[KeyRecord]) -> State:
    state = State(
        incarnation=head.incarnation,
        created_at=head.created_at,
        jobs=jobs,
        keys=keys,
        tokens=list(head.tokens),
        consumers=list(head.consumers),
        writers=list(head.writers),
        schedules=list(head.schedules),
        batches=list(head.batches),
        limits=list(head.limits),
        buckets=list(head.buckets),
    )
    copied = ("requires", "sessions", "version", "broker", "settings", "paused", "time")
    for name in (*copied, "workers", "audit", "results"):
        setattr(state, name, getattr(head, name))
    state.commits.extend(head.commits)
    state.paused_kinds = head.paused_kinds
    state.next_seq = head.next_seq
    state.size_bytes = head.size_bytes
    return state
