"""Segments: immutable objects that hold rows which are not running, so that a commit stays small.

A queue object names its segments in a table. An entry says what the segment is and which of its
rows have left since; the segment's own index says where its rows stand. Rows are addressed by
their position in the segment, from 0.

Everything here is plain data: ``codec.segment_file`` reads and writes segments, ``commit`` fetches
them.
"""

from array import array
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from datetime import datetime
from heapq import merge
from typing import Literal, NamedTuple, Self

from msgspec import Struct, field

from bucketq.model.base import Operation
from bucketq.model.records import JobRecord, KeyRecord, Unknown
from bucketq.model.results import SpillResults
from bucketq.model.settings import Settings

SegmentClass = Literal["ready", "later", "dead", "keys"]
"""What the rows of a segment are: jobs to be claimed, jobs with a time before which they may not
be claimed, dead jobs, or idempotency keys. Each class has the order in which such rows leave."""

JOB_CLASSES: tuple[SegmentClass, ...] = ("ready", "later", "dead")

_FEW_RUNS = 16
"""If runs have so many rows on average, merging them is faster than sorting all rows."""

CONSECUTIVE = "consecutive-rows"
"""What an object requires of its readers if a segment has a ``first_id``: others could not read its
lines, which have no ids."""

Range = tuple[int, int]
"""The first and the last of some positions."""


class Pushed(NamedTuple):
    """What the lines of a push leave out, because only its commit decides it."""

    base: int
    """A row has this number and the one in its line."""
    at: datetime
    """When it was pushed."""
    first_id: str = ""
    """If it is not empty, lines have no id and no number: ids follow this one, numbers the base."""


class SegmentRecord(
    Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True, forbid_unknown_fields=True
):
    """The entry of a segment in the queue object."""

    id: str
    """The last version that may introduce it, or a reservation, and a digest of its bytes; also
    its key."""
    cls: SegmentClass = field(name="class")
    seq: int
    """The lowest number of its rows."""
    last: int
    """The highest number of its rows."""
    rows: int
    live: int
    """How many of its rows have not left."""
    bytes: int
    index: int
    """The length of its last line, the index."""
    crc32: str
    """The checksum of the index, which has the checksums of everything else."""
    at: datetime
    """When it was written; old segments are written anew, before a lifecycle rule deletes them."""
    gone: tuple[Range, ...] = ()
    """The positions of rows that have left, in order, as ranges that do not touch."""
    vector: str = ""
    """The id of an object that holds more positions of rows that have left; empty: there is none.
    ``gone`` then has those that have left since it was written."""
    vector_bytes: int = 0
    base: int = 0
    """What is added to the numbers in its lines. If it is not 0, the lines were written before the
    push that they belong to was committed: its jobs are queued, and were pushed at ``pushed_at``.
    After a lost race the same segment is named with another base."""
    pushed_at: datetime | None = None
    expires_at: datetime | None = None
    """No job of it expires before this; None: none does."""
    first_id: str = ""
    """The id of its first row, if it is one run of a push whose ids follow each other: then lines
    have no ids and numbers, and a row is found by the distance of its id."""

    @property
    def order(self) -> tuple[str, int, str]:
        """By what the entries of a table are sorted, so that all processes write the same bytes."""
        return (self.cls, self.seq, self.id)

    @property
    def until(self) -> int:
        """The last version that may introduce it."""
        return int(self.id[: self.id.index("-")])

    @property
    def pushed(self) -> Pushed | None:
        """What its lines leave out; None: nothing, its rows are as in the queue object."""
        return None if self.pushed_at is None else Pushed(self.base, self.pushed_at, self.first_id)


class Run(NamedTuple):
    """Rows of a ``ready`` segment of one kind, priority and group, in the order of pushes."""

    kind: str
    priority: int
    start: int
    stop: int
    """The position behind the last one."""
    seq: int
    """The lowest number of its rows, without the base of the segment."""
    group: str = ""


class Block(NamedTuple):
    """Rows that are read together, because they have one checksum."""

    start: int
    stop: int
    """The position behind the last one."""
    offset: int
    """Where its first row begins in the segment."""
    length: int
    crc: int


class BlockExpiry(NamedTuple):
    """When the jobs of a block expire, those that do."""

    block: int
    """Its place among the blocks."""
    first: datetime
    last: datetime


class Line(NamedTuple):
    """A line of a segment that is read by itself."""

    offset: int
    length: int
    crc: int


