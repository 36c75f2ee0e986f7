"""``JobBatchVerbs``: the part of ``Queue`` for jobs that belong together.

Numbered batches are something else: those that engines repeat (``batch_verbs``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

from msgspec.structs import replace

from bucketq.errors import InvalidRequestError
from bucketq.model import check
from bucketq.model.job_batches import (
    CancelBatch,
    CancelJobs,
    CancelledJobs,
    CloseBatch,
    OpenBatch,
    ReadBatches,
)
from bucketq.model.requests.stateless_checks import check_callback
from bucketq.queue.arguments import as_plain
from bucketq.queue.job_batch import Batch, BatchInfo, read_batch_info
from bucketq.queue.push_options import JobSpec, new_job
from bucketq.queue.sender import Sender

if TYPE_CHECKING:  # It imports this module.
    from bucketq.queue.queue import Queue

T = TypeVar("T")

_PAGE_JOBS = 300
"""How many jobs are cancelled by one commit: as many as a redrive changes."""


class JobBatchVerbs(Generic[T]):
    """Batches."""

    _sender: Sender
    _payload_type: Any

    def batch(
        self, on_done: JobSpec[Any] | None = None, *, batch_id: str | None = None
    ) -> Batch[T]:
        """Push jobs that belong together, in a block that opens and closes a batch.

        The block is ``async with queue.batch(on_done=...) as batch``, and ``with`` for a blocking
        queue. When it has ended and all jobs of the batch have ended, ``on_done`` is pushed, once,
        in the same commit; ``Job.done_batch`` of it says how they have ended. An id of your own
        lets a producer that was restarted continue with a batch that is open.
        """
        return Batch(cast("Queue[T]", self), on_done, batch_id)

    async def open_batch(
        self,
        on_done: JobSpec[Any] | None = None,
        *,
        batch_id: str | None = None,
        request: str | None = None,
    ) -> str:
        """Open a batch, and return its id; ``batch`` opens and closes one."""
        request_id = self._sender.new_id(OpenBatch, request)
        try:
            chosen = request_id.job_id(0) if batch_id is None else as_plain(batch_id)
            check.name(chosen, "batch_id")
            job = None if on_done is None else self._callback(on_done)
        except BaseException:
            self._sender.drop_id(request_id)
            raise
        await self._sender.send_as(request_id, OpenBatch(batch=chosen, on_done=job))
        return chosen

    def _callback(self, spec: JobSpec[Any]) -> Any:
        if not isinstance(spec, JobSpec):
            message = f"on_done must be a JobSpec, got {type(spec).__name__}"
            raise InvalidRequestError(message)
        if spec.id is not None:
            message = "the job that a batch ends with cannot have an id: it follows from the batch"
            raise InvalidRequestError(message)
        job = new_job(spec, "callback", self._payload_type)
        check_callback(job)
        return job

    async def close_batch(self, batch_id: str, *, request: str | None = None) -> BatchInfo:
        """Let no more jobs be added to a batch; if all of them have ended, it is done."""
        check.name(batch_id, "batch_id")
        row = await self._sender.send(CloseBatch(batch=as_plain(batch_id)), request)
        return read_batch_info(row)

    async def cancel_batch(self, batch_id: str, *, request: str | None = None) -> BatchInfo:
        """End a batch without its callback. Its jobs stay as they are: see ``cancel_jobs``."""
        check.name(batch_id, "batch_id")
        row = await self._sender.send(CancelBatch(batch=as_plain(batch_id)), request)
        return read_batch_info(row)

    async def cancel_jobs(self, batch_id: str, *, request: str | None = None) -> CancelledJobs:
        """Cancel all jobs of a batch that are not over; running ones are asked to stop.

        The batch itself goes on: when it is closed and its jobs have ended, its callback is
        pushed, and counts them as cancelled. Call ``cancel_batch`` before to have none. Many jobs
        are cancelled in several commits. Raises ``BatchNotFoundError``.
        """
        check.name(batch_id, "batch_id")
        operation = CancelJobs(batch=as_plain(batch_id), limit=_PAGE_JOBS)
        page: CancelledJobs = await self._sender.send(operation, request)
        cancelled, requested = page.cancelled, page.requested
        while page.next_after is not None:
            page = await self._sender.send(replace(operation, after=page.next_after))
            cancelled, requested = cancelled + page.cancelled, requested + page.requested
        if not cancelled + requested:
            await self._sender.send(ReadBatches(batch=operation.batch))
        return CancelledJobs(cancelled, requested)

    async def get_batch(self, batch_id: str) -> BatchInfo:
        """Read one batch. Raises ``BatchNotFoundError``."""
        check.name(batch_id, "batch_id")
        (row,) = await self._sender.send(ReadBatches(batch=as_plain(batch_id)))
        return read_batch_info(row)

    async def batches(self) -> list[BatchInfo]:
        """List the batches, in the order of their opening.

        Those that have ended are listed for ``batch_retention_s``, a day.
        """
        return [read_batch_info(row) for row in await self._sender.send(ReadBatches())]
