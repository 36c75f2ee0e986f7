"""``QueueSegments``: what a process reads and writes of the segments of one queue.

A state says what it needs by raising ``ColdRowsNeededError``; ``fetch`` reads it. What was read is
kept beside the states, because segments never change and states come and go.

A segment that is missing is no fault by itself: the state that names it may be old, and the segment
deleted since. So the queue object is read again. Only if it still names the segment after a while,
the segment is lost.
"""

from __future__ import annotations

import asyncio
from array import array
from collections.abc import Awaitable, Callable, Collection, Iterator, Sequence
from itertools import islice

from msgspec import Struct

from bucketq.archive.side_folder import SideFolder
from bucketq.clock import Clock
from bucketq.codec.segment_file import SEGMENT_BYTES, sort_hashes
from bucketq.codec.segment_lines import complete_lines
from bucketq.codec.segment_merge import MergeSource, merge_ids
from bucketq.commit.objects.history_folder import HistoryFolder
from bucketq.commit.objects.segment_encoding import ROWS_A_TURN, run_in_turns
from bucketq.commit.objects.segment_folder import SegmentFolder
from bucketq.commit.objects.segment_parts import SegmentParts
from bucketq.commit.objects.segment_policy import DEFAULT_POLICY
from bucketq.commit.objects.segment_sweep import NamedSegments
from bucketq.errors import CorruptStateError, UnavailableError
from bucketq.model.id_hashes import hash_ids
from bucketq.model.indexes.cold_rows import SegmentPart
from bucketq.model.indexes.cold_segment import Segment
from bucketq.model.job_ids import ids_after
from bucketq.model.segments import Block, Gone, SegmentIds, SegmentIndex, SegmentRecord
from bucketq.model.state import State
from bucketq.store.backoff import RetryBackoff
from bucketq.store.base import ObjectMissingError, ObjectStore

_MISSING_S = 30.0
"""How long a segment that the queue names may be missing before it counts as lost: some stores show
a new object late, and an operator may be putting objects back."""
_FIRST_RETRY_S = 0.05
_LAST_RETRY_S = 3.0
"""Retries begin at about the latency of a store, and are rare enough for one in trouble."""
_AT_ONCE_BYTES = 2 * SEGMENT_BYTES
"""How many bytes of blocks a merge reads at once, if they are not of one segment. The rows that are
left of its sources fit in one segment, but 32 sources may have 256 MiB."""


class StaleStateError(Exception):
    """The state names a segment that the queue no longer names: read the queue again."""


class _Wanted(Struct, frozen=True):
    """A segment that is to be merged, and which of its rows have left."""

    record: SegmentRecord
    index: SegmentIndex
    gone: Gone
    blocks: list[Block]
    """Those with rows that have not left."""

    @classmethod
    def of(cls, segment: Segment, index: SegmentIndex) -> _Wanted:
        """Take what a segment has now: rows may leave while they are merged."""
        gone = Gone(segment.gone.ranges)
        count = gone.count_between
        some = [
            each for each in index.blocks if count(each.start, each.stop) < each.stop - each.start
        ]
        return cls(segment.record, index, gone, some)

    def parts(self) -> list[SegmentPart]:
        """Return what a merge needs of it."""
        parts = [SegmentPart(self.record, "seqs")]
        if not self.record.first_id:
            parts.append(SegmentPart(self.record, "ids"))
        return parts + [SegmentPart(self.record, block) for block in self.blocks]


