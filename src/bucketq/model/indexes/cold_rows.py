"""Rows that are in segments: which there are, and how they are reached without being kept.

A queue may have millions of waiting jobs. Of those in segments a process knows the entries of the
queue object and, once it needs them, the indexes; rows are decoded when their turn comes. What has
to be read first is asked for by raising ``ColdRowsNeededError``: the committer fetches it and
applies the request again. Segments never change, so what was fetched stays valid for every state.

A row that was decoded is *warm* until it is changed: then it becomes *hot*, which means that the
queue object holds it, and its position in the segment is gone.
"""

from __future__ import annotations

from array import array
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from heapq import heappop, heappush, heapreplace
from itertools import repeat
from typing import Literal, NamedTuple

from bucketq.errors import UnavailableError
from bucketq.model.id_hashes import hash_id, unique_name
from bucketq.model.indexes.cold_segment import Segment
from bucketq.model.indexes.segment_reads import NothingRead, SegmentCache
from bucketq.model.job_ids import distance
from bucketq.model.records import JobRecord, KeyRecord, Unknown
from bucketq.model.segments import (
    JOB_CLASSES,
    Block,
    Gone,
    SegmentClass,
    SegmentIndex,
    SegmentRecord,
)

_MOST_ASKED_BYTES = 4 << 20
"""Enough for a claim of 10,000 small jobs, and a few of the largest."""


class SegmentPart(NamedTuple):
    """A part of a segment that has to be read."""

    segment: SegmentRecord
    what: Literal["index", "seqs", "ids", "vector"] | Block


class ColdRowsNeededError(Exception):
    """A request cannot be applied before these parts of segments have been read.

    It is raised before anything is changed, so the same request can be applied again.
    """

    def __init__(self, parts: list[SegmentPart]) -> None:
        """Name the parts."""
        super().__init__(f"{len(parts)} parts of segments have to be read first")
        self.parts = parts


ColdJob = tuple[int, JobRecord, Unknown | None]
"""The position of a job, the job, and its unknown fields."""


class Place(NamedTuple):
    """Where a cold row is."""

    segment: Segment
    position: int


class ColdRun:
    """Rows of one kind and priority, in a segment, that have not been decoded yet."""

    __slots__ = ("position", "priority", "segment", "seq", "stop")

    def __init__(self, segment: Segment, priority: int, position: int, stop: int, seq: int) -> None:
        """Begin at a position; no row from there on has a number below ``seq``."""
        self.segment = segment
        self.priority = priority
        self.position = position
        self.stop = stop
        self.seq = seq

    @property
    def bound(self) -> tuple[int, int]:
        """No row of it comes before this in the order of claims."""
        return (self.priority, self.seq)


