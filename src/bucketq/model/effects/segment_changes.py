"""Naming segments: the commits that move rows out of the object, and merge segments.

A segment is written first and named later, by a commit on a state that may have changed meanwhile.
So each position is judged when it is named, by the state at hand: what was claimed, cancelled or
moved since is gone from the new segment. A segment may be introduced up to a version (``until``),
after which a sweep may delete it; then it is given up.

These operations come from the committer itself and are never sent to a broker.
"""

from __future__ import annotations

from collections.abc import Container, Iterator
from datetime import datetime

from msgspec.structs import replace

from bucketq.model.indexes.cold_jobs import MovedRows
from bucketq.model.indexes.cold_rows import Place
from bucketq.model.indexes.cold_segment import Segment
from bucketq.model.records import JobRecord
from bucketq.model.segments import (
    ForgetFormer,
    Gone,
    Merge,
    NameVector,
    Pushed,
    SegmentClass,
    SegmentRecord,
    Spill,
    SpillKeys,
    Stretch,
    WrittenSegment,
)
from bucketq.model.state import State

FORMAT = 2
"""The format of queue objects that name segments."""


def class_of(job: JobRecord, now: datetime) -> SegmentClass | None:
    """The class of segments that a job can go to; None: it must stay in the object."""
    if job.status == "dead":
        return "dead"
    if job.status != "queued" or job.after:
        return None
    return "ready" if job.run_at is None or job.run_at <= now else "later"


def spill(state: State, operation: Spill, _now: datetime) -> int:
    """Move the jobs that the object still holds unchanged."""
    record = operation.segment.record
    if state.settings.max_format < FORMAT or not _may_name_jobs(state, record):
        return 0
    gone, unknown = Gone(), operation.unknown
    moved = []
    by_id, extra, is_lent = state.jobs.by_id, state.extra, state.cold.is_lent
    has_unknown = bool(extra or unknown)
    for position, job in enumerate(operation.jobs):
        there = by_id.get(job.id)
        is_same = (there is job or there == job) and not is_lent(job.id)
        if is_same and has_unknown:
            is_same = extra.get(("jobs", job.id)) == unknown.get(job.id)
        if is_same:
            moved.append(job)
        else:
            gone.add(position)
    if moved:
        _take_jobs_out(state, moved)
        state.cold.add(_with_gone(record, gone), operation.segment.index)
        _note(state, record)
    return len(moved)


def _take_jobs_out(state: State, jobs: list[JobRecord]) -> None:
    """Take jobs that are not running out of the object and its indexes; they stay counted."""
    state.jobs.remove_all(jobs)
    for job in jobs if state.dead else ():
        state.dead.pop(job.id, None)
    if state.extra:
        for job in jobs:
            state.extra.pop(("jobs", job.id), None)
    state.waiting.take_out(jobs)
    state.delayed.sweep()
    state.expiring.sweep()
    state.dead_ages.sweep()


def spill_keys(state: State, operation: SpillKeys, _now: datetime) -> int:
    """Move the keys that the object still holds unchanged."""
    record = operation.segment.record
    if state.settings.max_format < FORMAT or not _may_name(state, record):
        return 0
    gone, unknown = Gone(), operation.unknown
    moved = []
    for position, key in enumerate(operation.keys):
        is_same = state.keys.by_id.get(key.id) == key
        if is_same and state.extra.get(("keys", key.id)) == unknown.get(key.id):
            moved.append(key)
        else:
            gone.add(position)
    if moved:
        for key in moved:
            state.extra.pop(("keys", key.id), None)
        state.known_keys.spill(_with_gone(record, gone), operation.segment.index, moved)
        _note(state, record)
    return len(moved)


def merge(state: State, operation: Merge, _now: datetime) -> int:
    """Name the targets, with the rows that are live in a source that is still named.

    The writer may have left rows out that seemed gone when it read the sources, because they were
    claimed in a commit that was lost since. Then the merge is given up: dropping the sources would
    drop those rows.
    """
    cold = state.cold
    sources = _unchanged(state, operation)
    if not sources or not all(_may_name_jobs(state, each.record) for each in operation.targets):
        return 0
    for source in sources.values():
        cold.rows.index_of(source)
    # Not all of them: a process that only pushes has read no other index.
    state.attach_cold(sources.values())
    taken = dict.fromkeys(sources, 0)
    gone_from = [_gone(sources, origins, taken) for origins in operation.origins]
    if any(taken[name] != source.live for name, source in sources.items()):
        return 0
    named = list[tuple[Segment, tuple[Stretch, ...]]]()
    for target, origins, gone in zip(operation.targets, operation.origins, gone_from, strict=True):
        if gone.count == target.record.rows:
            continue
        record = _with_gone(target.record, gone)
        if record.cls == "keys":
            state.known_keys.name(record, target.index)
        else:
            named.append((cold.add(record, target.index), origins))
    cold.move(list(sources.values()), _moved(named))
    state.changes.extend(("segments", name) for name in sources)
    return len(sources)


