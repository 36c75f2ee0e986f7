"""``Spiller``: moves rows that are not running from the queue object to segments.

Every commit writes the queue object, so it must stay small. If the jobs that could be elsewhere
take more than ``spill_bytes``, or there are more than a thousand idempotency keys, the oldest of
them are written to a segment, and only then a commit replaces them by the name of the segment. So
are rows that say where results are, to an object of their own. The
commit judges each row again, so nothing has to be locked while the segment is written: what was
claimed or cancelled meanwhile stays.

A spill never fails or delays a commit. If the segment cannot be written, the rows stay in the queue
object, and it is tried again later.
"""

from __future__ import annotations

import asyncio
import logging
from bisect import bisect_left
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import partial
from itertools import accumulate, islice, repeat
from typing import Any

from bucketq.clock import Clock
from bucketq.codec.result_index import encode_result_index, result_index_id
from bucketq.codec.segment_file import EncodedSegment, SegmentRow, row_of, rows_of
from bucketq.commit.objects.queue_segments import QueueSegments
from bucketq.commit.objects.segment_encoding import ROWS_A_TURN, encode_in_turns
from bucketq.commit.upkeep.background import BackgroundLoop, before_commit
from bucketq.commit.upkeep.transient_faults import TransientFault
from bucketq.errors import BucketQError
from bucketq.model.effects.segment_changes import FORMAT, class_of
from bucketq.model.operations import Request
from bucketq.model.records import JobRecord, Unknown
from bucketq.model.results import ResultRow, SpillResults
from bucketq.model.segments import SegmentClass, Spill, SpillKeys, WrittenSegment
from bucketq.model.state import State

_log = logging.getLogger("bucketq")

_ROW_BYTES = 200
"""About how many bytes the line of a job takes beside its payload and its errors."""
_PIECE_BYTES = 4 << 20
"""How many bytes of rows go to one segment: each is named as soon as it is put, so the object of a
queue that grows fast shrinks early. Segments of more than 2 MiB are not merged: that would write
each row again, to save few entries."""
_ROUND_BYTES = 32 << 20
"""How many bytes of rows are chosen at once: choosing looks at every row of the object."""
_LEFT_PART = 8
"""A spill leaves this part of ``spill_bytes``: every commit writes what is left again, until the
next spill. It matters little. At a depth of a million, 64 callers wrote 15.6 to 20.1 MB for 1,000
jobs, and 16.6 to 20.5 MB with a half left, in alternating runs."""
_RESULTS_PART = 8
"""Rows on results move if they take more than this part of ``spill_bytes``: that is 32 KiB, of some
5,000 results. Few objects are then read to find one, and commits stay small."""
_AT_ONCE = 4
"""How many segments are written at once, so that the next is encoded while the store answers."""
_LAST_RETRY_S = 60.0
"""The longest pause after a spill has failed: a store that refuses segments is asked about once a
minute."""
_RESTING = frozenset({"queued", "dead"})
"""Of what status a job is that may leave the object; most that are not may be running."""

_AnySpill = Spill | SpillKeys | SpillResults


