"""What was read of a queue's segments, and how more is read.

Segments never change, so a part that was read stays valid: states come and go (after every lost
race a fresh one is made), and this stays. Indexes and ids are kept for as long as the queue names
their segment; rows are kept up to a number of bytes, the least recently used leave first.
"""

from __future__ import annotations

import asyncio
import logging
from array import array
from collections import Counter, OrderedDict
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Collection,
    Coroutine,
    Iterable,
    Iterator,
)
from contextlib import asynccontextmanager, suppress
from typing import Any, Literal

from bucketq.codec.deletion_vector import decode_vector
from bucketq.codec.segment_file import EncodedSegment, decode_ids, decode_index, decode_seqs
from bucketq.codec.segment_lines import decode_jobs, decode_keys, split_block
from bucketq.commit.objects.segment_policy import FULL_BYTES
from bucketq.errors import BucketQError, CorruptStateError
from bucketq.model.indexes.cold_rows import SegmentPart
from bucketq.model.indexes.segment_reads import DecodedJobs
from bucketq.model.records import KeyRecord
from bucketq.model.segments import (
    Block,
    Gone,
    Pushed,
    SegmentIds,
    SegmentIndex,
    SegmentRecord,
)
from bucketq.store.base import ObjectMissingError

_log = logging.getLogger("bucketq")

ROW_BYTES = 64 << 20
"""How many bytes of rows are kept. Rows in the order of claims are read once, so this is for queues
of many kinds, whose segments are read at many places: 2,000 blocks of 32 KiB."""
_DECODED_BLOCKS = 128
"""Of how many blocks the decoded jobs are kept. Readers of the same pages share them, so that their
answers take memory once; it is more than the largest page, and about 20 MB."""
_MANY_BLOCKS = 64
"""A request for more blocks than these has its jobs decoded before it is applied, some at a time.
As many take 20 ms, and a broker that is busy for two seconds is treated as dead."""
_BLOCKS_A_TURN = 16
"""How many blocks are decoded before other tasks run: 5 ms."""
_PARALLEL = 16
"""How many requests are made at once: enough to hide the latency of an object store."""
_REQUEST_BYTES = 1 << 20
"""Blocks that follow each other are read with one request, up to this size, which takes about as
long again as the latency of an object store."""

ReadRange = Callable[[str, int, int], Awaitable[bytes]]
"""Reads a range of a segment, given its id, the offset and the length."""

_Line = Literal["index", "seqs", "ids", "vector"]
_BlockSlot = tuple[str, Block]
"""A segment, and a block of it."""
_Decoded = tuple[Pushed | None, DecodedJobs]
"""Decoded jobs, and what was added to their lines: they are valid only for entries that have it."""


