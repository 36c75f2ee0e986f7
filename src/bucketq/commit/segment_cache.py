"""What was read of a queue's segments, and how more is read.

Segments never change, so a part that was read stays valid: states come and go (after every lost
race a fresh one is made), and this stays. Indexes and ids are kept for as long as the queue names
their segment; rows are kept up to a number of bytes, the least recently used leave first.
"""

from __future__ import annotations

import asyncio
from array import array
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Collection, Iterable

from bucketq.codec.segment_file import (
    decode_ids,
    decode_index,
    decode_jobs,
    decode_keys,
    decode_seqs,
    split_block,
)
from bucketq.model.cold_rows import DecodedJobs, Part
from bucketq.model.records import KeyRecord
from bucketq.model.segments import Block, SegmentIds, SegmentIndex, SegmentRecord

ROW_BYTES = 64 << 20
"""How many bytes of rows are kept. Rows in the order of claims are read once, so this is for queues
of many kinds, whose segments are read at many places: 2,000 blocks of 32 KiB."""
_PARALLEL = 16
"""How many parts are read at once: enough to hide the latency of an object store."""

ReadRange = Callable[[str, int, int], Awaitable[bytes]]
"""Reads a range of a segment, given its id, the offset and the length."""


class SegmentParts:
    """The parts of a queue's segments that are in memory."""

    def __init__(self, read: ReadRange, where: str) -> None:
        """Read with ``read``; ``where`` is what messages call the folder of segments."""
        self._read = read
        self._where = where
        self._indexes: dict[str, SegmentIndex] = {}
        self._seqs: dict[str, array[int]] = {}
        self._ids: dict[str, SegmentIds] = {}
        self._blocks: OrderedDict[tuple[str, int], list[bytes]] = OrderedDict()
        self._block_bytes = 0
        self._limit = asyncio.Semaphore(_PARALLEL)

    def index(self, segment: SegmentRecord) -> SegmentIndex | None:
        """Return the index of a segment, if it was read."""
        return self._indexes.get(segment.id)

    def seqs(self, segment: SegmentRecord) -> array[int] | None:
        """Return the number of each row of a segment, if they were read."""
        return self._seqs.get(segment.id)

    def ids(self, segment: SegmentRecord) -> SegmentIds | None:
        """Return the hashes of a segment's ids, if they were read."""
        return self._ids.get(segment.id)

    def jobs(
        self, segment: SegmentRecord, block: Block, start: int, stop: int
    ) -> DecodedJobs | None:
        """Return the jobs at some positions of a block, if it was read."""
        lines = self.lines(segment, block)
        if lines is None:
            return None
        some = lines[start - block.start : stop - block.start]
        return decode_jobs(some, start, f"{self._where}{segment.id}")

    def keys(
        self, segment: SegmentRecord, block: Block, start: int, stop: int
    ) -> list[KeyRecord] | None:
        """Return the idempotency keys at some positions of a block, if it was read."""
        lines = self.lines(segment, block)
        if lines is None:
            return None
        some = lines[start - block.start : stop - block.start]
        return decode_keys(some, start, f"{self._where}{segment.id}")

    def lines(self, segment: SegmentRecord, block: Block) -> list[bytes] | None:
        """Return the rows of a block as lines, if it was read."""
        slot = (segment.id, block.start)
        lines = self._blocks.get(slot)
        if lines is not None:
            self._blocks.move_to_end(slot)
        return lines

    async def fetch(self, parts: Iterable[Part]) -> None:
        """Read parts that are not in memory.

        Raises:
            CorruptStateError: A segment is damaged.
            ObjectMissingError: A segment is missing: read the queue object again.
            UnavailableError: The storage did not answer.
        """
        async with asyncio.TaskGroup() as group:
            for part in parts:
                group.create_task(self._fetch(part))

    def keep(self, named: Collection[str]) -> None:
        """Forget the indexes and ids of segments that the queue names no more."""
        for kept in (self._indexes, self._seqs, self._ids):
            for name in [name for name in kept if name not in named]:
                del kept[name]

    def know(self, segment: SegmentRecord, index: SegmentIndex) -> None:
        """Take the index of a segment that this process has written."""
        self._indexes[segment.id] = index

    async def _fetch(self, part: Part) -> None:
        segment, what = part
        where = f"{self._where}{segment.id}"
        async with self._limit:
            if what == "index":
                if segment.id not in self._indexes:
                    offset = segment.bytes - segment.index
                    text = await self._read(segment.id, offset, segment.index)
                    self._indexes[segment.id] = decode_index(segment, text, where)
            elif what == "seqs":
                if segment.id not in self._seqs:
                    index = self._indexes[segment.id]
                    text = await self._read(segment.id, index.seqs.offset, index.seqs.length)
                    self._seqs[segment.id] = decode_seqs(index, text, where)
            elif what == "ids":
                if segment.id not in self._ids:
                    index = self._indexes[segment.id]
                    text = await self._read(segment.id, index.ids.offset, index.ids.length)
                    self._ids[segment.id] = decode_ids(index, text, where)
            elif (segment.id, what.start) not in self._blocks:
                text = await self._read(segment.id, what.offset, what.length)
                self._keep_block(segment, what, split_block(what, text, where))

    def _keep_block(self, segment: SegmentRecord, block: Block, lines: list[bytes]) -> None:
        self._blocks[segment.id, block.start] = lines
        self._block_bytes += block.length
        while self._block_bytes > ROW_BYTES and len(self._blocks) > 1:
            _, left = self._blocks.popitem(last=False)
            self._block_bytes -= sum(map(len, left)) + len(left)