class ColdRows:
    """The segments of one state."""

    def __init__(self, records: Iterable[SegmentRecord] = ()) -> None:
        """Take the entries of a queue object."""
        self.segments = {record.id: Segment(record) for record in records}
        self._live: dict[SegmentClass, int] = {}
        self.jobs_count = 0
        """How many jobs have not left."""
        self.live_bytes = 0
        """About how many bytes the rows take that have not left."""
        self.generation = 0
        """How often a segment was added or dropped."""
        for segment in self.segments.values():
            self._count(segment, segment.live)
        self.is_touched = False
        """Whether an entry was changed since the table was last encoded."""
        self.cache: SegmentCache = NothingRead()
        """What was read of the segments; it outlives the state."""

    def __len__(self) -> int:
        """How many segments there are."""
        return len(self.segments)

    def of_class(self, *classes: SegmentClass) -> Iterator[Segment]:
        """Yield the segments of some classes that can be read."""
        return (
            each
            for each in self.segments.values()
            if each.record.cls in classes and not self.cache.is_damaged(each.record)
        )

    def names(self) -> set[str]:
        """Return the ids of all segments and vectors that are named."""
        vectors = {each.record.vector for each in self.segments.values() if each.record.vector}
        return vectors | self.segments.keys()

    def is_readable(self, segment: Segment) -> bool:
        """Whether a segment is still named, and can be read.

        The rows of one that is missing or damaged wait until it is there again; others do not.
        """
        name = segment.record.id
        return name in self.segments and not self.cache.is_damaged(segment.record)

    def check_complete(self, ids: Iterable[str], *classes: SegmentClass) -> None:
        """Raise ``UnavailableError`` if rows that were not found may be in a damaged segment."""
        damaged = [
            name
            for name, segment in self.segments.items()
            if segment.record.cls in classes and self.cache.is_damaged(segment.record)
        ]
        for row_id in ids if damaged else ():
            message = (
                f"{row_id!r} was not found, and may be in a segment that cannot be read "
                f"({', '.join(damaged)}); `bucketq doctor --deep` says what is wrong with it"
            )
            raise UnavailableError(message)

    def count(self, *classes: SegmentClass) -> int:
        """Count the rows of some classes that have not left."""
        return sum(self._live.get(cls, 0) for cls in classes)

    def add(self, record: SegmentRecord) -> Segment:
        """Name a segment."""
        segment = self.segments[record.id] = Segment(record)
        self.generation += 1
        self._count(segment, segment.live)
        self.is_touched = True
        return segment

    def drop(self, segment: Segment) -> None:
        """Stop naming a segment."""
        del self.segments[segment.record.id]
        self.generation += 1
        self._count(segment, -segment.live)
        self.is_touched = True

    def leave(self, segment: Segment, first: int, last: int) -> None:
        """Note that rows have left their segment; one without rows is dropped."""
        segment.leave(first, last)
        self._count(segment, first - last - 1)
        self.is_touched = True
        if not segment.live:
            self.drop(segment)

    def leave_below(self, segment: Segment, stop: int) -> int:
        """Note that all rows before a position have left; return how many were still there."""
        left = segment.leave_below(stop)
        if left:
            self._count(segment, -left)
            self.is_touched = True
            if not segment.live:
                self.drop(segment)
        return left

    def _count(self, segment: Segment, more: int) -> None:
        record = segment.record
        self._live[record.cls] = self._live.get(record.cls, 0) + more
        if record.cls in JOB_CLASSES:
            self.jobs_count += more
        self.live_bytes += more * (record.bytes // record.rows)

    def indexes(self, *classes: SegmentClass) -> list[tuple[Segment, SegmentIndex]]:
        """Return the segments of some classes with their indexes.

        Raises:
            ColdRowsNeededError: Some have not been read.
        """
        found, missing = [], []
        for segment in self.of_class(*classes):
            try:
                found.append((segment, self.index_of(segment)))
            except ColdRowsNeededError as needed:
                missing += needed.parts
        if missing:
            raise ColdRowsNeededError(missing)
        return found

    def find_jobs(self, ids: Collection[str]) -> dict[str, tuple[ColdJob, Segment]]:
        """Find jobs in segments by their ids. Raises ``ColdRowsNeededError``."""
        found = {}
        for job_id, (segment, position), index in self._candidates(ids, self.indexes(*JOB_CLASSES)):
            for job in self.jobs_of(segment, index, position, position + 1):
                if job[1].id == job_id:
                    found[job_id] = (job, segment)
        self.check_complete((each for each in ids if each not in found), *JOB_CLASSES)
        return found

    def find_keys(self, keys: Collection[str]) -> dict[str, tuple[KeyRecord, Place]]:
        """Find idempotency keys in segments. Raises ``ColdRowsNeededError``."""
        found = {}
        for key, place, index in self._candidates(keys, self.indexes("keys")):
            (record,) = self.keys_of(place.segment, index, place.position, place.position + 1)
            if record.id == key:
                found[key] = (record, place)
        self.check_complete((each for each in keys if each not in found), "keys")
        return found

    def find_unique(self, names: Mapping[str, int]) -> dict[str, JobRecord]:
        """Find the newest waiting jobs in segments by kind and unique name.

        Each must have a larger number than the one given. Raises ``ColdRowsNeededError``.
        """
        found: dict[str, JobRecord] = {}
        after = min(names.values())
        indexes = self.indexes("ready", "later")
        named = [each for each in indexes if each[0].record.last > after and each[1].has_unique]
        for name, (segment, position), index in self._candidates(names, named):
            for _, job, _ in self.jobs_of(segment, index, position, position + 1):
                is_named = job.unique is not None and unique_name(job.kind, job.unique) == name
                newest = found[name].seq if name in found else names[name]
                if is_named and job.seq > newest:
                    found[name] = job
        unfound = (each for each, seq in names.items() if not seq and each not in found)
        self.check_complete(unfound, "ready", "later")
        return found

    def keys_of(
        self, segment: Segment, index: SegmentIndex, start: int, stop: int
    ) -> list[KeyRecord]:
        """Return the keys at some positions, gone or not. Raises ``ColdRowsNeededError``."""
        found, missing = list[KeyRecord](), []
        for block in index.blocks_of(start, stop):
            first, last = max(start, block.start), min(stop, block.stop)
            keys = self.cache.keys(segment.record, block, first, last)
            if keys is None:
                missing.append(SegmentPart(segment.record, block))
            else:
                found += keys
        if missing:
            raise ColdRowsNeededError(missing)
        return found

    def jobs_of(
        self, segment: Segment, index: SegmentIndex, start: int, stop: int
    ) -> list[ColdJob]:
        """Return the jobs at some positions that have not left. Raises ``ColdRowsNeededError``."""
        found, missing = list[ColdJob](), []
        for block in index.blocks_of(start, stop):
            first, last = max(start, block.start), min(stop, block.stop)
            decoded = self.cache.jobs(segment.record, block, first, last)
            if decoded is None:
                missing.append(SegmentPart(segment.record, block))
                continue
            jobs, unknown = decoded
            for begin, end in segment.gone.live_between(first, last):
                some, places = jobs[begin - first : end - first], range(begin, end)
                others = map(unknown.get, places) if unknown else repeat(None)
                found += zip(places, some, others, strict=False)
        if missing:
            raise ColdRowsNeededError(missing)
        return found

    def jobs_at(self, places: Iterable[Place]) -> list[JobRecord]:
        """Return the jobs at places, in that order. Raises ``ColdRowsNeededError``."""
        found, missing = list[JobRecord](), dict[tuple[str, int], SegmentPart]()
        blocks: dict[tuple[str, int], list[JobRecord]] = {}
        for segment, position in places:
            block = self.index_of(segment).blocks_of(position, position + 1)[0]
            slot = (segment.record.id, block.start)
            if slot in missing:
                continue
            if slot not in blocks:
                decoded = self.cache.jobs(segment.record, block, block.start, block.stop)
                if decoded is None:
                    missing[slot] = SegmentPart(segment.record, block)
                    continue
                blocks[slot] = decoded[0]
            found.append(blocks[slot][position - block.start])
        if missing:
            raise ColdRowsNeededError(list(missing.values()))
        return found

    def places_after(
        self, seq: int, classes: Sequence[SegmentClass], kinds: Sequence[str] = ()
    ) -> Iterator[Place]:
        """Yield the places of rows with larger numbers, in the order of their numbers.

        With ``kinds``, only rows of these kinds. Raises ``ColdRowsNeededError`` if the numbers of
        a segment have not been read. A segment is looked into when its turn comes, for a page of
        jobs needs few of them.
        """
        heap: list[tuple[int, int, int]] = []
        segments = [each for each in self.of_class(*classes) if each.record.last > seq]
        if kinds:
            indexes = self.indexes(*classes)
            found = {each.record.id for each, index in indexes if set(kinds) & set(index.kinds)}
            segments = [each for each in segments if each.record.id in found]
        orders: list[Iterator[tuple[int, int]] | None] = [None] * len(segments)
        for number, segment in enumerate(segments):
            heappush(heap, (max(segment.record.seq, seq + 1), number, -1))
        while heap:
            _, number, position = heap[0]
            segment, order = segments[number], orders[number]
            if order is None:
                index, seqs = self.index_of(segment), self.seqs_of(segment)
                order = _live(index.numbered_after(seq, seqs, kinds), segment.gone)
                orders[number] = order
            else:
                yield Place(segment, position)
            following = next(order, None)
            if following is None:
                heappop(heap)
            else:
                heapreplace(heap, (following[0], number, following[1]))

    def index_of(self, segment: Segment) -> SegmentIndex:
        """Return the index of a segment, and know its vector. Raises ``ColdRowsNeededError``."""
        self.require_vector(segment)
        if segment.index is None:
            segment.index = self.cache.index(segment.record)
        if segment.index is None:
            raise ColdRowsNeededError([SegmentPart(segment.record, "index")])
        return segment.index

    def require_vector(self, segment: Segment) -> None:
        """Know what has left a segment. Raises ``ColdRowsNeededError``."""
        if not segment.has_vector:
            vector = self.cache.vector(segment.record)
            if vector is None:
                parts: tuple[Literal["vector", "index"], ...] = ("vector", "index")
                raise ColdRowsNeededError([SegmentPart(segment.record, part) for part in parts])
            segment.take_vector(vector)

    def seqs_of(self, segment: Segment) -> array[int]:
        """Return the number of each row of a segment. Raises ``ColdRowsNeededError``."""
        self.index_of(segment)
        seqs = self.cache.seqs(segment.record)
        if seqs is None:
            raise ColdRowsNeededError([SegmentPart(segment.record, "seqs")])
        return seqs

    def next_jobs(
        self, run: ColdRun, ahead: int = 1, most: int | None = None, wanted: int = 1
    ) -> tuple[list[ColdJob], int]:
        """Return the next jobs of a run, ``most`` or those of a block; and the position behind.

        Raises ``ColdRowsNeededError``, which asks for ``ahead`` blocks at once, or more if the
        claim wants more jobs: each time that it asks it has to begin anew.
        """
        position = run.segment.gone.next_live(run.position)
        if position >= run.stop:
            return [], run.stop
        index = run.segment.index
        if index is None:
            message = f"segment {run.segment.record.id} has runs but no index"
            raise AssertionError(message)
        blocks = index.blocks_of(position, run.stop)
        stop = min(run.stop, blocks[0].stop)
        if most is not None:
            stop = min(stop, position + most)
        try:
            return self.jobs_of(run.segment, index, position, stop), stop
        except ColdRowsNeededError:
            record = run.segment.record
            asked = _first_blocks(blocks, ahead, position + wanted)
            missing = [block for block in asked if not self.cache.has_block(record, block)]
            raise ColdRowsNeededError([SegmentPart(record, each) for each in missing]) from None

    def _candidates(
        self, ids: Collection[str], indexes: list[tuple[Segment, SegmentIndex]]
    ) -> list[tuple[str, Place, SegmentIndex]]:
        """Return the places where rows with these ids may be, whose blocks have been read.

        What is missing is asked for at once, for a request may name thousands of rows.
        """
        hashes = [(row_id, hash_id(row_id)) for row_id in ids]
        missing, found = list[SegmentPart](), list[tuple[str, Place, SegmentIndex]]()
        for segment, index in indexes:
            if segment.record.first_id:
                found += [(*each, index) for each in _places_by_distance(ids, segment)]
                continue
            known = self.cache.ids(segment.record)
            if known is None:
                missing.append(SegmentPart(segment.record, "ids"))
                continue
            found += [
                (row_id, Place(segment, position), index)
                for row_id, id_hash in hashes
                for position in known.find(id_hash)
                if position not in segment.gone
            ]
        if missing:
            raise ColdRowsNeededError(missing)
        self._ask_for_blocks(place_and_index[1:] for place_and_index in found)
        return found

    def _ask_for_blocks(self, places: Iterable[tuple[Place, SegmentIndex]]) -> None:
        """Raise ``ColdRowsNeededError`` unless the blocks of these places have been read."""
        missing: dict[tuple[str, int], SegmentPart] = {}
        for (segment, position), index in places:
            block = index.blocks_of(position, position + 1)[0]
            if not self.cache.has_block(segment.record, block):
                missing[segment.record.id, block.start] = SegmentPart(segment.record, block)
        if missing:
            raise ColdRowsNeededError(list(missing.values()))


def _places_by_distance(ids: Collection[str], segment: Segment) -> Iterator[tuple[str, Place]]:
    """Yield the places of rows in a segment whose ids follow each other."""
    record = segment.record
    for row_id in ids:
        position = distance(record.first_id, row_id)
        if position is not None and position < record.rows and position not in segment.gone:
            yield row_id, Place(segment, position)


def _live(rows: Iterator[tuple[int, int]], gone: Gone) -> Iterator[tuple[int, int]]:
    """Leave out rows that have left, by their positions."""
    return (row for row in rows if row[1] not in gone)


def _first_blocks(blocks: Sequence[Block], least: int, stop: int) -> Sequence[Block]:
    """Return the first ``least`` blocks, and those that begin before ``stop``, of 4 MiB in all."""
    count = size_bytes = 0
    while count < len(blocks) and (count < least or blocks[count].start < stop):
        size_bytes += blocks[count].length
        if count >= least and size_bytes > _MOST_ASKED_BYTES:
            break
        count += 1
    return blocks[:count]