class QueueSegments:
    """The segments of one queue, and what was read of them."""

    def __init__(self, store: ObjectStore, key: str, where: str, clock: Clock) -> None:
        """Use the segments of the queue object ``key``; ``where`` is what messages call it."""
        self.policy = DEFAULT_POLICY
        """When they are merged and swept; set another before a committer uses them."""
        self._store = store
        self._key = key
        self._where = where
        self._clock = clock
        self._incarnation = ""
        self._folder: SegmentFolder | None = None
        self._parts: SegmentParts | None = None

    @property
    def folder(self) -> SegmentFolder:
        """The objects of the incarnation that was last attached."""
        if self._folder is None:
            message = f"the queue {self._where} was not read yet"
            raise AssertionError(message)
        return self._folder

    @property
    def parts(self) -> SegmentParts:
        """What was read of them."""
        if self._parts is None:
            message = f"the queue {self._where} was not read yet"
            raise AssertionError(message)
        return self._parts

    def attach(self, state: State) -> None:
        """Let a state that was just read find what was read of its segments."""
        if state.incarnation != self._incarnation or self._parts is None:
            self._incarnation = state.incarnation
            self._folder = SegmentFolder(
                self._store, self._key, state.incarnation, self._where, self._clock
            )
            self._parts = SegmentParts(self._folder.read, self._folder.address)
        self._parts.keep(state.cold.rows.segments)
        state.cold.rows.cache = self._parts

    async def clear_former(self, state: State) -> tuple[int, tuple[str, ...]]:
        """Delete the segments and histories of incarnations that ended before a state's own.

        Returns how many it deleted, and the incarnations of which it found none, which need not be
        remembered. Those of which it found some stay on the list until the next sweep: the listing
        may have been late, and a process that was frozen may put another one. What comes still
        later only takes up room; ``bucketq gc --incarnation`` deletes it.

        Raises: as ``SegmentFolder.clear``.
        """
        deleted, empty = 0, list[str]()
        for incarnation in state.former:
            if incarnation == state.incarnation:
                continue
            folder = SegmentFolder(self._store, self._key, incarnation, self._where, self._clock)
            count = await folder.clear()
            history = HistoryFolder(self._store, self._key, incarnation, self._clock)
            count += await history.clear()
            deleted += count
            # Its large payloads are named by the archive, and are deleted with the queue.
            side = SideFolder.of(self._store, self._key, self._clock)
            if not count and not await side.has(incarnation):
                empty.append(incarnation)
        return deleted, tuple(empty)

    def hold(self, parts: Collection[SegmentPart]) -> None:
        """Keep rows, once they are read, until ``release``."""
        self.parts.hold(parts)

    def release(self, parts: Collection[SegmentPart]) -> None:
        """Undo ``hold`` for the same parts."""
        if parts:
            self.parts.release(parts)

    async def read_rows(
        self, segment: Segment, read_named: Callable[[], Awaitable[NamedSegments]]
    ) -> list[tuple[int, bytes]]:
        """Read the rows of a segment that have not left, as lines, with their positions.

        The rows of a push are completed: they are as in the queue object.

        Raises: as ``fetch``.
        """
        record, where = segment.record, f"{self.folder.address}{segment.record.id}"
        (index,) = await self._read_indexes([segment], read_named)
        parts = [SegmentPart(record, block) for block in index.blocks]
        self.hold(parts)
        try:
            await self.fetch(parts, read_named)
            lines = await self._complete_lines(record, index.blocks, where)
            return [(at, line) for at, line in enumerate(lines) if at not in segment.gone]
        finally:
            self.release(parts)

    async def read_sources(
        self, segments: Sequence[Segment], read_named: Callable[[], Awaitable[NamedSegments]]
    ) -> list[MergeSource]:
        """Read what a merge needs of some segments of jobs; what is missing is read together.

        Most rows of large segments may have left. Only the others are kept, and of blocks not more
        than ``_AT_ONCE_BYTES`` are read at once.

        Raises: as ``fetch``.
        """
        indexes = await self._read_indexes(segments, read_named)
        wanted = [*map(_Wanted.of, segments, indexes)]
        found = list[MergeSource]()
        for some in _at_once(wanted):
            parts = [part for each in some for part in each.parts()]
            self.hold(parts)
            try:
                await self.fetch(parts, read_named)
                found += [await self._read_source(each) for each in some]
            finally:
                self.release(parts)
        return found

    async def _read_source(self, wanted: _Wanted) -> MergeSource:
        """Return what was fetched of a segment, for a merge."""
        record, gone = wanted.record, wanted.gone
        where = f"{self.folder.address}{record.id}"
        lines = await self._complete_lines(record, wanted.blocks, where)
        for first, last in gone.ranges:
            lines[first : last + 1] = [b""] * (last + 1 - first)
        seqs, ids = self.parts.seqs(record), self.parts.ids(record)
        if record.first_id:
            ids = await _hash_in_turns(ids_after(record.first_id, 0), record.rows)
        if seqs is None or ids is None:
            raise StaleStateError  # It is no longer named, so nothing is kept of it.
        return MergeSource(record.id, wanted.index.runs, gone, lines, seqs, ids)

    async def _read_indexes(
        self, segments: Sequence[Segment], read_named: Callable[[], Awaitable[NamedSegments]]
    ) -> list[SegmentIndex]:
        """Read the indexes of segments, and which of their rows have left."""
        parts = [SegmentPart(segment.record, "index") for segment in segments]
        vectors = [segment for segment in segments if not segment.has_vector]
        parts += [SegmentPart(segment.record, "vector") for segment in vectors]
        await self.fetch(parts, read_named)
        for segment in vectors:
            if (vector := self.parts.vector(segment.record)) is None:
                raise StaleStateError
            segment.take_vector(vector)
        indexes = [self.parts.index(segment.record) for segment in segments]
        if None in indexes:
            raise StaleStateError
        return [index for index in indexes if index is not None]

    async def _complete_lines(
        self, record: SegmentRecord, blocks: Sequence[Block], where: str
    ) -> list[bytes]:
        """Return the rows of some blocks as lines, at their positions; others are empty.

        Those of a push are completed in turns.
        """
        lines = [b""] * record.rows
        for block in blocks:
            some = self.parts.lines(record, block)
            if some is None:
                raise StaleStateError
            completed = complete_lines(some, block.start, where, record.pushed)
            lines[block.start : block.stop] = completed
            if record.pushed:
                await asyncio.sleep(0)
        return lines

    async def fetch(
        self, parts: Collection[SegmentPart], read_named: Callable[[], Awaitable[NamedSegments]]
    ) -> None:
        """Read parts of segments, retrying until the storage answers.

        ``read_named`` reads the queue object, and is asked if a segment is missing.

        Raises:
            StaleStateError: The queue no longer names one of the segments.
            CorruptStateError: One is damaged, or is missing although the queue names it.
            StoreRefusedError: The store does not let them be read.
        """
        backoff = RetryBackoff(self._clock, _FIRST_RETRY_S, _LAST_RETRY_S)
        loop = asyncio.get_running_loop()
        missing_since: float | None = None
        while True:
            try:
                await self.parts.fetch(parts)
            except UnavailableError:
                await backoff.wait()
            except ObjectMissingError as error:
                missing_since = loop.time() if missing_since is None else missing_since
                named = await _answered(read_named, backoff)
                # A segment may be named still, but with another vector.
                if not all(_names_of(part) <= named.ids for part in parts):
                    raise StaleStateError from error
                if loop.time() - missing_since >= _MISSING_S:
                    lost = self._lost(error)
                    for part in parts:
                        if part.segment.id in self.parts.missing:
                            self.parts.note_damage(part.segment.id, lost)
                    raise lost from error
                await backoff.wait()
            else:
                return

    def _lost(self, error: ObjectMissingError) -> CorruptStateError:
        return CorruptStateError(
            f"a segment of {self._where} is missing ({error}): the queue names it, and its jobs "
            "cannot be read. `bucketq doctor --deep` lists what is missing. If you have a copy (a "
            "lifecycle rule or a person may have deleted it), put it back and open the queue again"
        )


