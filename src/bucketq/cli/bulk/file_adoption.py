"""Pushes the lines of a file by writing segments itself, and adds all of them in one commit.

Ten times as fast as pushing them in batches, and all or none. It is for files whose jobs have no
ids, keys or times of their own: those have to be compared with what is in the queue.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager

from bucketq.cli.bulk.feeds import FileFeed, Mark, check_item
from bucketq.clock import Clock, SystemClock
from bucketq.codec.pushed_rows import class_of_new, pushed_row
from bucketq.codec.segment_file import (
    SEGMENT_BYTES,
    EncodedSegment,
    SegmentRow,
    encode_segment,
    sort_rows,
)
from bucketq.commit.bulk_write import BulkWrite, Reservation, put_reserved
from bucketq.model.effects.segment_changes import FORMAT
from bucketq.model.history import is_wanted
from bucketq.model.partitions import OtherPartitionsError
from bucketq.model.segments import SegmentRecord
from bucketq.model.settings import MIB, Settings
from bucketq.store.url import open_store

_BATCH, _PART = 0, 1
"""The position of a file, which has a writer of its own."""
_PUTS = 4
"""How many segments are put at once: 32 MiB, enough to hide the latency of an object store."""
_LINES_PER_TURN = 2000
"""Lines that are read between two turns of the event loop: a twentieth of a second or so."""


class NotAdoptableError(Exception):
    """The file has to be pushed in the ordinary way; the message says why."""


async def adopt_lines(
    url: str, timeout_s: float, feed: FileFeed, show: Callable[[int], None]
) -> Mark:
    """Push all lines of a file; return the mark of its end.

    Raises:
        NotAdoptableError: The file has to be pushed in batches; nothing was pushed.
        InvalidRequestError: A line is wrong; nothing was pushed.
        RejectedError: The queue refuses the jobs, for example because it is full.
    """
    clock = SystemClock()
    async with _opened(url, timeout_s, clock) as bulk:
        settings = await bulk.settings()
        if settings.max_format < FORMAT:
            raise NotAdoptableError(
                f"the max_format of the queue is {settings.max_format} (`bucketq upgrade`)"
            )
        if is_wanted(settings):
            raise NotAdoptableError("the queue keeps a history (history_retention_s)")
        reservation = await bulk.reserve(feed.writer, _BATCH, _PART)
        if reservation is None:  # An earlier run was killed after its commit.
            return _end_of(feed)
        write = _FileWrite(bulk, reservation, feed, settings, clock)
        try:
            await write.put_all(show)
            await bulk.adopt(reservation, feed.writer, _BATCH, await write.records(), _PART)
        except BaseException:
            write.cancel()
            await bulk.abandon(reservation)
            raise
        return write.end


@asynccontextmanager
async def _opened(url: str, timeout_s: float, clock: Clock) -> AsyncIterator[BulkWrite]:
    location = open_store(url)
    try:
        async with BulkWrite(
            location.store, location.key, location.url, clock, timeout_s=timeout_s
        ) as bulk:
            yield bulk
    except OtherPartitionsError as error:
        raise NotAdoptableError("the queue has partitions") from error
    finally:
        await location.store.close()


class _FileWrite:
    """The segments of one file."""

    def __init__(
        self,
        bulk: BulkWrite,
        reservation: Reservation,
        feed: FileFeed,
        settings: Settings,
        clock: Clock,
    ) -> None:
        self.end = Mark()
        self._bulk = bulk
        self._reservation = reservation
        self._feed = feed
        self._settings = settings
        self._clock = clock
        self._puts: list[asyncio.Task[SegmentRecord]] = []

    async def put_all(self, show: Callable[[int], None]) -> None:
        """Read all lines, and put them."""
        loop, limit = asyncio.get_running_loop(), asyncio.Semaphore(_PUTS)
        for rows in self._pieces():
            if not rows:  # A turn for other tasks.
                show(self.end.number)
                await asyncio.sleep(0)
                continue
            encoded = encode_segment("ready", sort_rows("ready", rows))
            await limit.acquire()
            task = loop.create_task(self._put(encoded))
            task.add_done_callback(lambda _: limit.release())
            self._puts.append(task)

    async def records(self) -> list[SegmentRecord]:
        """Return the entries of all segments, in the order of the lines, once they were put."""
        return list(await asyncio.gather(*self._puts))

    def cancel(self) -> None:
        """Stop putting."""
        for task in self._puts:
            task.cancel()

    async def _put(self, encoded: EncodedSegment) -> SegmentRecord:
        return await put_reserved(self._bulk.folder, self._reservation, encoded, self._clock)

    def _pieces(self) -> Iterator[list[SegmentRow]]:
        """Yield the rows of each segment, and now and then none."""
        rows, size_bytes = list[SegmentRow](), 0
        for count, item in enumerate(self._feed.items(Mark())):
            job = check_item(self._feed.name, item, self._settings)
            # A unique name is compared with those of all jobs, which is done by a push.
            # So is what a job is linked to.
            is_linked = job.unique is not None or job.batch_id is not None
            if not item.has_made_id or is_linked or class_of_new(job) != "ready":
                raise NotAdoptableError(
                    f"{self._feed.noun} {item.end.number} has an id, a key, a unique name, a "
                    "batch, jobs to wait for, a delay, a time or an expiry"
                )
            if len(bytes(job.payload)) > MIB:
                raise NotAdoptableError(
                    f"the payload of {self._feed.noun} {item.end.number} is large"
                )
            row = pushed_row(job, len(rows))
            if size_bytes + len(row.line) >= SEGMENT_BYTES:
                yield rows
                rows, size_bytes = [], 0
                row = pushed_row(job, 0)
            rows.append(row)
            size_bytes += len(row.line) + 1
            self.end = item.end
            if not count % _LINES_PER_TURN:
                yield []
        if rows:
            yield rows


def _end_of(feed: FileFeed) -> Mark:
    end = Mark()
    for item in feed.items(Mark()):
        end = item.end
    return end
