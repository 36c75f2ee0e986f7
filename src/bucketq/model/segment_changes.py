"""Naming segments: the commits that move rows out of the object, and merge segments.

A segment is written first and named later, by a commit on a state that may have changed meanwhile.
So each position is judged when it is named, by the state at hand: what was claimed, cancelled or
moved since is gone from the new segment. A segment may be introduced up to a version (``until``),
after which a sweep may delete it; then it is given up.

These operations come from the committer itself and are never sent to a broker.
"""

from __future__ import annotations

from datetime import datetime

from msgspec.structs import replace

from bucketq.model.cold_rows import Place, Segment
from bucketq.model.segments import Gone, Merge, SegmentRecord, Spill
from bucketq.model.state import State


def spill(state: State, operation: Spill, _now: datetime) -> int:
    """Move the jobs that the object still holds unchanged."""
    record = operation.segment.record
    if not _may_name(state, record):
        return 0
    gone, unknown = Gone(), operation.unknown
    moved = []
    for position, job in enumerate(operation.jobs):
        is_same = state.jobs.by_id.get(job.id) == job and not state.cold.is_lent(job.id)
        if is_same and state.extra.get(("jobs", job.id)) == unknown.get(job.id):
            moved.append(job)
        else:
            gone.add(position)
    if moved:
        state.name_segment(_with_gone(record, gone), operation.segment.index, moved)
    return len(moved)


def merge(state: State, operation: Merge, _now: datetime) -> int:
    """Name the targets, with the rows that are live in a source that is still named."""
    cold = state.cold
    sources = {
        name: cold.rows.segments[name] for name in operation.sources if name in cold.rows.segments
    }
    if not sources or not all(_may_name(state, each.record) for each in operation.targets):
        return 0
    gone_from = [_gone(sources, origins) for origins in operation.origins]
    state.attach_cold()
    places: dict[int, Place] = {}
    for target, gone in zip(operation.targets, gone_from, strict=True):
        if gone.count < target.record.rows:
            segment = cold.add(_with_gone(target.record, gone), target.index)
            places |= {
                seq: Place(segment, position)
                for position, seq in enumerate(target.seqs)
                if position not in gone
            }
    cold.move(list(sources.values()), places)
    state.changes.extend(("segments", name) for name in sources)
    return len(sources)


def _may_name(state: State, record: SegmentRecord) -> bool:
    """Whether the next version may introduce a segment, and the state does not name it yet."""
    return state.version + 1 <= record.until and record.id not in state.cold.rows.segments


def _gone(sources: dict[str, Segment], origins: tuple[tuple[str, int], ...]) -> Gone:
    gone = Gone()
    for position, (name, at) in enumerate(origins):
        source = sources.get(name)
        if source is None or at in source.gone:
            gone.add(position)
    return gone


def _with_gone(record: SegmentRecord, gone: Gone) -> SegmentRecord:
    return replace(record, live=record.rows - gone.count, gone=gone.ranges)
