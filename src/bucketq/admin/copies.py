"""Copies of a queue: one consistent version with every row in it, also those in segments.

What a bare queue object names is deleted once later versions no longer name it. So a copy never
depends on segments: the rows are read from them, and the copy is in format 1.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace

from bucketq.admin.queue_object import QueueObject, Summary, summarize
from bucketq.admin.segment_reader import SegmentReader
from bucketq.codec.decode import decode
from bucketq.codec.inline_copy import InlineCopy, RowSpool
from bucketq.codec.segment_lines import decode_jobs, decode_keys
from bucketq.commit.objects.queue_segments import StaleStateError
from bucketq.errors import CorruptStateError, UnavailableError
from bucketq.model.indexes.cold_segment import Segment
from bucketq.model.side_objects import FEATURE
from bucketq.model.state import State

# Each is lost only if a segment was deleted while it was read, which takes a thousand commits.
_TRIES = 20
# Slower than any usable link.
_SLOWEST_BYTES_PER_S = 1024 * 1024


class Copy:
    """A verified copy of one version of a queue."""

    def __init__(
        self,
        summary: Summary,
        text: bytes | InlineCopy,
        cold_attempt: int = 0,
        *,
        has_payloads: bool = False,
    ) -> None:
        """Hold the bytes of the object, or one that is put together as it is read."""
        self.has_payloads = has_payloads
        """Whether its jobs may name large payloads or results, which are not in it."""
        self.cold_attempt = cold_attempt
        """No job in the segments has made more attempts."""
        self._text = text
        self.size_bytes = len(text) if isinstance(text, bytes) else text.size_bytes
        self.summary = replace(summary, size_bytes=self.size_bytes)

    def chunks(self) -> Iterator[bytes]:
        """Yield its bytes in pieces."""
        return iter((self._text,)) if isinstance(self._text, bytes) else self._text.chunks()

    @property
    def body(self) -> bytes:
        """All of its bytes, in memory."""
        return self._text if isinstance(self._text, bytes) else b"".join(self._text.chunks())


async def backup(target: QueueObject) -> Copy:
    """Read and verify a queue; a copy of one without segments has the bytes of the object.

    Raises:
        QueueNotFoundError: It does not exist.
        CorruptStateError: It or one of its segments is damaged; a copy would not be a backup.
        UnavailableError: A segment could not be read in time.
    """
    for _ in range(_TRIES):
        body = (await target.read()).body
        state = decode(body, target.url).state
        try:
            return await copy_of(target, state, body)
        except StaleStateError:
            continue  # A segment was deleted, because the queue has moved on.
    message = f"{target.url} changed too often while it was copied; try again"
    raise UnavailableError(message)


async def save_to(target: QueueObject, copy: Copy, *, overwrite: bool = False) -> None:
    """Write a copy to another object, and verify it.

    Raises:
        ChangedMeanwhileError: There is an object, and ``overwrite`` is not set.
    """
    body = copy.body
    found = await target.find() if overwrite else None
    await target.write(body, None if found is None else found.etag)
    found = await target.find()
    if found is None or found.body != body:
        message = f"the copy at {target.url} is not what was written; do not rely on it"
        raise CorruptStateError(message)


async def copy_of(target: QueueObject, state: State, body: bytes) -> Copy:
    """Return a copy of a version that was just read.

    Raises:
        StaleStateError: The queue no longer names one of its segments.
        CorruptStateError: One of its segments is damaged.
    """
    if not state.requires:
        return Copy(summarize(state), body)
    reader = SegmentReader(target, state)
    segments, attempt = reader.segments, 0
    with RowSpool() as spool:
        for segment in state.cold.rows.segments.values():
            limit_s = target.timeout_s + segment.record.bytes / _SLOWEST_BYTES_PER_S
            try:
                async with asyncio.timeout(limit_s):
                    rows = await segments.read_rows(segment, reader.read_named)
            except TimeoutError as error:
                message = f"a segment of {target.url} could not be read in {limit_s:.0f} s"
                raise UnavailableError(message) from error
            where = f"{segments.folder.address}{segment.record.id}"
            attempt = max(attempt, _add(spool, segment, rows, where))
        text, has_payloads = spool.finish(state, target.url), FEATURE in state.requires
        return Copy(summarize(state), text, attempt, has_payloads=has_payloads)


def _add(spool: RowSpool, segment: Segment, rows: list[tuple[int, bytes]], where: str) -> int:
    """Add rows of a segment, which are decoded, so that the copy is known to be readable.

    Returns the highest number of an attempt.
    """
    lines, attempt = [line for _, line in rows], 0
    if segment.record.cls == "keys":
        keys = decode_keys(lines, 0, where)
        spool.add("keys", ((key.seq, line) for key, line in zip(keys, lines, strict=True)))
    else:
        jobs, _ = decode_jobs(lines, 0, where)
        spool.add("jobs", ((job.seq, line) for job, line in zip(jobs, lines, strict=True)))
        attempt = max((job.attempt for job in jobs), default=0)
    if len(lines) != segment.live:
        message = (
            f"segment {where} has {len(lines)} rows left, but the queue says {segment.live}; it is "
            "left as it is"
        )
        raise CorruptStateError(message)
    return attempt
