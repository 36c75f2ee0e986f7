"""``BlockingBatch``: a batch for programs that do not use asyncio."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Generic, TypeVar, Unpack

from bucketq.client.loop_thread import LoopThread
from bucketq.model.job_ids import JobId
from bucketq.queue.job_batch import Batch
from bucketq.queue.push_options import JobSpec, PushOptions

T = TypeVar("T")


class BlockingBatch(Generic[T]):
    """A batch whose verbs block: ``with queue.batch(...) as batch``; ``Batch`` explains it."""

    def __init__(self, loop_thread: LoopThread, batch: Batch[T]) -> None:
        self._call = loop_thread.call
        self._batch = batch

    @property
    def id(self) -> str:
        """Its id; the jobs have it as ``batch_id``."""
        return self._batch.id

    def __enter__(self) -> BlockingBatch[T]:
        """Open it."""
        self._call(self._batch.__aenter__)
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        """Close it, or cancel it if the block raised."""
        self._call(self._batch.__aexit__, kind)

    def push(
        self, kind: str, payload: T, *, request: str | None = None, **options: Unpack[PushOptions]
    ) -> JobId:
        """Add a job of the batch, as ``BlockingQueue.push`` does."""
        return self._call(self._batch.push, kind, payload, request=request, **options)

    def push_many(self, jobs: Iterable[JobSpec[T]], *, request: str | None = None) -> list[JobId]:
        """Add jobs of the batch, all or none, as ``BlockingQueue.push_many`` does."""
        return self._call(self._batch.push_many, jobs, request=request)
