"""Dead jobs in the order of their deaths, from the object and from segments.

Those in segments are decoded as they are reached, so that a request that wants some of them costs
no more than these. Jobs of some kinds are found by the indexes; others are not decoded.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from datetime import datetime
from heapq import heapify, heappop, heappush, merge
from itertools import islice

from bucketq.model.indexes.cold_rows import ColdJob, ColdRows, ColdRowsNeededError, SegmentPart
from bucketq.model.indexes.cold_segment import Segment
from bucketq.model.indexes.finished_jobs import finished_at
from bucketq.model.records import JobRecord
from bucketq.model.segments import SegmentIndex
from bucketq.model.state import State

_AHEAD = 16
"""How many blocks are asked for at once: as many as are read in parallel."""

_Death = tuple[datetime, int, JobRecord]
"""When a job died, and its number; no two are equal, so jobs are never compared."""


def dead_jobs(state: State, kinds: Collection[str] = ()) -> Iterator[JobRecord]:
    """Yield dead jobs, those of one moment in the order of their pushes; all, or of some kinds.

    Raises:
        ColdRowsNeededError: Some have not been read.
    """
    state.attach_cold()
    return _of_kinds(state, kinds) if kinds else _of_any_kind(state)


def _of_any_kind(state: State) -> Iterator[JobRecord]:
    found: list[_Death] = [(finished_at(job), job.seq, job) for job in state.dead.values()]
    heapify(found)
    while True:
        bound = state.cold.next_death()
        if found and (bound is None or found[0][0] < bound):
            yield heappop(found)[2]
        elif bound is None:
            return
        else:
            for job in state.cold.decode_next_dead():
                if job.id not in state.dead:
                    _enter(state, job)
                    heappush(found, (finished_at(job), job.seq, job))


def _of_kinds(state: State, kinds: Collection[str]) -> Iterator[JobRecord]:
    hot: list[_Death] = sorted(
        (finished_at(job), job.seq, job)
        for job in state.dead.values()
        if job.kind in kinds and not state.cold.is_lent(job.id)
    )
    for *_, job in merge(hot, _cold_of_kinds(state, kinds)):
        yield job


def _cold_of_kinds(state: State, kinds: Collection[str]) -> Iterator[_Death]:
    """Decode the jobs of some kinds one by one, from the segment with the next death."""
    rows = state.cold.rows
    segments: list[tuple[Segment, SegmentIndex, list[int]]] = []
    heap: list[tuple[datetime, int, int, int]] = []
    decoded: dict[int, ColdJob] = {}
    for segment, index in rows.indexes("dead"):
        if not any(kind in kinds for kind in index.kinds):
            continue
        live = [p for p in index.positions_of(kinds) if p not in segment.gone]
        if live and index.times:
            heappush(heap, (index.times[0], -1, len(segments), 0))
            segments.append((segment, index, live))
    while heap:
        _, seq, number, place = heappop(heap)
        segment, index, live = segments[number]
        if seq >= 0:
            job = state.cold.lend(segment, decoded.pop(number))
            if job.id not in state.dead:
                _enter(state, job)
            yield (finished_at(job), job.seq, job)
            place += 1
        if place < len(live):
            found = decoded[number] = _decode(rows, segment, index, live, place)
            heappush(heap, (finished_at(found[1]), found[1].seq, number, place))


def _decode(
    rows: ColdRows, segment: Segment, index: SegmentIndex, live: list[int], place: int
) -> ColdJob:
    """Decode one of some jobs of a segment; ask for the blocks of the next ones, too."""
    try:
        return rows.jobs_of(segment, index, live[place], live[place] + 1)[0]
    except ColdRowsNeededError:
        missing: dict[int, SegmentPart] = {}
        for position in islice(live, place, None):
            block = index.blocks_of(position, position + 1)[0]
            if not rows.cache.has_block(segment.record, block):
                missing[block.start] = SegmentPart(segment.record, block)
            if len(missing) == _AHEAD:
                break
        raise ColdRowsNeededError(list(missing.values())) from None


def _enter(state: State, job: JobRecord) -> None:
    state.dead[job.id] = job
    state.dead_ages.add(job)