class Spiller:
    """Writes the segments that one process spills."""

    def __init__(
        self,
        submit: Callable[[Request], Awaitable[Any]],
        segments: QueueSegments,
        clock: Clock,
        where: str,
    ) -> None:
        """Commit with ``submit``; ``where`` is what messages call the queue."""
        self._submit = submit
        self._segments = segments
        self._clock = clock
        what = f"segments of {where} cannot be written, and its object grows"
        self._fault = TransientFault(clock, _log, what, _LAST_RETRY_S)
        self._loop = BackgroundLoop(clock, self._fault)
        # Apart from jobs: they are due at other times.
        self._results = BackgroundLoop(clock, self._fault)
        self._searched_bytes = 0
        """How large the object was when no more jobs could leave."""
        self._searched_running = 0
        """How many rows were running then, and could not leave."""
        self._versions = 0
        """How many versions passed during the last put."""

    def start(self, current: Callable[[], State | None]) -> None:
        """Spill in the background, until ``stop``; ``current`` returns the state in memory."""
        self._loop.start(partial(self._pass, current), None)
        self._results.start(partial(self._pass_results, current), None)

    async def stop(self) -> None:
        """Stop spilling."""
        await self._loop.stop()
        await self._results.stop()

    def notice(self, state: State) -> None:
        """Look at the size of the object after a commit; it is cheap."""
        if self._is_due(state, 1):
            self._loop.wake()
        if _result_rows(state, 1):
            self._results.wake()

    async def spill_before(self, state: State) -> list[_AnySpill]:
        """Write segments for a writer that commits by itself, if the object is far too large.

        The writer applies what is returned, in its own commit.
        """
        is_due, rows = self._is_due(state, 2), _result_rows(state, 2)
        if not is_due and not rows:
            return []
        try:
            spills = await before_commit(self._write_all(state, rows, with_jobs=is_due))
        except BucketQError as error:
            self._fault.strike(error)
            self._note_search(state)
            return []
        self._fault.passed()
        return spills

    async def _write_all(
        self, state: State, results: list[ResultRow], *, with_jobs: bool
    ) -> list[_AnySpill]:
        chosen = self._choose(state) if with_jobs else []
        spills: list[_AnySpill] = [await self._write(state, cls, rows) for cls, rows in chosen]
        if results:
            spills.append(await self._write_results(state, results))
        return spills

    def _is_due(self, state: State, times: int) -> bool:
        """Whether the object is larger than it should be, and there may be rows to spill."""
        if state.settings.max_format < FORMAT:
            return False
        if len(state.keys) > times * self._segments.policy.most_keys:
            return True
        limit, size_bytes = times * state.settings.spill_bytes, _hot_bytes(state)
        self._searched_bytes = min(self._searched_bytes, size_bytes)
        # Rows that no longer run may leave, although the object has not grown.
        ended = max(0, self._searched_running - len(state.running))
        news = size_bytes - self._searched_bytes + ended * size_bytes // (len(state.jobs) + 1)
        is_due = size_bytes > limit and news > max(limit // 4, size_bytes // 16)
        return is_due and _has_resting(state)

    def _note_search(self, state: State) -> None:
        """Note that no more rows can leave a state."""
        self._searched_bytes, self._searched_running = _hot_bytes(state), len(state.running)

    async def _pass(self, current: Callable[[], State | None]) -> None:
        while (state := current()) is not None and await self._spill(state):
            pass

    async def _pass_results(self, current: Callable[[], State | None]) -> None:
        while (state := current()) is not None and (rows := _result_rows(state, 1)):
            if not await self._submit(Request(await self._write_results(state, rows))):
                return  # They have changed: the next commit looks again.

    async def _spill(self, state: State) -> bool:
        """Spill once; return whether rows have moved."""
        at_once = asyncio.Semaphore(_AT_ONCE)

        async def move(cls: SegmentClass, rows: list[Any]) -> int:
            async with at_once:
                spill = await self._write(state, cls, rows)
            # Without waiting for the others: the object shrinks while they are written.
            return int(await self._submit(Request(spill)))

        moving = (move(cls, rows) for cls, rows in self._choose(state))
        moved = await asyncio.gather(*moving, return_exceptions=True)
        for error in moved:
            if isinstance(error, BaseException):
                raise error
        return any(moved)

    def _choose(self, state: State) -> list[tuple[SegmentClass, list[Any]]]:
        """Choose the oldest rows until an eighth of what may stay is left; those of a segment each.

        If there are very many, they are spilled in several rounds.
        """
        if state.settings.max_format < FORMAT:
            return []  # It was lowered since the spill was due.
        now, limit = self._clock.now(), state.settings.spill_bytes
        resting = [job for job in state.jobs if job.status in _RESTING]
        found = [job for job in resting if class_of(job, now) is not None]
        sums = [*accumulate(map(_row_bytes, found))]
        if not sums or sums[-1] <= limit:
            self._note_search(state)
            found = []
        else:
            enough = min(sums[-1] - limit // _LEFT_PART, _ROUND_BYTES)
            found = found[: bisect_left(sums, enough) + 1]
        chosen: dict[SegmentClass, list[Any]] = {}
        for job in found:
            chosen.setdefault(class_of(job, now) or "ready", []).append(job)
        most = self._segments.policy.most_keys
        excess = len(state.keys) - most // 2
        if excess > most // 2:
            chosen["keys"] = list[Any](islice(state.keys, excess))
        return [(cls, rows) for cls, some in chosen.items() for rows in _pieces(cls, some)]

    async def _write_results(self, state: State, rows: list[ResultRow]) -> SpillResults:
        """Put rows on results, and return the operation that names the object."""
        body, version = encode_result_index(rows), state.version
        until = self._segments.policy.until(version, self._versions)
        name = result_index_id(until, body)
        await self._segments.folder.put(name, body)
        self._versions = state.version - version
        return SpillResults(id=name, until=until, rows=tuple(rows))

    async def _write(self, state: State, cls: SegmentClass, rows: list[Any]) -> Spill | SpillKeys:
        """Put a segment, and return the operation that names it."""
        version = state.version
        until = self._segments.policy.until(version, self._versions)
        encoded, spill = await encode_spill(state, cls, rows, until, self._clock.now())
        await self._segments.folder.put(spill.segment.record.id, encoded.body)
        self._versions = state.version - version
        self._segments.parts.know(spill.segment.record, encoded)
        return spill


async def encode_spill(
    state: State, cls: SegmentClass, rows: Sequence[Any], until: int, at: datetime
) -> tuple[EncodedSegment, Spill | SpillKeys]:
    """Encode rows as a segment; return it, and the operation that names it."""
    table = "keys" if cls == "keys" else "jobs"
    extra = state.extra
    unknown = (
        {row.id: extra[table, row.id] for row in rows if (table, row.id) in extra} if extra else {}
    )
    encoded = await encode_in_turns(cls, _made_rows(cls, rows, unknown))
    segment = WrittenSegment(encoded.record(until, at), encoded.index, encoded.seqs)
    in_order = tuple(rows)
    if encoded.seqs.tolist() != [row.seq for row in rows]:
        by_seq = {row.seq: row for row in rows}
        in_order = tuple([by_seq[seq] for seq in encoded.seqs])
    if cls == "keys":
        return encoded, SpillKeys(segment=segment, keys=in_order, unknown=unknown)
    return encoded, Spill(segment=segment, jobs=in_order, unknown=unknown)


def _made_rows(
    cls: SegmentClass, rows: Sequence[Any], unknown: Mapping[str, Unknown]
) -> Iterator[SegmentRow]:
    """Make the rows of a segment, those of a turn together."""
    for start in range(0, len(rows), ROWS_A_TURN):
        some = rows[start : start + ROWS_A_TURN]
        if cls == "keys":
            yield from (row_of(key, unknown.get(key.id)) for key in some)
        else:
            yield from rows_of(some, unknown)


def _pieces(cls: SegmentClass, rows: list[Any]) -> Iterator[list[Any]]:
    """Cut rows into those of a segment each."""
    sizes = repeat(_ROW_BYTES, len(rows)) if cls == "keys" else map(_row_bytes, rows)
    sums, start = [*accumulate(sizes)], 0
    while start < len(rows):
        before = sums[start - 1] if start else 0
        stop = bisect_left(sums, before + _PIECE_BYTES, start) + 1
        yield rows[start:stop]
        start = stop


def _result_rows(state: State, times: int) -> list[ResultRow]:
    """The rows on results that are to move, if there are too many of them."""
    most_bytes = times * state.settings.spill_bytes // _RESULTS_PART
    if state.results.row_bytes <= most_bytes or state.settings.max_format < FORMAT:
        return []
    return [row for row in state.results if not row.has_moved]


def _has_resting(state: State) -> bool:
    """Whether any job of the object neither runs nor is done.

    In a stream all do, and a look at every row would find nothing that may leave.
    """
    return len(state.jobs) - state.cold.lent > len(state.running) + len(state.done)


def _row_bytes(job: JobRecord) -> int:
    """About how many bytes the line of a job that is not running takes."""
    errors = sum(len(each.error) for each in job.errors) if job.errors else 0
    return len(job.payload) + errors + _ROW_BYTES


def _hot_bytes(state: State) -> int:
    """About how many bytes the object takes without what others move: finished jobs, history."""
    moved_bytes = state.done.size_bytes + state.history.size_bytes
    return max(0, state.size_bytes + state.added_bytes - moved_bytes)
