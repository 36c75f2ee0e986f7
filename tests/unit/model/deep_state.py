"""A state whose waiting and dead jobs go to segments, and the store that keeps these in memory."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from datetime import datetime
from itertools import islice
from typing import Any, TypeVar

from msgspec import Raw
from msgspec.structs import replace

from bucketq.codec.decode import decode
from bucketq.codec.deletion_vector import decode_vector, encode_vector, vector_id
from bucketq.codec.document import Document
from bucketq.codec.pushed_rows import class_of_new, pushed_row
from bucketq.codec.segment_file import (
    EncodedSegment,
    SegmentRow,
    decode_ids,
    decode_index,
    decode_seqs,
    encode_segment,
    row_of,
    segment_row,
    sort_hashes,
    sort_rows,
)
from bucketq.codec.segment_lines import complete_lines, decode_jobs, decode_keys, split_block
from bucketq.codec.segment_merge import Merged, MergeSource, merge_in_steps, stretches
from bucketq.model.base import NewJob
from bucketq.model.effects.segment_changes import class_of
from bucketq.model.id_hashes import hash_ids
from bucketq.model.indexes.cold_rows import ColdRowsNeededError, SegmentPart
from bucketq.model.indexes.cold_segment import Segment
from bucketq.model.indexes.segment_reads import DecodedJobs
from bucketq.model.job_ids import ids_after
from bucketq.model.numbered_batches import Publish
from bucketq.model.operations import Push, Request
from bucketq.model.records import JobRecord, KeyRecord
from bucketq.model.segments import (
    Block,
    Gone,
    Line,
    Merge,
    NameVector,
    SegmentClass,
    SegmentIds,
    SegmentIndex,
    SegmentRecord,
    Spill,
    SpillKeys,
    WrittenRows,
    WrittenSegment,
)
from bucketq.model.state import State
from bucketq.model.transitions import Applied, apply

A = TypeVar("A")


class Memory:
    """Segments, and what was read of them. Nothing is there before it was fetched."""

    def __init__(self) -> None:
        """Begin without segments."""
        self.bodies: dict[str, bytes] = {}
        self.damaged = set[str]()
        self.vectors: dict[tuple[str, str], Gone] = {}
        self.read = dict[tuple[str, object], object]()

    def fetch(self, parts: Sequence[SegmentPart]) -> None:
        """Read parts; one may be named twice, if jobs of two kinds are in it."""
        assert parts
        for segment, what in dict.fromkeys(parts):
            if what == "vector":
                vector = decode_vector(segment.vector, self.bodies[segment.vector], "vector")
                self.vectors[segment.id, segment.vector] = vector.get(segment.id, Gone())
                continue
            body = self.bodies[segment.id]
            start = segment.bytes - segment.index
            index = decode_index(segment, body[start:], segment.id)
            found: object = index
            if what == "seqs":
                found = decode_seqs(index, _cut(body, index.seqs), segment.id, segment.base)
            elif what == "ids":
                found = decode_ids(index, _cut(body, index.ids), segment.id)
            elif isinstance(what, Block):
                found = split_block(what, _cut(body, what), segment.id)
            slot = (segment.id, what)
            assert slot not in self.read, "nothing is asked for that is there"
            self.read[slot] = found

    def index(self, segment: SegmentRecord) -> SegmentIndex | None:
        return self.read.get((segment.id, "index"))  # type: ignore[return-value]

    def seqs(self, segment: SegmentRecord) -> array[int] | None:
        return self.read.get((segment.id, "seqs"))  # type: ignore[return-value]

    def ids(self, segment: SegmentRecord) -> SegmentIds | None:
        return self.read.get((segment.id, "ids"))  # type: ignore[return-value]

    def is_damaged(self, segment: SegmentRecord) -> bool:
        return segment.id in self.damaged

    def vector(self, segment: SegmentRecord) -> Gone | None:
        return self.vectors.get((segment.id, segment.vector))

    def has_block(self, segment: SegmentRecord, block: Block) -> bool:
        return (segment.id, block) in self.read

    def jobs(
        self, segment: SegmentRecord, block: Block, start: int, stop: int
    ) -> DecodedJobs | None:
        lines = self.lines(segment, block, start, stop)
        return None if lines is None else decode_jobs(lines, start, segment.id, segment.pushed)

    def keys(
        self, segment: SegmentRecord, block: Block, start: int, stop: int
    ) -> list[KeyRecord] | None:
        lines = self.lines(segment, block, start, stop)
        return None if lines is None else decode_keys(lines, start, segment.id)

    def lines(
        self, segment: SegmentRecord, block: Block, start: int, stop: int
    ) -> list[bytes] | None:
        lines: Any = self.read.get((segment.id, block))
        return None if lines is None else lines[start - block.start : stop - block.start]


def _cut(body: bytes, line: Line | Block) -> bytes:
    return body[line.offset : line.offset + line.length]


class DeepState:
    """A state, and its segments."""

    def __init__(self, state: State) -> None:
        """Begin without segments, which are allowed."""
        self.memory = Memory()
        self.state = state
        self.state.settings = replace(self.state.settings, max_format=2)
        self.state.cold.rows.cache = self.memory

    def apply(self, request: Request, now: datetime) -> Applied:
        """Apply a request, and fetch what it needs for that."""
        return self.retry(lambda: apply(self.state, request, now))

    def retry(self, act: Callable[[], A]) -> A:
        """Do something as often as it needs more parts of segments."""
        while True:
            mark = len(self.state.changes)
            try:
                return act()
            except ColdRowsNeededError as needed:
                assert len(self.state.changes) == mark, "nothing is changed before all is read"
                self.memory.fetch(needed.parts)

    def spill(self, cls: SegmentClass, now: datetime, count: int) -> Spill | None:
        """Write the oldest jobs of a class to a segment, to be named at any time."""
        chosen = [job for job in self.state.jobs if class_of(job, now) == cls][:count]
        if not chosen:
            return None
        encoded = self.write(cls, chosen)
        by_seq = {job.seq: job for job in chosen}
        jobs = tuple(by_seq[seq] for seq in encoded.seqs)
        extra = self.state.extra
        unknown = {job.id: extra["jobs", job.id] for job in jobs if ("jobs", job.id) in extra}
        return Spill(segment=self.written(encoded, now), jobs=jobs, unknown=unknown)

    def write_push(self, request: Request, now: datetime, size: int = 100) -> Request:
        """Write rows of a push to segments of up to ``size`` rows, before it is applied."""
        operation = request.operation
        assert isinstance(operation, Push | Publish)
        places: dict[SegmentClass, list[SegmentRow]] = {}
        for place, job in enumerate(operation.jobs):
            if (cls := class_of_new(job)) is not None:
                places.setdefault(cls, []).append(pushed_row(job, place))
        written = [
            self.written(encode_segment(cls, sort_rows(cls, rows[start : start + size])), now)
            for cls, rows in places.items()
            for start in range(0, len(rows), size)
        ]
        return replace(request, written=WrittenRows(tuple(written), self.state.settings))

    def write_reserved(
        self, reservation: str, jobs: Sequence[NewJob], now: datetime, size: int = 100
    ) -> tuple[WrittenSegment, ...]:
        """Write jobs to segments of up to ``size`` rows under a reservation."""
        found = []
        for start in range(0, len(jobs), size):
            rows = [pushed_row(job, n) for n, job in enumerate(jobs[start : start + size])]
            encoded = encode_segment("ready", sort_rows("ready", rows))
            record = encoded.record(reservation, now)
            self.memory.bodies[record.id] = encoded.body
            found.append(WrittenSegment(record, encoded.index, encoded.seqs))
        return tuple(found)

    def spill_keys(self, now: datetime, count: int) -> SpillKeys | None:
        """Write the oldest keys to a segment, to be named at any time."""
        keys, extra = list(self.state.keys)[:count], self.state.extra
        if not keys:
            return None
        rows = [row_of(key, extra.get(("keys", key.id))) for key in keys]
        encoded = encode_segment("keys", sort_rows("keys", rows))
        by_seq = {key.seq: key for key in keys}
        return SpillKeys(
            segment=self.written(encoded, now),
            keys=tuple(by_seq[seq] for seq in encoded.seqs),
            unknown={key.id: extra["keys", key.id] for key in keys if ("keys", key.id) in extra},
        )

    def merge(self, cls: SegmentClass, now: datetime, count: int) -> Merge | None:
        """Write the rows of some segments of a class to one, to be named at any time."""
        sources = list(self.state.cold.rows.of_class(cls))[:count]
        if cls == "ready" and all(source.record.expires_at is None for source in sources):
            return self._copied(sources, now)
        rows = [
            (segment_row(line), (source.record.id, position))
            for source in sources
            for position, line in self.lines(source)
        ]
        if not rows:
            return None
        origins = {row.fields.seq: origin for row, origin in rows}
        encoded = encode_segment(cls, sort_rows(cls, [row for row, _ in rows]))
        return Merge(
            sources=tuple(source.record.id for source in sources),
            targets=(self.written(encoded, now),),
            origins=(stretches(origins[seq] for seq in encoded.seqs),),
            pushed={s.record.id: s.record.pushed for s in sources if s.record.pushed},
        )

    def _copied(self, sources: Sequence[Segment], now: datetime) -> Merge | None:
        """Merge as upkeep merges claimable jobs: their lines are copied."""
        steps = merge_in_steps([self._source(source) for source in sources])
        while True:
            try:
                next(steps)
            except StopIteration as end:
                merged: list[Merged] = end.value
                break
        if not merged:
            return None
        return Merge(
            sources=tuple(source.record.id for source in sources),
            targets=tuple(self.written(encoded, now) for encoded, _ in merged),
            origins=tuple(origins for _, origins in merged),
            pushed={s.record.id: s.record.pushed for s in sources if s.record.pushed},
        )

    def _source(self, segment: Segment) -> MergeSource:
        """What a merge needs of a segment."""
        record, body = segment.record, self.memory.bodies[segment.record.id]
        index = decode_index(record, body[record.bytes - record.index :], record.id)
        lines = [line for b in index.blocks for line in split_block(b, _cut(body, b), record.id)]
        ids = decode_ids(index, _cut(body, index.ids), record.id)
        if record.first_id:
            hashes = hash_ids(islice(ids_after(record.first_id, 0), record.rows))
            ids = sort_hashes(hashes, array("I", range(record.rows)))
        return MergeSource(
            record.id,
            index.runs,
            Gone(self.gone_from(segment).ranges),
            complete_lines(lines, 0, record.id, record.pushed),
            decode_seqs(index, _cut(body, index.seqs), record.id, record.base),
            ids,
        )

    def vector(self, now: datetime) -> NameVector | None:
        """Write what has left all segments to a vector, to be named at any time."""
        segments = [each for each in self.state.cold.rows.segments.values() if each.has_vector]
        gone = {each.record.id: each.gone.ranges for each in segments if each.gone.count}
        if not gone:
            return None
        body = encode_vector(gone)
        name = vector_id(self.state.version + 2, body)
        self.memory.bodies[name] = body
        return NameVector(id=name, bytes=len(body), gone=gone)

    def lines(self, segment: Segment) -> list[tuple[int, bytes]]:
        """The rows of a segment that have not left, with their positions."""
        body, record = self.memory.bodies[segment.record.id], segment.record
        index = decode_index(record, body[record.bytes - record.index :], record.id)
        lines = [line for b in index.blocks for line in split_block(b, _cut(body, b), record.id)]
        lines = [*complete_lines(lines, 0, record.id, record.pushed)]
        gone = self.gone_from(segment)
        return [(p, line) for p, line in enumerate(lines) if p not in gone]

    def gone_from(self, segment: Segment) -> Gone:
        """The positions that have left a segment, also those that stand in a vector."""
        record = segment.record
        if segment.has_vector:
            return segment.gone
        vector = decode_vector(record.vector, self.memory.bodies[record.vector], "vector")
        return vector[record.id].joined(segment.since)

    def write(self, cls: SegmentClass, jobs: Sequence[JobRecord]) -> EncodedSegment:
        """Encode jobs as a segment."""
        rows = [row_of(job, self.state.extra.get(("jobs", job.id))) for job in jobs]
        return encode_segment(cls, sort_rows(cls, rows))

    def written(self, encoded: EncodedSegment, now: datetime) -> WrittenSegment:
        """Put a segment into the store."""
        record = encoded.record(self.state.version + 2, now)
        self.memory.bodies[record.id] = encoded.body
        return WrittenSegment(record, encoded.index, encoded.seqs)

    def jobs(self) -> list[JobRecord]:
        """All jobs, wherever they are, each of them in one place."""
        jobs = [*self.state.jobs]
        for segment in self.state.cold.rows.of_class("ready", "later", "dead"):
            jobs += decode_jobs([line for _, line in self.lines(segment)], 0, "")[0]
        jobs.sort(key=lambda job: job.seq)
        assert len({job.seq for job in jobs}) == len(jobs), "a job is in two places"
        return jobs

    def all_keys(self) -> list[KeyRecord]:
        """All keys, wherever they are, each of them in one place."""
        keys = [*self.state.keys]
        for segment in self.state.cold.rows.of_class("keys"):
            keys += decode_keys([line for _, line in self.lines(segment)], 0, "")
        keys.sort(key=lambda key: key.seq)
        assert len({key.seq for key in keys}) == len({key.id for key in keys}) == len(keys)
        assert len(keys) == len(self.state.known_keys)
        return keys

    def unknown_fields(self) -> dict[int, dict[str, Raw]]:
        """The unknown fields of all jobs that have some, by number."""
        extra = self.state.extra
        found = {job.seq: extra.get(("jobs", job.id), {}) for job in self.state.jobs}
        for segment in self.state.cold.rows.of_class("ready", "later", "dead"):
            for position, line in self.lines(segment):
                (job,), unknown = decode_jobs([line], position, segment.record.id)
                found[job.seq] = unknown.get(position, {})
        return {seq: fields for seq, fields in found.items() if fields}

    def reload(self) -> None:
        """Begin anew with what the object says."""
        version = self.state.version
        body = Document(self.state).prepare("commit").body
        assert self.state.requires or body.startswith(b'{"format":1,')
        self.state = decode(body, "deep").state
        self.state.version = version
        self.state.cold.rows.cache = self.memory
