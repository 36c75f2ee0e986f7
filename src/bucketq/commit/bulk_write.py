"""``BulkWrite``: a process writes segments of new jobs itself, and one commit adopts them.

A million jobs are then some dozens of objects and a commit of a few kilobytes. Other processes may
put segments too (``put_reserved``): they need the folder and the reservation, and report the
entries.

Nothing is in the queue before the adoption. A process that is killed before it leaves a reservation
behind, which expires, and segments, which are swept then. A writer that begins again replaces its
reservation, and a position that was adopted is not adopted again, so the write can be repeated.
"""

from __future__ import annotations

import asyncio
import logging
from array import array
from collections.abc import Sequence
from contextlib import suppress
from types import TracebackType
from typing import Any, NamedTuple, Self

from bucketq.clock import Clock
from bucketq.codec.segment_file import EncodedSegment
from bucketq.commit.direct_committer import DirectCommitter
from bucketq.commit.objects.register import Register
from bucketq.commit.objects.segment_folder import SegmentFolder
from bucketq.commit.objects.segment_parts import SegmentParts
from bucketq.errors import BucketQError, RejectedError
from bucketq.model.indexes.cold_rows import SegmentPart
from bucketq.model.numbered_batches import Publish
from bucketq.model.operations import AnyOperation, Configure, Request
from bucketq.model.reservations import RENEWALS, Adopt, DropReservation, RenewReservation, Reserve
from bucketq.model.segments import SegmentRecord, WrittenRows, WrittenSegment
from bucketq.model.settings import Settings
from bucketq.store.base import ObjectMissingError, ObjectStore

_log = logging.getLogger("bucketq")

_NAME_BYTES = 8
"""Enough for names that never repeat among the reservations of a version."""


class Reservation(NamedTuple):
    """What a process needs to put segments: it is sent to executors."""

    id: str
    incarnation: str


class BulkWrite:
    """Writes to one queue, beside whatever else does. It commits by itself."""

    def __init__(
        self, store: ObjectStore, key: str, where: str, clock: Clock, *, timeout_s: float = 60.0
    ) -> None:
        """Write to the queue object ``key``; ``where`` is what messages call it."""
        self._register = Register(store, key, where, clock)
        self._committer = DirectCommitter(self._register, clock, timeout_s=timeout_s)
        self._clock = clock
        self._timeout_s = timeout_s
        self._renewing: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        """Open the queue, or create it."""
        await self._committer.open()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close the queue. A reservation that is left expires."""
        await self._stop_renewing()
        await self._committer.close()

    @property
    def folder(self) -> SegmentFolder:
        """Where segments are put."""
        return self._register.segments.folder

    def position(self, writer: str) -> tuple[int, int] | None:
        """Return what a writer has published last, when the queue was opened."""
        state = self._committer.state
        known = None if state is None else state.writers.get(writer)
        return None if known is None else known.position

    async def settings(self) -> Settings:
        """Read the settings of the queue."""
        found: Settings = await self._submit(Configure(changes={}))
        return found

    async def reserve(
        self, writer: str, batch: int, part: int = 0, *, name: str | None = None
    ) -> Reservation | None:
        """Reserve, and renew it until it is adopted; None: the position was published before.

        Processes that write for one adoption share a ``name``, which one of them has made.

        Raises:
            RejectedError: The queue has another format, or too many writers, or the writer has
                begun anew under another name.
        """
        found: str = await self._submit(
            Reserve(
                writer=writer,
                batch=batch,
                part=part,
                name=name or new_name(self._clock),
                joins=name is not None,
            )
        )
        state = self._committer.state
        if not found or state is None:
            return None
        pause_s = state.settings.reservation_retention_s / RENEWALS
        self._renewing = asyncio.get_running_loop().create_task(self._renew(found, pause_s))
        return Reservation(found, state.incarnation)

    async def adopt(
        self,
        reservation: Reservation,
        writer: str,
        batch: int,
        records: Sequence[SegmentRecord],
        part: int = 0,
    ) -> bool:
        """Add the jobs of all segments in one commit; return False if that was done before.

        Raises:
            RejectedError: The reservation has expired or was replaced, a segment is missing, or
                the queue has no room. Nothing was added.
            CorruptStateError: A segment is not what its entry says.
        """
        await self._stop_renewing()
        written = WrittenRows(await self._read(records), Settings())
        adoption = Adopt(
            reservation=reservation.id,
            writer=writer,
            batch=batch,
            part=part,
            segments=tuple(records),
        )
        answer = await self._committer.submit(Request(adoption, written=written), self._timeout_s)
        return bool(answer)

    async def forget(self, writer: str, batch: int, part: int = 0) -> None:
        """Forget a writer whose last position this is, and which publishes nothing again."""
        await self._submit(Publish(writer=writer, batch=batch, part=part, jobs=(), last=True))

    async def abandon(self, reservation: Reservation) -> None:
        """Give a reservation up; what cannot be told to the queue now expires."""
        await self._stop_renewing()
        with suppress(BucketQError):
            await self._submit(DropReservation(reservation=reservation.id))

    async def clear(self, writer: str, name: str | None = None) -> None:
        """Give up what a writer has reserved under a name, or under any."""
        state = self._committer.state
        rows = () if state is None else tuple(state.reservations)
        for row in rows:
            if row.writer == writer and (name is None or row.id.endswith(f"-{name}")):
                await self._submit(DropReservation(reservation=row.id))

    async def _submit(self, operation: AnyOperation) -> Any:
        return await self._committer.submit(Request(operation), self._timeout_s)

    async def _read(self, records: Sequence[SegmentRecord]) -> tuple[WrittenSegment, ...]:
        """Read the indexes: they prove that the segments are there, and what is in them."""
        # Apart: what was read of segments that the queue does not name is forgotten at any time.
        parts, none = SegmentParts(self.folder.read, self.folder.address), array("Q")
        try:
            await parts.fetch([SegmentPart(record, "index") for record in records])
        except ObjectMissingError as error:
            message = (
                f"a segment that was to be added to {self._register.where} is missing ({error}), "
                "and nothing was added: write the rows again"
            )
            raise RejectedError(message) from error
        found = ((record, parts.index(record)) for record in records)
        return tuple(WrittenSegment(record, index, none) for record, index in found if index)

    async def _renew(self, reservation: str, pause_s: float) -> None:
        while True:
            await asyncio.sleep(pause_s)
            try:
                await self._submit(RenewReservation(reservation=reservation))
            except BucketQError as error:
                text = "reservation %s of %s cannot be renewed: %s"
                _log.warning(text, reservation, self._register.where, error)

    async def _stop_renewing(self) -> None:
        if self._renewing is not None:
            self._renewing.cancel()
            await asyncio.wait([self._renewing])
            self._renewing = None


def new_name(clock: Clock) -> str:
    """Make a name for a reservation."""
    return clock.entropy(_NAME_BYTES).hex()


async def put_reserved(
    folder: SegmentFolder, reservation: Reservation, encoded: EncodedSegment, clock: Clock
) -> SegmentRecord:
    """Put a segment under a reservation; return its entry, to be adopted.

    Raises: as ``SegmentFolder.put``.
    """
    record = encoded.record(reservation.id, clock.now())
    await folder.put(record.id, encoded.body)
    return record
