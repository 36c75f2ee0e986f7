"""The jobs in segments, in the order in which their turns come.

For the claims of a kind the next cold job is the head of one of many runs, and of a run only a
bound is known until its next rows are decoded. So a claim compares its best decoded job with the
smallest bound, and decodes the next rows of that run if the bound is smaller. Delayed and dead
jobs are reached in the same way, by their times.

A job that was decoded is lent to the table of jobs: it can be found there by its id like any other,
but is written to the queue object only when it is changed.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from datetime import datetime
from heapq import heapify, heappop, heappush, heapreplace
from typing import NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from bucketq.model.indexes.cold_rows import ColdJob, ColdRows, ColdRun, Place, SegmentPart
from bucketq.model.indexes.cold_segment import Segment
from bucketq.model.indexes.group_turns import GroupTurns
from bucketq.model.indexes.lane import lane_of
from bucketq.model.indexes.table import Table
from bucketq.model.records import JobRecord, Status, Unknown
from bucketq.model.segments import (
    Block,
    SegmentClass,
    SegmentIndex,
    SegmentRecord,
    Stretch,
)

_STATUS: dict[SegmentClass, Status] = {"ready": "queued", "later": "queued", "dead": "dead"}
"""The status of the jobs of each class."""


_READ_AHEAD = 8
"""How many blocks are asked for when the next jobs of a run are needed, because the claims after
this one need them: 256 KiB, some 1,000 jobs, take hardly longer to read than one block."""
_GROUP_JOBS = 16
"""How many jobs of a group are decoded at once: there may be thousands of groups, of which each has
one job in a round."""


class Lent(Struct, frozen=True, gc=False):
    """A decoded job: where it is, and whether it was handed to its lane.

    One is made for every job that is claimed from a segment, so it has no ``Place`` of its own.
    """

    segment: Segment
    position: int
    is_lined_up: bool
    unknown: Unknown | None
    """Its fields that this version of bucketq does not know."""


class MovedRows(NamedTuple):
    """Rows of a segment that stand behind each other in another one now."""

    rows: Stretch
    place: Place
    """Where the first of them is."""


class _Cursor(NamedTuple):
    """How far the jobs of a ``later`` or ``dead`` segment have been decoded.

    The first two fields order cursors; no two have the same number.
    """

    bound: datetime
    number: int
    run: ColdRun


class ColdJobs:
    """The jobs in the segments of one state."""

    def __init__(self, rows: ColdRows, table: Table[JobRecord]) -> None:
        """Lend jobs of ``rows`` to ``table``."""
        self.rows = rows
        self.turns = GroupTurns()
        self._table = table
        self.unread = {segment.record.id: segment for segment in rows.of_class(*_STATUS)}
        """The segments whose indexes have not been read."""
        self.lanes: dict[str, list[tuple[int, int, int, ColdRun]]] = {}
        """For each lane that has cold jobs to be claimed, a heap of runs by their bounds."""
        self._read_ahead = set[str]()
        """The lanes whose next jobs were read, though not decoded, when this was last looked at."""
        self._later: list[_Cursor] = []
        self._dead: list[_Cursor] = []
        self._delayed: dict[str, tuple[tuple[int, int], dict[str, int]]] = {}
        """What ``count_delayed`` found in each segment, and for which position and live rows: to
        count a segment of 36,000 rows takes a millisecond, and few change between two counts."""
        self._lent: dict[str, Lent] = {}
        self.lent_dead = 0
        """How many dead jobs are decoded and unchanged."""
        self._next = 0

    @property
    def lent(self) -> int:
        """How many jobs are decoded and unchanged."""
        return len(self._lent)

    @property
    def is_attached(self) -> bool:
        """Whether the indexes of all segments that can be read were read."""
        return not any(map(self.rows.is_readable, self.unread.values()))

    def is_lent(self, job_id: str) -> bool:
        """Whether a job is decoded and unchanged."""
        return job_id in self._lent

    def attach(self, some: Collection[Segment] | None = None) -> dict[tuple[str, Status], int]:
        """Take the indexes of all segments, or some; return how many jobs they add to the counts.

        Raises:
            ColdRowsNeededError: An index has not been read.
        """
        added: dict[tuple[str, Status], int] = {}
        if some is None:
            found = self.rows.indexes(*_STATUS)
        else:
            found = [(segment, self.rows.index_of(segment)) for segment in some]
        for segment, index in found:
            if self.unread.pop(segment.record.id, None) is not None:
                status = _STATUS[segment.record.cls]
                for kind, count in index.count_kinds(segment.gone).items():
                    added[kind, status] = added.get((kind, status), 0) + count
                self._line_up(segment, index)
        return added

    def count_undecoded(self, name: str) -> int:
        """Count the jobs of a lane that wait to be claimed and have not been decoded."""
        runs = (run for *_, run in self.lanes.get(name, ()))
        return sum(
            run.stop - run.position - run.segment.gone.count_between(run.position, run.stop)
            for run in runs
        )

    def bound_of(self, name: str) -> tuple[int, int] | None:
        """No cold job of a lane comes before this in the order of claims; None: there is none."""
        lane = self.lanes.get(name)
        if lane is None:
            return None
        while lane:
            run = lane[0][3]
            position = run.segment.gone.next_live(run.position)
            if position < run.stop and self.rows.is_readable(run.segment):
                return lane[0][:2]
            heappop(lane)
        del self.lanes[name]
        return None

    def decode_next(self, name: str, wanted: int = 1) -> list[JobRecord]:
        """Decode the next jobs of the run that ``bound_of`` stands for; return those to line up.

        Raises:
            ColdRowsNeededError: They have not been read. It asks for ``wanted`` jobs, if it can.
        """
        lane = self.lanes[name]
        run = lane[0][3]
        self._read_ahead.discard(name)
        if "\n" in name:
            jobs, stop = self.rows.next_jobs(run, 1, _GROUP_JOBS)
        else:
            jobs, stop = self.rows.next_jobs(run, _READ_AHEAD, wanted=wanted)
        run.position = stop
        if jobs:
            run.seq = jobs[-1][1].seq + 1
        if stop < run.stop:
            heapreplace(lane, (run.priority, run.seq, self._number(), run))
        else:
            heappop(lane)
        return self._lend_all(run.segment, jobs)

    def ahead(self, name: str) -> list[SegmentPart]:
        """Return what claims of a lane will need next and was not read.

        It is nothing before half of what was read ahead is used, so that each request reads much.
        Every claim asks for it.
        """
        if name in self._read_ahead:
            return []
        lane, blocks = self.lanes.get(name, []), list[tuple[SegmentRecord, Block]]()
        # The second of a heap is one of the two below its first.
        for *_, run in lane[:1] + sorted(lane[1:3], key=_bound)[:1]:
            position, index = run.segment.gone.next_live(run.position), run.segment.index
            if index is not None and position < run.stop and self.rows.is_readable(run.segment):
                found = index.blocks_of(position, run.stop)[:_READ_AHEAD]
                blocks += [(run.segment.record, block) for block in found]
        has = self.rows.cache.has_block
        if all(has(*block) for block in blocks[: _READ_AHEAD // 2]):
            self._read_ahead.add(name)
            return []
        return [SegmentPart(*block) for block in blocks[:_READ_AHEAD] if not has(*block)]

    def next_due(self) -> datetime | None:
        """No cold delayed job is due before this; None: there is none."""
        return self._first(self._later)

    def release_due(self, now: datetime) -> None:
        """Let cold delayed jobs that are due be claimed in their order.

        Raises:
            ColdRowsNeededError: They have not been read.
        """
        while (bound := self._first(self._later)) is not None and bound <= now:
            run = self._later[0].run
            jobs, stop = self.rows.next_jobs(run, _READ_AHEAD)
            heappop(self._later)
            bound = now
            for position, job, _ in jobs:
                bound = job.run_at or now
                if bound > now:
                    stop = position
                    break
                single = ColdRun(run.segment, job.priority, position, position + 1, job.seq)
                self._push(job.kind, job.group, single)
            run.position = stop
            if stop < run.stop:
                heappush(self._later, _Cursor(bound, self._number(), run))

    def count_delayed(self, now: datetime) -> Counter[str]:
        """Count the cold delayed jobs of each kind; some that fell due since a claim may be in it.

        Rows are in the order of their times, of which an index has the first and the last.
        """
        counts = Counter[str]()
        known, self._delayed = self._delayed, {}
        for _, _, run in self._later:
            segment, index = run.segment, run.segment.index
            if index is None or not self.rows.is_readable(segment):
                continue
            if index.times is None or index.times[1] <= now:
                continue
            mark, name = (run.position, segment.live), segment.record.id
            found = known.get(name)
            if found is None or found[0] != mark:
                found = mark, index.count_kinds(segment.gone, run.position)
            self._delayed[name] = found
            counts.update(found[1])
        return counts

    def next_death(self) -> datetime | None:
        """No cold dead job that has not been decoded died before this; None: there is none."""
        return self._first(self._dead)

    def decode_next_dead(self) -> list[JobRecord]:
        """Decode the next dead jobs. Raises ``ColdRowsNeededError``."""
        run = self._dead[0].run
        jobs, stop = self.rows.next_jobs(run)
        heappop(self._dead)
        run.position = stop
        if stop < run.stop:
            bound = jobs[-1][1].finished_at or jobs[-1][1].pushed_at
            heappush(self._dead, _Cursor(bound, self._number(), run))
        return self._lend_all(run.segment, jobs)

    def lend(self, segment: Segment, job: ColdJob) -> JobRecord:
        """Lend a job that was decoded, and is dead or expired, to the table; return its record."""
        self._lend_all(segment, [job])
        return self._table.by_id[job[1].id]

    def oldest_queued(self, below: int | None) -> JobRecord | None:
        """Find the waiting job with the lowest number, if that is lower than ``below``.

        Raises:
            ColdRowsNeededError: Something that decides it has not been read.
        """
        best: tuple[int, Place] | None = None
        queued = sorted(self.rows.indexes("ready", "later"), key=lambda each: each[0].record.seq)
        for segment, index in queued:
            limit = best[0] if best else below
            if limit is not None and segment.record.seq >= limit:
                break
            seqs = self.rows.seqs_of(segment)
            position = min(_first_rows(segment, index), key=seqs.__getitem__)
            if limit is None or seqs[position] < limit:
                best = (seqs[position], Place(segment, position))
        return None if best is None else self.rows.jobs_at([best[1]])[0]

    def read(self, job_id: str) -> JobRecord | None:
        """Find a job by its id, to be looked at. Raises ``ColdRowsNeededError``."""
        found = self.find([job_id]).get(job_id)
        return None if found is None else found[0][1]

    def find(self, ids: Collection[str]) -> dict[str, tuple[ColdJob, Segment]]:
        """Find jobs by their ids, to be looked at. Raises ``ColdRowsNeededError``."""
        return self.rows.find_jobs(ids) if ids and self.rows.count(*_STATUS) else {}

    def borrow(self, job_id: str) -> JobRecord | None:
        """Find a job by its id, to be changed. Raises ``ColdRowsNeededError``."""
        found = self.find([job_id]).get(job_id)
        if found is None:
            return None
        (position, job, unknown), segment = found
        self._table.lend(job)
        self.lent_dead += job.status == "dead"
        self._lent[job.id] = Lent(segment, position, is_lined_up=False, unknown=unknown)
        return job

    def give_up(self, jobs: Iterable[JobRecord]) -> dict[str, Lent]:
        """Let the rows of those jobs that are lent leave their segments; return these."""
        lent = {job.id: found for job in jobs if (found := self._lent.pop(job.id, None))}
        segment, first, last = None, 0, -1
        for each in lent.values():  # Most stand behind each other, and leave together.
            if each.segment is not segment or each.position != last + 1:
                self._leave(segment, first, last)
                segment, first = each.segment, each.position
            last = each.position
        self._leave(segment, first, last)
        return lent

    def _leave(self, segment: Segment | None, first: int, last: int) -> None:
        if segment is not None:
            self.lent_dead -= (last - first + 1) * (segment.record.cls == "dead")
            self.rows.leave(segment, first, last)

    def add(self, record: SegmentRecord, index: SegmentIndex) -> Segment:
        """Name a segment of jobs, which the state counts."""
        segment = self.rows.add(record)
        segment.index = index
        self._line_up(segment, index)
        return segment

    def move(self, sources: list[Segment], moved: Iterable[MovedRows]) -> None:
        """Drop segments whose jobs are in others now; ``moved`` says where, for all of them."""
        dropped = {source.record.id for source in sources}
        self._read_ahead.clear()
        for source in sources:
            self.rows.drop(source)
            self.unread.pop(source.record.id, None)
        taken = {job_id: lent for job_id, lent in self._lent.items() if _name(lent) in dropped}
        if taken:
            by_source: dict[str, list[MovedRows]] = {}
            for each in sorted(moved, key=_first_row):
                by_source.setdefault(each.rows.source, []).append(each)
            for job_id, lent in taken.items():
                found = by_source[_name(lent)]
                rows, place = found[bisect_right(found, lent.position, key=_first_row) - 1]
                segment, position = place.segment, place.position + lent.position - rows.start
                self._lent[job_id] = replace(lent, segment=segment, position=position)
        for name, lane in list(self.lanes.items()):
            kept = [each for each in lane if each[3].segment.record.id not in dropped]
            if len(kept) < len(lane):
                heapify(kept)
                self.lanes[name] = kept
        self._later = _without(self._later, dropped)
        self._dead = _without(self._dead, dropped)

    def _line_up(self, segment: Segment, index: SegmentIndex) -> None:
        if segment.record.cls == "ready":
            base = segment.record.base
            for run in index.runs:
                if run.stop > segment.gone.next_live(run.start):
                    cold = ColdRun(segment, run.priority, run.start, run.stop, base + run.seq)
                    self._push(run.kind, run.group, cold)
            return
        if index.times is None:
            message = f"segment {segment.record.id} has no times"
            raise AssertionError(message)
        cursors = self._later if segment.record.cls == "later" else self._dead
        whole = ColdRun(segment, 0, 0, segment.record.rows, segment.record.seq)
        heappush(cursors, _Cursor(index.times[0], self._number(), whole))

    def _push(self, kind: str, group: str, run: ColdRun) -> None:
        entry = (run.priority, run.seq, self._number(), run)
        if group:
            self.turns.note(kind, group, run.priority)
        name = lane_of(kind, group)
        self._read_ahead.discard(name)
        heappush(self.lanes.setdefault(name, []), entry)

    def _first(self, cursors: list[_Cursor]) -> datetime | None:
        while cursors:
            run = cursors[0].run
            if (
                self.rows.is_readable(run.segment)
                and run.segment.gone.next_live(run.position) < run.stop
            ):
                return cursors[0].bound
            heappop(cursors)
        return None

    def _lend_all(self, segment: Segment, jobs: list[ColdJob]) -> list[JobRecord]:
        """Lend jobs to the table; return those that were not handed to their lanes before."""
        ids = [found.id for _, found, _ in jobs]
        if self._lent.keys().isdisjoint(ids):  # As nearly always.
            fresh = [found for _, found, _ in jobs]
            self._table.by_id.update(zip(ids, fresh, strict=True))
            self.lent_dead += len(jobs) * (segment.record.cls == "dead")
            new = [Lent(segment, position, True, unknown) for position, _, unknown in jobs]  # noqa: FBT003 - fast
            self._lent.update(zip(ids, new, strict=True))
            return fresh
        fresh = []
        for position, found, unknown in jobs:
            lent = self._lent.get(found.id)
            job = found if lent is None else self._table.by_id[found.id]
            if lent is None:
                self._table.lend(job)
                self.lent_dead += job.status == "dead"
            if lent is None or not lent.is_lined_up:
                self._lent[job.id] = Lent(segment, position, True, unknown)  # noqa: FBT003 - fast
                fresh.append(job)
        return fresh

    def _number(self) -> int:
        """A number that no other entry of a heap has, so that runs are never compared."""
        self._next += 1
        return self._next


def _first_rows(segment: Segment, index: SegmentIndex) -> Iterator[int]:
    """Yield positions of live rows, the one with the lowest number among them.

    A run is in the order of its numbers, so its first row is enough: a segment may have 60,000.
    """
    gone = segment.gone
    if not index.runs:
        return (p for p in range(segment.record.rows) if p not in gone)
    firsts = ((gone.next_live(run.start), run.stop) for run in index.runs)
    return (position for position, stop in firsts if position < stop)


def _name(lent: Lent) -> str:
    return lent.segment.record.id


def _first_row(moved: MovedRows) -> int:
    return moved.rows.start


def _bound(entry: tuple[int, int, int, ColdRun]) -> tuple[int, int]:
    return entry[:2]


def _without(cursors: list[_Cursor], dropped: set[str]) -> list[_Cursor]:
    kept = [each for each in cursors if each.run.segment.record.id not in dropped]
    heapify(kept)
    return kept