class Gone:
    """The positions of a segment whose rows have left, as sorted ranges that do not touch."""

    __slots__ = ("_firsts", "_lasts", "count")

    def __init__(self, ranges: Sequence[Range] = ()) -> None:
        """Take ranges in order. Raises ``ValueError`` if they are not, or overlap."""
        self._firsts = [first for first, _ in ranges]
        self._lasts = [last for _, last in ranges]
        self.count = 0
        before = -2
        for first, last in ranges:
            if first <= before + 1 or last < first:
                message = f"ranges out of order: {first} to {last} follows {before}"
                raise ValueError(message)
            self.count += last - first + 1
            before = last

    def __contains__(self, position: int) -> bool:
        """Whether the row at a position has left."""
        place = bisect_right(self._firsts, position) - 1
        return place >= 0 and position <= self._lasts[place]

    def __len__(self) -> int:
        """How many ranges there are."""
        return len(self._firsts)

    @property
    def ranges(self) -> tuple[Range, ...]:
        """The ranges, in order."""
        return tuple(zip(self._firsts, self._lasts, strict=True))

    def add(self, first: int, last: int | None = None) -> None:
        """Note that a row, or all rows up to the one at ``last``, which were there, have left."""
        last = first if last is None else last
        firsts, lasts = self._firsts, self._lasts
        place = bisect_right(firsts, last)
        if place and first <= lasts[place - 1]:
            message = f"a row from {first} to {last} has left before"
            raise ValueError(message)
        self.count += last - first + 1
        joins_left = place > 0 and lasts[place - 1] == first - 1
        joins_right = place < len(firsts) and firsts[place] == last + 1
        if joins_left and joins_right:
            lasts[place - 1] = lasts.pop(place)
            del firsts[place]
        elif joins_left:
            lasts[place - 1] = last
        elif joins_right:
            firsts[place] = first
        else:
            firsts.insert(place, first)
            lasts.insert(place, last)

    def add_below(self, stop: int) -> None:
        """Note that all rows before a position have left, those that were still there."""
        if stop <= 0:
            return
        self.count += stop - self.count_between(0, stop)
        place, end = bisect_right(self._firsts, stop), stop - 1
        if place:
            end = max(end, self._lasts[place - 1])
        self._firsts[:place] = [0]
        self._lasts[:place] = [end]

    def contains(self, other: Self) -> bool:
        """Whether all positions of ``other`` are among these."""
        return all(
            self.count_between(first, last + 1) == last - first + 1 for first, last in other.ranges
        )

    def joined(self, other: Self) -> Self:
        """Return the positions of both."""
        ranges: list[Range] = []
        for first, last in sorted([*self.ranges, *other.ranges]):
            if ranges and first <= ranges[-1][1] + 1:
                ranges[-1] = (ranges[-1][0], max(last, ranges[-1][1]))
            else:
                ranges.append((first, last))
        return type(self)(ranges)

    def next_live(self, position: int) -> int:
        """Return the first position from ``position`` on whose row has not left."""
        place = bisect_right(self._firsts, position) - 1
        if place >= 0 and position <= self._lasts[place]:
            return self._lasts[place] + 1
        return position

    def between(self, start: int, stop: int) -> Iterator[Range]:
        """Yield the ranges, cut to what is from ``start`` to before ``stop``."""
        place = max(0, bisect_right(self._firsts, start) - 1)
        while place < len(self._firsts) and self._firsts[place] < stop:
            first, last = max(self._firsts[place], start), min(self._lasts[place], stop - 1)
            if first <= last:
                yield first, last
            place += 1

    def live_between(self, start: int, stop: int) -> Iterator[tuple[int, int]]:
        """Yield the first and the end of each range of rows that have not left."""
        for first, last in self.between(start, stop):
            if start < first:
                yield start, first
            start = last + 1
        if start < stop:
            yield start, stop

    def count_between(self, start: int, stop: int) -> int:
        """Count the rows that have left from ``start`` to before ``stop``."""
        return sum([last - first + 1 for first, last in self.between(start, stop)])


class SegmentIndex(NamedTuple):
    """Where the rows of a segment stand."""

    kinds: tuple[str, ...]
    """The kinds of its jobs."""
    runs: tuple[Run, ...]
    """The runs of a ``ready`` segment, in order."""
    kind_numbers: "array[int]"
    """For each row of a ``later`` or ``dead`` segment, the place of its kind in ``kinds``."""
    blocks: tuple[Block, ...]
    times: tuple[datetime, datetime] | None
    """The first and the last ``run_at``, ``finished_at`` or ``at``; None in a ``ready`` segment."""
    seqs: Line
    """The line that holds the number of each row."""
    ids: Line
    """The line that holds the hashes of the ids, and of unique names."""
    expiries: tuple[BlockExpiry, ...] = ()
    """The blocks with jobs that expire."""
    has_groups: bool = False
    """Whether jobs of it have a group."""

    @property
    def has_unique(self) -> bool:
        """Whether it has jobs with unique names: then it has more hashes than rows."""
        return self.ids.length > 3 + 16 * self.blocks[-1].stop  # 12 bytes each, in base64.

    def count_kinds(self, gone: Gone, start: int = 0) -> dict[str, int]:
        """Count the rows of each kind that have not left; from ``start`` on, if it has no runs."""
        counts = Counter[str]()
        for run in self.runs:
            counts[run.kind] += run.stop - run.start - gone.count_between(run.start, run.stop)
        numbers = self.kind_numbers[start:] if start else self.kind_numbers
        for number, count in Counter(numbers).items():
            counts[self.kinds[number]] += count
        if self.kind_numbers:
            for first, last in gone.ranges:
                for number in self.kind_numbers[max(first, start) : last + 1]:
                    counts[self.kinds[number]] -= 1
        return {kind: count for kind, count in counts.items() if count}

    def numbered_after(
        self, seq: int, seqs: "array[int]", kinds: Collection[str]
    ) -> Iterator[tuple[int, int]]:
        """Yield the rows with numbers above ``seq`` in their order: number and position.

        In a run they are in this order, so a page of a segment with few runs needs no sorting.
        """
        if len(self.runs) * _FEW_RUNS > len(seqs) or not self.runs:
            positions = self.positions_of(kinds)
            return iter(sorted((seqs[p], p) for p in positions if seqs[p] > seq))
        runs = (run for run in self.runs if not kinds or run.kind in kinds)
        return merge(*(_run_after(seq, seqs, run) for run in runs))

    def positions_of(self, kinds: Collection[str]) -> Iterable[int]:
        """Return the positions of jobs of some kinds; without kinds, all positions."""
        if not kinds:
            return range(self.blocks[-1].stop)
        if self.runs:
            runs = (run for run in self.runs if run.kind in kinds)
            return (position for run in runs for position in range(run.start, run.stop))
        wanted = {number for number, kind in enumerate(self.kinds) if kind in kinds}
        return (p for p, number in enumerate(self.kind_numbers) if number in wanted)

    def blocks_of(self, start: int, stop: int) -> Sequence[Block]:
        """Return the blocks that hold the positions from ``start`` to before ``stop``."""
        first = bisect_right(self.blocks, start, key=_start) - 1
        last = bisect_left(self.blocks, stop, key=_start)
        return self.blocks[first:last]


