"""``LargePushes``: the rows of a large push go to segments of their own, not through the object.

A push that has more bytes than the object should hold (``spill_bytes``) would make one commit
large, and its rows would be written a second time when they spill. So they are put first, and the
commit names the segments. The lines do not depend on the commit: if it is lost to another writer,
the next one names the same segments.

A put that fails or is slow costs the push little: what was not put in time goes to the object, like
the rows of any other push, and for a while other pushes do not try.

Pushes that are large only because they are joined go to segments while a put takes less than it
saves: their callers wait for two writes in place of one.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator

from msgspec.structs import replace

from bucketq.clock import Clock
from bucketq.codec.pushed_rows import class_of_new, pushed_row
from bucketq.codec.segment_file import SEGMENT_BYTES, EncodedSegment, SegmentRow
from bucketq.commit.objects.queue_segments import QueueSegments
from bucketq.commit.objects.segment_encoding import encode_in_turns
from bucketq.commit.upkeep.background import Background
from bucketq.errors import BucketQError
from bucketq.model.base import NewJob, row_bytes
from bucketq.model.effects.push_checks import parts_of
from bucketq.model.effects.pushes import may_grant
from bucketq.model.effects.segment_changes import FORMAT
from bucketq.model.numbered_batches import Publish
from bucketq.model.operations import Push, Request
from bucketq.model.segments import SegmentClass, WrittenRows, WrittenSegment
from bucketq.model.state import State
from bucketq.store.backoff import RetryBackoff

_log = logging.getLogger("bucketq")

_PIECE_BYTES = SEGMENT_BYTES
"""How many bytes of rows go to one segment: every commit writes an entry for each segment, and
those that are full need not be merged."""
_LONGEST_PUT_S = 1.0
_SLOWEST_BYTES_PER_S = 1 << 20
"""How long the puts of a push may take: a second, and one more for each megabyte. The commit of a
push through the object takes as long on a store that is so slow."""
_FIRST_PAUSE_S = 1.0
_LAST_PAUSE_S = 60.0
"""For how long no push tries it after a failure: a passing fault is soon over, and a store that
refuses segments is asked once a minute."""


_QUICK_PUT_S = 0.02
"""What a put may take for joined pushes: about what the CPU takes more for their rows if they pass
through the object. Files are much quicker, and object storage is slower."""
_SLOW_PAUSE_S = 10.0
"""For how long they do not try it after a put that took longer."""


class LargePushes:
    """Puts the rows of the large pushes of one committer."""

    def __init__(self, segments: QueueSegments, clock: Clock, where: str) -> None:
        """Put them in the segments of a queue; ``where`` is what messages call it."""
        self._segments = segments
        self._clock = clock
        self._where = where
        self._versions = 0
        """How many versions passed during the last put."""
        self._backoff: RetryBackoff | None = None
        """The pauses since puts have failed; None: they do not."""
        self._rests_until_s = 0.0
        self._slow_until_s = 0.0
        self._background = Background()

    def wants(self, state: State, request: Request) -> bool:
        """Whether to put rows of a request before it is applied."""
        operation = request.operation
        if not isinstance(operation, Push | Publish) or request.written is not None:
            return False
        settings = state.settings
        if settings.max_format < FORMAT or row_bytes(operation.jobs) <= settings.spill_bytes:
            return False
        now_s = asyncio.get_running_loop().time()
        if now_s < self._rests_until_s:
            return False
        if now_s < self._slow_until_s and _is_large_by_joining(request, settings.spill_bytes):
            return False
        is_known = state.sessions.has_applied(request.session, request.number)
        return not is_known and may_grant(state, operation, request)

    def start(self, state: State, request: Request, done: Callable[[Request], None]) -> None:
        """Put rows of a request beside everything else; then ``done`` is called."""
        self._background.start(self._put_and_call(state, request, done))

    async def stop(self) -> None:
        """Stop all puts; nothing is called any more."""
        await self._background.finish(0)

    async def _put_and_call(
        self, state: State, request: Request, done: Callable[[Request], None]
    ) -> None:
        done(await self.put(state, request))

    async def put(self, state: State, request: Request) -> Request:
        """Put rows of a request; return it with the segments that were put in time."""
        operation, settings = request.operation, state.settings
        written = list[WrittenSegment]()
        if not isinstance(operation, Push | Publish):
            return request
        limit_s = _LONGEST_PUT_S + row_bytes(operation.jobs) / _SLOWEST_BYTES_PER_S
        puts: list[asyncio.Task[None]] = []
        try:
            async with asyncio.timeout(limit_s):
                for cls, rows in _pieces(operation.jobs):
                    encoded = await encode_in_turns(cls, rows)
                    putting = self._put(state, encoded, written)
                    puts.append(asyncio.get_running_loop().create_task(putting))
                await asyncio.gather(*puts)
        except (BucketQError, TimeoutError) as error:
            self._note_failure(error)
        else:
            self._backoff = None
        finally:
            for task in puts:
                task.cancel()
            await asyncio.gather(*puts, return_exceptions=True)
        return replace(request, written=WrittenRows(tuple(written), settings))

    async def _put(
        self, state: State, encoded: EncodedSegment, written: list[WrittenSegment]
    ) -> None:
        segments, version = self._segments, state.version
        until = segments.policy.until(version, self._versions)
        record = encoded.record(until, self._clock.now())
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        await segments.folder.put(record.id, encoded.body)
        if (put_at_s := loop.time()) - began_s > _QUICK_PUT_S:
            self._slow_until_s = put_at_s + _SLOW_PAUSE_S
        self._versions = state.version - version
        segments.parts.know(record, encoded)
        written.append(WrittenSegment(record, encoded.index, encoded.seqs))

    def _note_failure(self, error: Exception) -> None:
        """Let other pushes go to the object for a while; log the first of several failures."""
        if self._backoff is None:
            self._backoff = RetryBackoff(self._clock, _FIRST_PAUSE_S, _LAST_PAUSE_S)
            text = "large pushes go through the object of %s, because segments cannot be put: %s"
            _log.warning(text, self._where, str(error) or "it takes too long")
        self._rests_until_s = asyncio.get_running_loop().time() + self._backoff.next_s()


def _is_large_by_joining(request: Request, limit_bytes: int) -> bool:
    """Whether none of the pushes that are joined in a request would go to segments by itself."""
    jobs = request.operation.jobs if isinstance(request.operation, Push) else ()
    parts = parts_of(jobs, request.counts)
    return bool(request.counts) and all(row_bytes(part) <= limit_bytes for part in parts)


def _pieces(jobs: tuple[NewJob, ...]) -> Iterator[tuple[SegmentClass, list[SegmentRow]]]:
    """Yield the rows of each segment."""
    pieces: dict[SegmentClass, list[SegmentRow]] = {"ready": [], "later": []}
    size_bytes = dict.fromkeys(pieces, 0)
    for place, job in enumerate(jobs):
        if (cls := class_of_new(job)) is None:
            continue
        row = pushed_row(job, place)
        pieces[cls].append(row)
        size_bytes[cls] += len(row.line)
        if size_bytes[cls] > _PIECE_BYTES:
            yield cls, pieces[cls]
            pieces[cls], size_bytes[cls] = [], 0
    for cls, rows in pieces.items():
        if rows:
            yield cls, rows
