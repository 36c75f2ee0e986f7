"""Reads rows of segments for administrators, who have the queue object and no register."""

from __future__ import annotations

import asyncio
from array import array
from collections.abc import Callable
from functools import partial
from typing import TypeVar

from bucketq.admin.queue_object import QueueObject
from bucketq.codec.decode import decode
from bucketq.codec.tombstone import is_tombstone
from bucketq.commit.objects.queue_segments import QueueSegments
from bucketq.commit.objects.segment_sweep import NamedSegments, named_by
from bucketq.errors import CorruptStateError, QueueNotFoundError, UnavailableError
from bucketq.model.indexes.cold_rows import ColdRowsNeededError, SegmentPart
from bucketq.model.indexes.cold_segment import Segment
from bucketq.model.state import State

A = TypeVar("A")


class SegmentReader:
    """Reads what is asked of the segments of one state."""

    def __init__(self, target: QueueObject, state: State) -> None:
        self._target = target
        self._state = state
        self.segments = QueueSegments(target.store, target.key, target.url, target.clock)
        self.segments.attach(state)

    async def read(self, ask: Callable[[], A]) -> A:
        """Call ``ask`` until all that it needs of segments has been read; return its answer.

        Raises:
            StaleStateError: The queue no longer names one of the segments.
            CorruptStateError: One of them is damaged or missing.
            UnavailableError: They could not be read in time.
        """
        held: list[SegmentPart] = []
        try:
            async with asyncio.timeout(self._target.timeout_s):
                while True:
                    try:
                        return ask()
                    except ColdRowsNeededError as needed:
                        held += needed.parts
                        self.segments.hold(needed.parts)
                        await self.segments.fetch(needed.parts, self.read_named)
        except TimeoutError as error:
            message = f"segments of {self._target.url} could not be read in time; try again"
            raise UnavailableError(message) from error
        finally:
            self.segments.release(held)

    async def find_twice(self) -> str | None:
        """Return what is wrong if a row of the object is also in a segment, or None.

        Segments that cannot be read are skipped.
        """
        hot = {"jobs": {job.seq for job in self._state.jobs}}
        hot["keys"] = {key.seq for key in self._state.keys}
        rows = self._state.cold.rows
        for segment in rows.segments.values():
            numbers = hot["keys" if segment.record.cls == "keys" else "jobs"]
            try:
                seqs = await self.read(partial(self._numbers, segment))
            except CorruptStateError:
                continue
            for position, seq in enumerate(seqs):
                if seq in numbers and position not in segment.gone:
                    return f"the row with seq {seq} is also in segment {segment.record.id}"
        return None

    async def know_vector(self, segment: Segment) -> str | None:
        """Read what has left a segment; return what is wrong if that cannot be read, or None."""
        try:
            await self.read(partial(self._state.cold.rows.require_vector, segment))
        except CorruptStateError as error:
            return str(error)
        return None

    async def read_newest(self) -> State:
        """Read the queue object as it is now."""
        newest = (await self._target.read()).body
        if is_tombstone(newest):
            raise QueueNotFoundError(f"{self._target.url} was deleted meanwhile")
        return decode(newest, self._target.url).state

    def _numbers(self, segment: Segment) -> array[int]:
        rows = self._state.cold.rows
        rows.index_of(segment)
        rows.require_vector(segment)
        return rows.seqs_of(segment)

    async def read_named(self) -> NamedSegments:
        """Read which segments of this incarnation the queue names now."""
        state = await self.read_newest()
        if state.incarnation == self._state.incarnation:
            return named_by(state)
        return NamedSegments(state.incarnation, state.version, set(), set())
