"""A batch as its user sees it: what jobs are pushed to, and what can be read of it."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from datetime import datetime
from typing import TYPE_CHECKING, Any, Generic, TypeVar, Unpack

from msgspec import Struct
from msgspec.structs import replace

from bucketq.errors import BucketQError, InvalidRequestError
from bucketq.model.job_batches import BatchRecord, BatchStatus
from bucketq.model.job_ids import JobId
from bucketq.queue.push_options import JobSpec, PushOptions

if TYPE_CHECKING:  # It imports this module.
    from bucketq.queue.queue import Queue

T = TypeVar("T")

_log = logging.getLogger("bucketq")


class BatchInfo(Struct, frozen=True, kw_only=True):
    """A batch at the moment at which it was read."""

    id: str
    status: BatchStatus
    """``open``: jobs can be added; ``closed``: no more; ``done``: all have ended; ``cancelled``."""
    jobs: int
    """How many jobs it has."""
    completed: int
    cancelled: int
    dead: int
    expired: int
    opened_at: datetime
    closed_at: datetime | None
    ended_at: datetime | None
    """When it was done or cancelled."""
    on_done: str | None
    """The kind of the job that will be pushed when it is done."""
    callback: str | None
    """The id of the job that was pushed when it was done."""

    @property
    def failed(self) -> int:
        """How many jobs ended without being completed."""
        return self.cancelled + self.dead + self.expired

    @property
    def open(self) -> int:
        """How many jobs have not ended."""
        return self.jobs - self.completed - self.failed


class Batch(Generic[T]):
    """Jobs that belong together: ``async with queue.batch(...) as batch``.

    It is open inside of the block, and is closed when that ends. If the block raises, the batch is
    cancelled: jobs that were pushed stay, and its callback is never pushed. If the process dies, it
    stays open until it is closed or cancelled (``bucketq batch close``).
    """

    def __init__(self, queue: Queue[T], on_done: JobSpec[Any] | None, batch_id: str | None) -> None:
        self._queue = queue
        self._on_done = on_done
        self._id = batch_id

    @property
    def id(self) -> str:
        """Its id; the jobs have it as ``batch_id``."""
        if self._id is None:
            message = "the batch is not open yet: write `async with queue.batch(...) as batch`"
            raise InvalidRequestError(message)
        return self._id

    async def __aenter__(self) -> Batch[T]:
        """Open it."""
        self._id = await self._queue.open_batch(self._on_done, batch_id=self._id)
        return self

    async def __aexit__(self, kind: object, *_: object) -> None:
        """Close it, or cancel it if the block raised."""
        if kind is None:
            await self._queue.close_batch(self.id)
            return
        try:
            await self._queue.cancel_batch(self.id)
        except BucketQError as error:
            _log.warning("batch %s may still be open: %s", self.id, error)

    async def push(
        self,
        kind: str,
        payload: T,
        *,
        request: str | None = None,
        **options: Unpack[PushOptions],
    ) -> JobId:
        """Add a job of the batch, as ``Queue.push`` does.

        If nothing is added, because the key, the id or the unique name was there, the job that is
        there does not become one of the batch.
        """
        options["batch_id"] = self.id
        return await self._queue.push(kind, payload, request=request, **options)

    async def push_many(
        self, jobs: Iterable[JobSpec[T]], *, request: str | None = None
    ) -> list[JobId]:
        """Add jobs of the batch, all or none, in one commit, as ``Queue.push_many`` does."""
        specs = [self._spec(job) for job in jobs]
        return await self._queue.push_many(specs, request=request)

    def _spec(self, job: JobSpec[T]) -> JobSpec[T]:
        return replace(job, batch_id=self.id) if isinstance(job, JobSpec) else job


def read_batch_info(row: BatchRecord) -> BatchInfo:
    """Make what a user sees of a row."""
    return BatchInfo(
        id=row.id,
        status=row.status,
        jobs=row.jobs,
        completed=row.completed,
        cancelled=row.cancelled,
        dead=row.dead,
        expired=row.expired,
        opened_at=row.opened_at,
        closed_at=row.closed_at,
        ended_at=row.ended_at,
        on_done=None if row.on_done is None else row.on_done.kind,
        callback=row.callback or None,
    )