async def _hash_in_turns(ids: Iterator[str], count: int) -> SegmentIds:
    """Hash so many ids, some in each turn, and sort them."""
    parts = list[SegmentIds]()
    for start in range(0, count, ROWS_A_TURN):
        stop = min(count, start + ROWS_A_TURN)
        hashes = hash_ids(islice(ids, stop - start))
        parts.append(sort_hashes(hashes, array("I", range(start, stop))))
        await asyncio.sleep(0)
    return await run_in_turns(merge_ids(parts))


def _at_once(wanted: Sequence[_Wanted]) -> Iterator[list[_Wanted]]:
    """Cut segments into those that are read at once."""
    some, size_bytes = list[_Wanted](), 0
    for each in wanted:
        more = sum(block.length for block in each.blocks)
        if some and size_bytes + more > _AT_ONCE_BYTES:
            yield some
            some, size_bytes = [], 0
        some.append(each)
        size_bytes += more
    if some:
        yield some


def _names_of(part: SegmentPart) -> set[str]:
    """Return what a state with this part names: the segment, and its vector if it has one."""
    return {part.segment.id, part.segment.vector} - {""}


async def _answered(
    read_named: Callable[[], Awaitable[NamedSegments]], backoff: RetryBackoff
) -> NamedSegments:
    while True:
        try:
            return await read_named()
        except UnavailableError:
            await backoff.wait()
