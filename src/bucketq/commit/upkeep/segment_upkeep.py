"""``SegmentUpkeep``: merges the segments of a queue, and deletes those that it no longer names.

Every spill makes a segment. If they were left alone there would be many small ones, and each has an
entry in the queue object. So those of about the same size are merged, up to the largest size, and
delayed jobs that are due move to segments from which they can be claimed in their order. Keys and
dead jobs in segments that have outlived their time leave. If rows have left at very many places,
their positions move from the queue object to a vector.

A merge writes the new segments first, then a commit names them instead of the old ones and judges
each row again: two processes may merge the same segments, and one of them is too late. The old ones
stay until no version of the queue can name them any more; then a sweep deletes them.

Every process that keeps a queue open does this.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from datetime import datetime
from functools import partial
from typing import Any, NamedTuple

from bucketq.archive.writer import ArchiveWriter
from bucketq.clock import Clock
from bucketq.codec.deletion_vector import encode_vector, vector_id
from bucketq.codec.segment_file import SEGMENT_BYTES, SegmentRow, segment_row, sort_rows, split_rows
from bucketq.codec.segment_merge import Merged, merge_in_steps, stretches
from bucketq.commit.objects.queue_segments import StaleStateError
from bucketq.commit.objects.register import Register
from bucketq.commit.objects.segment_encoding import ROWS_A_TURN, encode_in_turns, run_in_turns
from bucketq.commit.objects.segment_policy import FULL_BYTES
from bucketq.commit.objects.segment_sweep import NamedSegments
from bucketq.commit.upkeep.background import BackgroundLoop, before_commit
from bucketq.commit.upkeep.side_sweep import SideSweep
from bucketq.commit.upkeep.transient_faults import TransientFault
from bucketq.errors import BucketQError
from bucketq.model.effects.operators import is_cold_untidy
from bucketq.model.effects.segment_changes import FORMAT
from bucketq.model.indexes.cold_segment import Segment
from bucketq.model.operations import Request
from bucketq.model.segments import (
    JOB_CLASSES,
    ForgetFormer,
    Merge,
    NameVector,
    SegmentClass,
    TidySegments,
    WrittenSegment,
)
from bucketq.model.state import State

_log = logging.getLogger("bucketq")

_LAST_RETRY_S = 60.0
"""The longest pause after upkeep has failed: nothing waits for it."""
_BUSY_PASS_S = 0.1
"""The pause of upkeep that waits for the archiver, which is quicker."""
_SMALL_BYTES = 128 * 1024
"""Segments up to this size are merged first: it is half of what a queue spills at once."""
_ENTRY_BYTES, _RANGE_BYTES = 280, 14
"""About what an entry takes, and a range of rows that have left."""
_PAUSE = 3
"""A merge waits three times as long as it works, because nothing waits for it: a thousand callers,
whose commits take 35 ms, then hardly notice one. Without pauses it took one of them 110 ms."""
_OLD_S = 7 * 86400.0
"""A segment that is older is written again: a rule that deletes old objects, which an operator may
have set for the bucket, must not find it."""


_MAY_LEAVE = frozenset({"segments", "reservations"})
"""A queue that requires one of these may have segments that it no longer names."""


class _Plan(NamedTuple):
    """Segments that are to be merged."""

    sources: list[Segment]
    due: datetime | None = None
    """Rows of delayed jobs up to this time become jobs that can be claimed."""


class SegmentUpkeep:
    """Merges and sweeps the segments of one queue, in the background."""

    def __init__(
        self,
        submit: Callable[[Request], Awaitable[Any]],
        register: Register,
        clock: Clock,
        archive: ArchiveWriter | None = None,
    ) -> None:
        """Commit with ``submit``."""
        self._side = SideSweep(submit, register, archive, clock)
        self._submit = submit
        self._register = register
        self._clock = clock
        self._policy = register.segments.policy
        what = f"segments of {register.where} cannot be merged or deleted"
        self._fault = TransientFault(clock, _log, what, _LAST_RETRY_S)
        self._loop = BackgroundLoop(clock, self._fault)
        self._sweep_at = 0.0
        self._swept_version = -1

    def start(self, current: Callable[[], State | None]) -> None:
        """Begin; ``current`` returns the state in memory: without segments nothing is requested."""
        self._sweep_at = asyncio.get_running_loop().time() + self._policy.first_sweep_s
        self._loop.start(partial(self._pass, current), self._policy.pass_s)

    async def stop(self) -> None:
        """Stop."""
        await self._loop.stop()

    async def _pass(self, current: Callable[[], State | None]) -> float:
        """Do what is due; return the pause until the next pass."""
        with suppress(StaleStateError):  # The queue has changed meanwhile: look again later.
            while (state := current()) is not None and await self.merge(state):
                pass
            while (state := current()) is not None and await self.shorten(state):
                pass
            while (state := current()) is not None and is_cold_untidy(state, self._clock.now()):
                if state.done.size_bytes > state.settings.spill_bytes:
                    return _BUSY_PASS_S  # What was dropped must be archived first.
                if not await self._submit(Request(TidySegments())):
                    break
            if state is not None:
                self._register.segments.parts.keep(state.cold.rows.segments)
            now_s = asyncio.get_running_loop().time()
            if now_s >= self._sweep_at and state is not None and self._may_sweep(state):
                self._sweep_at, version = now_s + self._policy.sweep_s, state.version
                await self.sweep()
                await self._side.sweep(state.incarnation)
                await self._clear_former(state)
                self._swept_version = version
        return self._policy.pass_s

    def _may_sweep(self, state: State) -> bool:
        """Whether a sweep may find something.

        Also in a queue that never had segments: a process may have been killed in its first spill.
        But there not without a commit since the last sweep, so that a small idle queue costs
        nothing. In others a process that was frozen may still put what it was about to.
        """
        if state.former or _MAY_LEAVE & state.requires.keys():
            return True
        return state.settings.max_format >= FORMAT and state.version != self._swept_version

    async def sweep(self) -> int:
        """Delete segments that no version of the queue can name any more; return how many."""
        return await self._register.segments.folder.sweep(self._read_kept)

    async def _read_kept(self) -> NamedSegments:
        """Read what the queue names, and what the copies of its history name."""
        return await self._register.history.named_by((await self._register.beside().load()).state)

    async def _clear_former(self, state: State) -> None:
        """Delete the segments of incarnations that have ended, and forget those that have none."""
        _, empty = await self._register.segments.clear_former(state)
        if empty:
            await self._submit(Request(ForgetFormer(empty)))

    async def merge(self, state: State) -> bool:
        """Merge once; return whether there was something to merge, and nothing interfered."""
        merge = await self._write_merge(state, _PAUSE)
        return merge is not None and bool(await self._submit(Request(merge)))

    async def shorten(self, state: State) -> bool:
        """Move ranges of rows that have left to a vector, if there are too many; return whether."""
        name = await self._write_vector(state)
        return name is not None and bool(await self._submit(Request(name)))

    async def step_before(self, state: State) -> list[Merge | NameVector]:
        """Merge once for a writer that commits by itself, if the table is far too large.

        The writer applies what is returned, in its own commit.
        """
        if _entry_bytes(state) <= 2 * self._policy.most_entry_bytes:
            return []
        try:
            step = await before_commit(self._write_step(state))
        except StaleStateError:
            return []  # The commit will be lost, too.
        except BucketQError as error:
            self._fault.strike(error)
            return []
        self._fault.passed()
        return [] if step is None else [step]

    async def _write_step(self, state: State) -> Merge | NameVector | None:
        return await self._write_vector(state) or await self._write_merge(state)

    async def _write_vector(self, state: State) -> NameVector | None:
        """Put a vector if there are too many ranges; return the operation that names it."""
        chosen = _most_ranges(state, self._policy.most_ranges)
        if not chosen:
            return None
        gone = {segment.record.id: segment.gone.ranges for segment in chosen}
        body = encode_vector(gone)
        name = vector_id(state.version + self._policy.least_versions, body)
        await self._register.segments.folder.put(name, body)
        return NameVector(id=name, bytes=len(body), gone=gone)

    async def _write_merge(self, state: State, pause: float = 0) -> Merge | None:
        """Put merged segments if some can be merged; return the operation that names them."""
        plan = _plan(state, self._clock.now(), self._policy.neighbours)
        if plan is None:
            return None
        records = [source.record for source in plan.sources]
        merged = await (self._copy(plan, pause) if _is_copied(plan) else self._sort_again(plan))
        folder, targets = self._register.segments.folder, list[WrittenSegment]()
        for encoded, _ in merged:
            await asyncio.sleep(0)  # To name a segment, all of it is read.
            until = state.version + self._policy.least_versions
            record = encoded.record(until, self._clock.now())
            await folder.put(record.id, encoded.body)
            targets.append(WrittenSegment(record, encoded.index, encoded.seqs))
        return Merge(
            sources=tuple(record.id for record in records),
            targets=tuple(targets),
            origins=tuple(origins for _, origins in merged),
            pushed={record.id: pushed for record in records if (pushed := record.pushed)},
        )

    async def _copy(self, plan: _Plan, pause: float) -> list[Merged]:
        """Merge segments whose rows are copied as they are."""
        segments, read_named = self._register.segments, self._register.read_named
        sources = await segments.read_sources(plan.sources, read_named)
        return await run_in_turns(merge_in_steps(sources), pause)

    async def _sort_again(self, plan: _Plan) -> list[Merged]:
        """Merge segments whose rows are decoded: their order does not follow from the indexes."""
        segments, read_named = self._register.segments, self._register.read_named
        rows: dict[SegmentClass, list[SegmentRow]] = {}
        origins: dict[int, tuple[str, int]] = {}
        for source in plan.sources:
            for position, line in await segments.read_rows(source, read_named):
                if position % ROWS_A_TURN == 0:
                    await asyncio.sleep(0)
                row = segment_row(line)
                cls = _class_in(plan, source, row)
                rows.setdefault(cls, []).append(row)
                origins[row.fields.seq] = (source.record.id, position)
        merged = list[Merged]()
        for cls, some in rows.items():
            for part in split_rows(sort_rows(cls, some)):
                encoded = await encode_in_turns(cls, part)
                merged.append((encoded, stretches(map(origins.__getitem__, encoded.seqs))))
        return merged


def _plan(state: State, now: datetime, neighbours: int) -> _Plan | None:
    """Choose what to merge next; None: nothing."""
    levels: dict[tuple[SegmentClass, int], list[Segment]] = {}
    for segment in state.cold.rows.of_class(*JOB_CLASSES, "keys"):
        if (now - segment.record.at).total_seconds() > _OLD_S:
            return _Plan([segment])
        if _is_mostly_due(segment, now):
            return _Plan([segment], now)
        if _live_bytes(segment) <= FULL_BYTES:
            levels.setdefault((segment.record.cls, _level(segment, neighbours)), []).append(segment)
    for some in levels.values():
        if len(some) >= neighbours and len(fitting := _fitting(some, neighbours)) > 1:
            return _Plan(fitting)
    return None


def _most_ranges(state: State, most: int) -> list[Segment]:
    """Choose the segments whose entries have the most ranges, if all have too many together."""
    segments = [each for each in state.cold.rows.of_class(*JOB_CLASSES, "keys") if each.has_vector]
    left = sum(len(each.since) for each in segments)
    if left <= most:
        return []
    chosen = []
    for segment in sorted(segments, key=lambda each: len(each.since), reverse=True):
        if left <= most // 4:
            break
        left -= len(segment.since)
        chosen.append(segment)
    return chosen


def _entry_bytes(state: State) -> int:
    """About how many bytes the table of segments takes."""
    segments = state.cold.rows.segments.values()
    return sum(_ENTRY_BYTES + _RANGE_BYTES * len(segment.since) for segment in segments)


def _is_mostly_due(segment: Segment, now: datetime) -> bool:
    """Whether probably more than half of the delayed jobs of a segment are due."""
    if segment.record.cls != "later" or segment.index is None or segment.index.times is None:
        return False
    first, last = segment.index.times
    return first + (last - first) / 2 < now


def _live_bytes(segment: Segment) -> int:
    record = segment.record
    return record.bytes * segment.live // record.rows


def _level(segment: Segment, neighbours: int) -> int:
    """How often a segment of this size was merged, if all spills have the same size."""
    level, size_bytes = 0, _live_bytes(segment)
    while size_bytes > _SMALL_BYTES:
        level, size_bytes = level + 1, size_bytes // neighbours
    return level


def _fitting(segments: Sequence[Segment], neighbours: int) -> list[Segment]:
    """Return the oldest of some segments, as many as fit in one."""
    chosen, size_bytes = list[Segment](), 0
    for segment in sorted(segments, key=lambda each: (each.record.seq, each.record.id)):
        size_bytes += _live_bytes(segment)
        if size_bytes > SEGMENT_BYTES or len(chosen) == neighbours:
            break
        chosen.append(segment)
    return chosen


def _is_copied(plan: _Plan) -> bool:
    """Whether rows can be merged without being decoded.

    Of other classes an index does not say what rows are sorted by, nor when each job expires.
    """
    records = [source.record for source in plan.sources]
    return all(each.cls == "ready" and each.expires_at is None for each in records)


def _class_in(plan: _Plan, source: Segment, row: SegmentRow) -> SegmentClass:
    """Return the class of segments that a row of a source goes to."""
    run_at = row.fields.run_at
    if source.record.cls == "later" and plan.due and run_at is not None and run_at <= plan.due:
        return "ready"
    return source.record.cls
