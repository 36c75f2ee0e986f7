"""``ColdReads``: what group commit reads of segments, beside its writes.

A request that needs rows of a segment is set aside while they are read; the commits of others do
not wait. Then it is applied again, and may need more. The rows that were read for it are kept until
it was applied: otherwise a request that needs more rows than fit in memory at once would never end.
For a read they are kept until it is answered: if the object has changed meanwhile it is made again
from the new version, and beside busy writers a read of all rows would never end either.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from datetime import datetime

from bucketq.commit.objects.register import Register
from bucketq.commit.upkeep.background import Background
from bucketq.errors import BucketQError, CorruptStateError
from bucketq.model.indexes.cold_rows import ColdRowsNeededError, SegmentPart
from bucketq.model.operations import Request
from bucketq.model.state import State
from bucketq.model.transitions import Applied, apply

Done = Callable[[Exception | None], None]
"""Called once the parts are in memory, or with the reason why they cannot be read."""


class ColdReads:
    """The reads of segments that are in progress, and the rows that are kept for requests."""

    def __init__(self, register: Register) -> None:
        """Read the segments of a register's queue."""
        self._register = register
        self._background = Background()
        self._held: dict[int, list[SegmentPart]] = {}
        """What is kept for each request, by its identity."""
        self._ahead = set[str]()
        """The segments of which something is read ahead."""

    def start(self, owner: object, parts: list[SegmentPart], done: Done) -> None:
        """Read parts for a request; they are kept until ``release``."""
        self._held.setdefault(id(owner), []).extend(parts)
        self._register.segments.hold(parts)
        self._background.start(self._read(parts, done))

    def prefetch(self, parts: list[SegmentPart]) -> None:
        """Read parts that will be needed soon, so that no claim has to wait for them."""
        wanted = [part for part in parts if part.segment.id not in self._ahead]
        if wanted:
            self._background.start(self._prefetch(wanted))

    def release(self, owner: object) -> None:
        """Note that a request does not need its rows any more."""
        if (parts := self._held.pop(id(owner), None)) is not None:
            self._register.segments.release(parts)

    async def stop(self) -> None:
        """Stop all reads; nothing is called any more."""
        await self._background.finish(0)
        self._held.clear()

    async def _prefetch(self, parts: list[SegmentPart]) -> None:
        segments = {part.segment.id for part in parts}
        self._ahead |= segments
        try:
            # If it fails, the claim that needs the rows reads them, and retries.
            with suppress(BucketQError):
                await self._register.segments.parts.fetch(parts)
        finally:
            self._ahead -= segments

    async def _read(self, parts: list[SegmentPart], done: Done) -> None:
        try:
            await self._register.fetch(parts)
            await self._register.segments.parts.decode_ahead(parts)
        except Exception as error:  # noqa: BLE001 - whatever it is, the request is answered with it
            done(error)
        else:
            done(None)


async def apply_reading(
    register: Register, state: State, request: Request, now: datetime, by: str = ""
) -> Applied:
    """Apply a request, and read the rows of segments that it needs.

    Raises:
        StaleStateError: The queue no longer names a segment of this state: read the queue again.
    """
    held: list[SegmentPart] = []
    try:
        while True:
            try:
                return apply(state, request, now, by)
            except ColdRowsNeededError as needed:
                held += needed.parts
                register.segments.hold(needed.parts)
                with suppress(CorruptStateError):  # The state knows by now, and can do without.
                    await register.fetch(needed.parts)
                    await register.segments.parts.decode_ahead(needed.parts)
    finally:
        register.segments.release(held)
