"""The verbs for engines that work in numbered batches: consumers and writers.

What such an engine repeats has the same effect once more: a batch is found again by its number, and
a position is published once. So nothing has to be remembered here between two tries, and the ids of
published jobs follow from their position.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable
from hashlib import blake2b
from typing import Any, Generic, TypeVar, cast

from bucketq.clock import crockford, new_token
from bucketq.commit.request_ids import parse_token
from bucketq.model import check
from bucketq.model import numbered_batches as bulk
from bucketq.model.base import NewJob
from bucketq.model.consumers import MAX_BATCH
from bucketq.model.numbered_batches import BatchPage, BatchState, ConsumerInfo, ConsumerState
from bucketq.model.writers import MAX_POSITION
from bucketq.queue.arguments import as_names, as_several
from bucketq.queue.base import Names
from bucketq.queue.job import Job, JobBatch, JobSpec
from bucketq.queue.tokens import TokenVerbs

T = TypeVar("T")

_ID_LENGTH = 26
_HASH_BYTES = 16
_HASHES = 2**128


class BulkVerbs(TokenVerbs, Generic[T]):
    """The part of the ``Queue`` protocol that is about numbered batches."""

    _payload_type: Any
    _worker: str

    @abstractmethod
    def _specified(self, job: JobSpec[T], job_id: str) -> NewJob:
        """Encode a job; ``job_id`` is its id where it has none of its own."""

    async def open_consumer(self, consumer: str, *, request: str | None = None) -> ConsumerState:
        """Take a consumer over, or make it."""
        check.name(consumer, "consumer")
        return cast("ConsumerState", await self._do(bulk.OpenConsumer(consumer=consumer), request))

    async def claim_batch(
        self,
        consumer: str,
        epoch: int,
        batch: int,
        kinds: Names = None,
        *,
        limit: int = 1000,
        worker: str | None = None,
        lease_s: float | None = None,
    ) -> BatchState:
        """Take the next batch of jobs, or the one that is open again."""
        _check_batch(consumer, batch)
        check.lease(lease_s)
        operation = bulk.ClaimBatch(
            consumer=consumer,
            epoch=epoch,
            batch=batch,
            secret=new_token(self._clock),
            worker=self._worker if worker is None else worker,
            kinds=as_names(kinds, "kinds"),
            limit=limit,
            lease_s=lease_s,
        )
        return cast("BatchState", await self._do(operation, None))

    async def read_batch(
        self, consumer: str, batch: int, *, start: int = 0, limit: int = 1000
    ) -> JobBatch[T]:
        """Read a slice of the open batch."""
        _check_batch(consumer, batch)
        operation = bulk.ReadBatch(consumer=consumer, batch=batch, start=start, limit=limit)
        page: BatchPage = await self._do(operation, None)
        jobs = tuple(Job[T](record, self._payload_type) for record in page.jobs)
        return JobBatch(jobs, page.lost, page.next_start)

    async def ack_batch(
        self, consumer: str, epoch: int, batch: int, *, request: str | None = None
    ) -> BatchState:
        """Complete every job that still belongs to a batch, and close it."""
        _check_batch(consumer, batch)
        operation = bulk.AckBatch(consumer=consumer, epoch=epoch, batch=batch)
        return cast("BatchState", await self._do(operation, request))

    async def release_batch(
        self, consumer: str, epoch: int, batch: int, *, request: str | None = None
    ) -> BatchState:
        """Give the jobs of a batch back unharmed, and close it."""
        _check_batch(consumer, batch)
        operation = bulk.ReleaseBatch(consumer=consumer, epoch=epoch, batch=batch)
        return cast("BatchState", await self._do(operation, request))

    async def consumers(self) -> list[ConsumerInfo]:
        """Read which consumers there are."""
        return list(await self._do(bulk.ReadConsumers(), None))

    async def remove_consumer(self, consumer: str, *, request: str | None = None) -> bool:
        """Give back what a consumer holds, and forget it."""
        check.name(consumer, "consumer")
        return cast("bool", await self._do(bulk.RemoveConsumer(consumer=consumer), request))

    async def publish(
        self,
        writer: str,
        batch: int,
        jobs: Iterable[JobSpec[T] | NewJob],
        *,
        part: int = 0,
        request: str | None = None,
    ) -> bool:
        """Add jobs, all or none, once for each position of a writer."""
        self._guard()
        check.name(writer, "writer")
        check.whole_number(batch, "batch", 0, MAX_POSITION)
        check.whole_number(part, "part", 0, MAX_POSITION)
        if request is not None:
            parse_token(request, bulk.Publish)
        several = as_several(jobs, "publish takes an iterable of JobSpec objects")
        first = _first_id(writer, batch, part)
        # One that is encoded is taken as it is: whoever commits it checks it in any case.
        new = tuple(
            [
                job if isinstance(job, NewJob) else self._specified(job, _id_at(first, place))
                for place, job in enumerate(several)
            ]
        )
        operation = bulk.Publish(writer=writer, batch=batch, part=part, jobs=new)
        return cast("bool", await self._do(operation, request))


def _check_batch(consumer: object, batch: object) -> None:
    check.name(consumer, "consumer")
    check.whole_number(batch, "batch", 1, MAX_BATCH)


def _first_id(writer: str, batch: int, part: int) -> int:
    """What the ids of the jobs at a position are counted from: the same whoever publishes it."""
    name = f"{writer}/{batch}/{part}".encode()
    return int.from_bytes(blake2b(name, digest_size=_HASH_BYTES).digest())


def _id_at(first: int, place: int) -> str:
    """The id of a job, like no other job's."""
    return crockford((first + place) % _HASHES, _ID_LENGTH)