class SegmentIds(NamedTuple):
    """The hashes of ids and unique names of a segment's rows, sorted, each with a position."""

    hashes: "array[int]"
    positions: "array[int]"

    def find(self, id_hash: int) -> Iterator[int]:
        """Yield the positions of the rows whose ids have this hash; mostly none or one."""
        place = bisect_left(self.hashes, id_hash)
        while place < len(self.hashes) and self.hashes[place] == id_hash:
            yield self.positions[place]
            place += 1


class WrittenSegment(Struct, frozen=True):
    """A segment that is in the store, and was not named yet."""

    record: SegmentRecord
    index: SegmentIndex
    seqs: "array[int]"
    """The number of the row at each position; in a push, its place there."""


class WrittenRows(Struct, frozen=True):
    """Rows of a push that were put in segments before it is applied."""

    segments: tuple[WrittenSegment, ...]
    settings: Settings
    """What all jobs of the push were checked by."""


class Spill(Operation, frozen=True):
    """Move jobs to a segment that holds them. Answers how many it moved."""

    segment: WrittenSegment
    jobs: tuple[JobRecord, ...]
    """The job at each position, as it was written."""
    unknown: dict[str, Unknown] = field(default_factory=dict)
    """The unknown fields of those that have some, by id."""


class SpillKeys(Operation, frozen=True):
    """Move idempotency keys to a segment that holds them. Answers how many it moved."""

    segment: WrittenSegment
    keys: tuple[KeyRecord, ...]
    """The key at each position, as it was written."""
    unknown: dict[str, Unknown] = field(default_factory=dict)
    """The unknown fields of those that have some, by id."""


class NameVector(Operation, frozen=True):
    """Move positions of rows that have left to an object. Answers for how many segments it did."""

    id: str
    """The last version that may introduce it, and a digest of its bytes; also its key."""
    bytes: int
    gone: dict[str, tuple[Range, ...]]
    """What it holds, by segment."""

    @property
    def until(self) -> int:
        """The last version that may introduce it."""
        return int(self.id[: self.id.index("-")])


class Stretch(NamedTuple):
    """Rows that stand behind each other in a segment."""

    source: str
    """The id of the segment."""
    start: int
    stop: int
    """The position behind the last one."""


class Merge(Operation, frozen=True):
    """Replace segments by others that hold the same rows. Answers how many it dropped.

    Segments of keys are not merged with segments of jobs.
    """

    sources: tuple[str, ...]
    targets: tuple[WrittenSegment, ...]
    origins: tuple[tuple[Stretch, ...], ...]
    """For each target, where its rows were, in the order in which they are there."""
    pushed: dict[str, Pushed] = field(default_factory=dict)
    """What the lines of sources left out, and was added to the rows of the targets."""


class TidySegments(Operation, frozen=True):
    """Do for rows in segments what ``Tidy`` does for others. Answers how many rows it dropped."""


class ForgetFormer(Operation, frozen=True):
    """Forget former incarnations, of which no segments are left. Answers how many it forgot."""

    incarnations: tuple[str, ...]


def _run_after(seq: int, seqs: "array[int]", run: Run) -> Iterator[tuple[int, int]]:
    start = bisect_right(seqs, seq, run.start, run.stop)
    return ((seqs[position], position) for position in range(start, run.stop))


def _start(block: Block) -> int:
    return block.start


SEGMENT_CHANGES = (Spill, SpillKeys, SpillResults, Merge, NameVector, TidySegments, ForgetFormer)
AnySegmentChange = (
    Spill | SpillKeys | SpillResults | Merge | NameVector | TidySegments | ForgetFormer
)
"""Operations by which a writer moves rows to segments, and cares for these."""