def name_pushed(
    state: State, segment: WrittenSegment, pushed: Pushed, known: Container[int]
) -> bool:
    """Name a segment with rows of a push, but those whose places are ``known``; return whether.

    It is not named if none of its rows is new, and if it may not be named (any more).
    """
    record = segment.record
    if state.settings.max_format < FORMAT or not _may_name(state, record):
        return False
    gone = Gone()
    for position, place in enumerate(segment.seqs):
        if place in known:
            gone.add(position)
    if gone.count == record.rows:
        return False
    numbered = replace(
        record,
        seq=pushed.base + record.seq,
        last=pushed.base + record.last,
        base=pushed.base,
        pushed_at=pushed.at,
    )
    state.add_segment(_with_gone(numbered, gone), segment.index)
    _note(state, record)
    return True


def forget_former(state: State, operation: ForgetFormer, _now: datetime) -> int:
    """Take incarnations off the list of those whose segments may be deleted."""
    found = [name for name in operation.incarnations if name in state.former]
    for name in found:
        del state.former[name]
    if found:
        state.touch_head()
    return len(found)


def name_vector(state: State, operation: NameVector, _now: datetime) -> int:
    """Name a vector in the entries of segments from which all that it holds has left."""
    if state.version + 1 > operation.until:
        return 0
    rows = state.cold.rows
    found = [rows.segments[name] for name in operation.gone if name in rows.segments]
    for segment in found:
        rows.require_vector(segment)
    named = 0
    for segment in found:
        vector = Gone(operation.gone[segment.record.id])
        if segment.record.vector != operation.id and segment.gone.contains(vector):
            segment.name_vector(operation.id, operation.bytes, vector)
            state.changes.append(("segments", segment.record.id))
            named += 1
    rows.is_touched = rows.is_touched or named > 0
    return named


def _note(state: State, record: SegmentRecord) -> None:
    """Note that a segment was named: older code must not ignore it."""
    state.requires["segments"] = None
    state.changes.append(("segments", record.id))


def _may_name(state: State, record: SegmentRecord) -> bool:
    """Whether the next version may introduce a segment, and the state does not name it yet."""
    return state.version + 1 <= record.until and record.id not in state.cold.rows.segments


def _may_name_jobs(state: State, record: SegmentRecord) -> bool:
    """Whether a segment may be introduced, and the queue has given all numbers of its rows.

    Its writer may have read jobs of a push whose commit was lost since: then no version has had
    such a number yet, and other jobs will have it.
    """
    is_numbered = record.cls == "keys" or record.last < state.next_seq
    return is_numbered and _may_name(state, record)


def _unchanged(state: State, operation: Merge) -> dict[str, Segment]:
    """Return the sources of a merge that are named, with the rows that it has read.

    A push whose commit was lost is committed again with other numbers, and its segment stays the
    same: then the merge has rows that are in no version of the queue.
    """
    named = state.cold.rows.segments
    return {
        name: named[name]
        for name in operation.sources
        if name in named and named[name].record.pushed == operation.pushed.get(name)
    }


def _gone(sources: dict[str, Segment], origins: tuple[Stretch, ...], taken: dict[str, int]) -> Gone:
    """Return the rows that are gone from a target; note how many others it takes of each source."""
    gone, position = Gone(), 0
    for name, start, stop in origins:
        source = sources.get(name)
        if source is None:
            gone.add(position, position + stop - start - 1)
        else:
            taken[name] += stop - start
            # A merge may have a stretch for each of 35,000 rows: to look at one row is faster.
            if source.gone.count and (stop - start > 1 or start in source.gone):
                for first, last in source.gone.between(start, stop):
                    gone.add(position + first - start, position + last - start)
                    taken[name] -= last - first + 1
        position += stop - start
    return gone


def _moved(named: list[tuple[Segment, tuple[Stretch, ...]]]) -> Iterator[MovedRows]:
    """Yield where the rows of targets were, and where they are."""
    for segment, origins in named:
        position = 0
        for stretch in origins:
            yield MovedRows(stretch, Place(segment, position))
            position += stretch.stop - stretch.start


def _with_gone(record: SegmentRecord, gone: Gone) -> SegmentRecord:
    return replace(record, live=record.rows - gone.count, gone=gone.ranges)