class SegmentParts:
    """The parts of a queue's segments that are in memory."""

    def __init__(self, read: ReadRange, where: str) -> None:
        """Read with ``read``; ``where`` is what messages call the folder of segments."""
        self._read = read
        self._where = where
        self._indexes: dict[str, SegmentIndex] = {}
        self._seqs: dict[str, tuple[int, array[int]]] = {}
        """The base and the numbers of each segment."""
        self._ids: dict[str, SegmentIds] = {}
        self._vectors: dict[tuple[str, str], Gone] = {}
        """What vectors hold, by segment and vector."""
        self._blocks: OrderedDict[_BlockSlot, list[bytes]] = OrderedDict()
        self._block_bytes = 0
        self._decoded: OrderedDict[_BlockSlot, _Decoded] = OrderedDict()
        """The jobs of blocks that were decoded whole."""
        self._ahead: dict[_BlockSlot, _Decoded] = {}
        """The jobs of blocks that are held for a request for many."""
        self._held = Counter[_BlockSlot]()
        """How many requests need each block."""
        self._under_way: dict[tuple[str, Block | _Line], asyncio.Task[None]] = {}
        self._limit = asyncio.Semaphore(_PARALLEL)
        self._damaged = set[str]()
        """Segments that cannot be read. If one is put back, its rows are served once the queue is
        opened again."""
        self.missing = set[str]()
        """Segments that were not there when they were last asked for."""

    def index(self, segment: SegmentRecord) -> SegmentIndex | None:
        """Return the index of a segment, if it was read."""
        return self._indexes.get(segment.id)

    def seqs(self, segment: SegmentRecord) -> array[int] | None:
        """Return the number of each row of a segment, if they were read."""
        if (known := self._seqs.get(segment.id)) is None:
            return None
        base, seqs = known
        if base != segment.base:  # A push was committed again.
            seqs = array("Q", (segment.base + seq - base for seq in seqs))
            self._seqs[segment.id] = (segment.base, seqs)
        return seqs

    def ids(self, segment: SegmentRecord) -> SegmentIds | None:
        """Return the hashes of a segment's ids, if they were read."""
        return self._ids.get(segment.id)

    def is_damaged(self, segment: SegmentRecord) -> bool:
        """Whether a segment was found to be missing or damaged."""
        return segment.id in self._damaged

    def note_damage(self, segment_id: str, error: BucketQError) -> None:
        """Note that a segment cannot be read; it is not asked for again."""
        if segment_id not in self._damaged:
            self._damaged.add(segment_id)
            _log.error("%s", error)

    def vector(self, segment: SegmentRecord) -> Gone | None:
        """Return the positions of a segment that are in its vector, if that was read."""
        return self._vectors.get((segment.id, segment.vector))

    def has_block(self, segment: SegmentRecord, block: Block) -> bool:
        """Whether a block was read, and is still in memory."""
        return (segment.id, block) in self._blocks

    def jobs(
        self, segment: SegmentRecord, block: Block, start: int, stop: int
    ) -> DecodedJobs | None:
        """Return the jobs at some positions of a block, if it was read."""
        lines = self.lines(segment, block)
        if lines is None:
            return None
        slot, where, pushed = (segment.id, block), f"{self._where}{segment.id}", segment.pushed
        first, last = start - block.start, stop - block.start
        known = self._ahead.get(slot)
        if known is None or known[0] != pushed:
            known = self._decoded.get(slot)
            if known is None or known[0] != pushed:
                if last - first < len(lines):
                    return decode_jobs(lines[first:last], start, where, pushed)
                known = (pushed, decode_jobs(lines, block.start, where, pushed))
                self._decoded[slot] = known
                if len(self._decoded) > _DECODED_BLOCKS:
                    self._decoded.popitem(last=False)
            self._decoded.move_to_end(slot)
        jobs, unknown = known[1]
        return jobs[first:last], unknown

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
        slot = (segment.id, block)
        lines = self._blocks.get(slot)
        if lines is not None:
            self._blocks.move_to_end(slot)
        return lines

    def hold(self, parts: Iterable[SegmentPart]) -> None:
        """Keep blocks, once they are read, until ``release``, even if they take too many bytes."""
        self._held.update(_slots(parts))

    def release(self, parts: Iterable[SegmentPart]) -> None:
        """Undo ``hold`` for the same blocks."""
        self._held.subtract(_slots(parts))
        self._held += Counter()  # Without those that are no longer held.
        for slot in [slot for slot in self._ahead if not self._held[slot]]:
            del self._ahead[slot]
        self._evict()

    async def decode_ahead(self, parts: Collection[SegmentPart]) -> None:
        """Decode the jobs of blocks that are held, if they are many, and keep them as long.

        The loop is free between some of them and the next. One that cannot be decoded is left to
        the request, which is answered with the reason.
        """
        blocks = [
            (segment, what)
            for segment, what in parts
            if isinstance(what, Block) and segment.cls != "keys"
        ]
        if len(blocks) <= _MANY_BLOCKS:
            return
        for number, (segment, block) in enumerate(blocks):
            slot, lines = (segment.id, block), self.lines(segment, block)
            if lines is not None and self._held[slot] and slot not in self._ahead:
                with suppress(CorruptStateError):
                    where = f"{self._where}{segment.id}"
                    jobs = decode_jobs(lines, block.start, where, segment.pushed)
                    self._ahead[slot] = (segment.pushed, jobs)
            if not number % _BLOCKS_A_TURN:
                await asyncio.sleep(0)

    async def fetch(self, parts: Iterable[SegmentPart]) -> None:
        """Read parts that are not in memory; for one that is being read, wait.

        Raises:
            CorruptStateError: A segment is damaged.
            ObjectMissingError: A segment is missing: read the queue object again.
            UnavailableError: The storage did not answer.
        """
        tasks = dict.fromkeys(self._reading(parts))
        # If a caller is cancelled, others may wait for the same part.
        results = await asyncio.gather(*map(asyncio.shield, tasks), return_exceptions=True)
        for result in results:
            if isinstance(result, BaseException):
                raise result

    def keep(self, named: Collection[str]) -> None:
        """Forget the indexes and ids of segments that the queue no longer names."""
        kept: dict[str, Any]
        for kept in (self._indexes, self._seqs, self._ids):
            for name in [name for name in kept if name not in named]:
                del kept[name]
        for slot in [slot for slot in self._vectors if slot[0] not in named]:
            del self._vectors[slot]

    def know(self, segment: SegmentRecord, encoded: EncodedSegment) -> None:
        """Take a segment that this process has written: its first rows are needed soon.

        If it is small it will be merged, and then its numbers and ids are needed as well.
        """
        self._indexes[segment.id] = encoded.index
        for block in encoded.index.blocks:
            if not self.has_block(segment, block):
                text = encoded.body[block.offset : block.offset + block.length]
                self._keep_block(segment, block, text[:-1].split(b"\n"))
        if segment.bytes <= FULL_BYTES:
            self._seqs[segment.id] = (segment.base, encoded.seqs)
            self._ids[segment.id] = encoded.ids
        self._evict()

    def _reading(self, parts: Iterable[SegmentPart]) -> Iterator[asyncio.Task[None]]:
        """Return the tasks that read what is missing; start them if necessary."""
        blocks: list[SegmentPart] = []
        # A request may name a part more than once: two priorities can meet in one block.
        wanted = {(segment.id, what): SegmentPart(segment, what) for segment, what in parts}
        for part in wanted.values():
            segment, what = part
            if (task := self._under_way.get((segment.id, what))) is not None:
                yield task
            elif isinstance(what, Block):
                if (segment.id, what) not in self._blocks:
                    blocks.append(part)
            elif not self._has_line(segment, what):
                yield self._start([part], self._read_line(segment, what))
        for run in _adjacent(blocks):
            yield self._start(run, self._read_blocks(run))

    def _start(
        self, parts: list[SegmentPart], work: Coroutine[Any, Any, None]
    ) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        slots = [(segment.id, what) for segment, what in parts]
        for slot in slots:
            self._under_way[slot] = task

        def done(task: asyncio.Task[None]) -> None:
            for slot in slots:
                del self._under_way[slot]
            if not task.cancelled():
                task.exception()  # Or the loop would log that it was never retrieved.

        task.add_done_callback(done)
        return task

    def _has_line(self, segment: SegmentRecord, what: _Line) -> bool:
        if what == "index":
            return segment.id in self._indexes
        if what == "vector":
            return (segment.id, segment.vector) in self._vectors
        return segment.id in (self._seqs if what == "seqs" else self._ids)

    async def _read_line(self, segment: SegmentRecord, what: _Line) -> None:
        where = f"{self._where}{segment.id}"
        async with self._limit, self._noting_damage(segment):
            if what == "vector":
                text = await self._read(segment.vector, 0, segment.vector_bytes)
                self._keep_vector(segment, text)
                return
            index = self._indexes.get(segment.id)
            if index is None:
                offset = segment.bytes - segment.index
                text = await self._read(segment.id, offset, segment.index)
                index = self._indexes[segment.id] = decode_index(segment, text, where)
            if what == "seqs":
                text = await self._read(segment.id, index.seqs.offset, index.seqs.length)
                seqs = decode_seqs(index, text, where, segment.base)
                self._seqs[segment.id] = (segment.base, seqs)
            elif what == "ids":
                text = await self._read(segment.id, index.ids.offset, index.ids.length)
                self._ids[segment.id] = decode_ids(index, text, where)

    def _keep_vector(self, segment: SegmentRecord, text: bytes) -> None:
        """Keep what a vector holds for a segment, if it fits its entry."""
        where = f"{self._where}{segment.vector}"
        vector = decode_vector(segment.vector, text, where).get(segment.id, Gone())
        if segment.rows - vector.joined(Gone(segment.gone)).count != segment.live:
            message = (
                f"{where} does not fit the entry of segment {segment.id} in the queue: "
                f"{segment.live} of {segment.rows} rows should be left"
            )
            raise CorruptStateError(message)
        self._vectors[segment.id, segment.vector] = vector

    async def _read_blocks(self, run: list[SegmentPart]) -> None:
        """Read blocks that follow each other in one segment."""
        segment, blocks = run[0].segment, [what for _, what in run if isinstance(what, Block)]
        first, last = blocks[0], blocks[-1]
        async with self._limit, self._noting_damage(segment):
            length = last.offset + last.length - first.offset
            text = await self._read(segment.id, first.offset, length)
            where = f"{self._where}{segment.id}"
            for block in blocks:
                start = block.offset - first.offset
                lines = split_block(block, text[start : start + block.length], where)
                if not self.has_block(segment, block):
                    self._keep_block(segment, block, lines)
        self._evict()

    def _keep_block(self, segment: SegmentRecord, block: Block, lines: list[bytes]) -> None:
        self._blocks[segment.id, block] = lines
        self._block_bytes += block.length

    @asynccontextmanager
    async def _noting_damage(self, segment: SegmentRecord) -> AsyncIterator[None]:
        self.missing.discard(segment.id)
        try:
            yield
        except CorruptStateError as error:
            self.note_damage(segment.id, error)
            raise
        except ObjectMissingError:
            self.missing.add(segment.id)
            raise

    def _evict(self) -> None:
        """Forget the rows that were not used for longest, if they take too many bytes."""
        excess, leaving = self._block_bytes - ROW_BYTES, list[_BlockSlot]()
        for slot in self._blocks:  # There are thousands, and mostly the first is enough.
            if excess <= 0:
                break
            if slot not in self._held:
                leaving.append(slot)
                excess -= slot[1].length
        for slot in leaving:
            del self._blocks[slot]
            self._decoded.pop(slot, None)
            self._block_bytes -= slot[1].length


def _slots(parts: Iterable[SegmentPart]) -> Iterator[_BlockSlot]:
    return ((segment.id, what) for segment, what in parts if isinstance(what, Block))


def _adjacent(parts: list[SegmentPart]) -> Iterator[list[SegmentPart]]:
    """Cut blocks into runs that are read with one request each."""
    run: list[SegmentPart] = []
    start = end = 0
    for part, block in sorted(
        ((part, part.what) for part in parts if isinstance(part.what, Block)),
        key=lambda each: (each[0].segment.id, each[1].offset),
    ):
        is_next = run and run[0].segment.id == part.segment.id and end == block.offset
        if run and not (is_next and block.offset + block.length - start <= _REQUEST_BYTES):
            yield run
            run = []
        if not run:
            start = block.offset
        run.append(part)
        end = block.offset + block.length
    if run:
        yield run
