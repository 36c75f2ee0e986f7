"""``BatchVerbs``: the part of ``Queue`` for engines that work in numbered batches, such as Spark.

A repeated call takes effect once: a batch is found again by its number, and a position is published
once. So no state is kept here between two tries, and the ids of published jobs follow from their
position.
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b
from typing import Any, Generic, TypeVar, cast

from bucketq.base32 import crockford
from bucketq.clock import new_token
from bucketq.commit.request_ids import parse_token
from bucketq.model import check
from bucketq.model import numbered_batches as bulk
from bucketq.model.base import NewJob
from bucketq.model.numbered_batches import (
    BatchPage,
    BatchState,
    ConsumerInfo,
    ConsumerState,
    SettledJob,
)
from bucketq.queue.arguments import Duration, Names, as_names, as_several, lease_seconds
from bucketq.queue.job import JobBatch
from bucketq.queue.large.side_reader import SideReader
from bucketq.queue.push_options import JobSpec, new_job
from bucketq.queue.sender import Sender

T = TypeVar("T")

_ID_LENGTH = 26
_HASH_BYTES = 16
_HASHES = 2**128
"""An id of 26 letters has 130 bits: enough for a hash of 16 bytes."""


class BatchVerbs(Generic[T]):
    """Consumers claim numbered batches; writers publish them."""

    _sender: Sender
    _reader: SideReader
    _payload_type: Any
    _worker: str

    async def open_consumer(self, consumer: str, *, request: str | None = None) -> ConsumerState:
        """Take over or create a consumer; the answer has its epoch and its last batch.

        A consumer is a name under which batches are claimed one after the other. The process that
        opened it before is rejected from now on, with ``ConsumerFencedError``.
        """
        check.name(consumer, "consumer")
        return cast(
            "ConsumerState", await self._sender.send(bulk.OpenConsumer(consumer=consumer), request)
        )

    async def claim_batch(
        self,
        consumer: str,
        epoch: int,
        batch: int,
        kinds: Names = None,
        *,
        limit: int = 1000,
        worker: str | None = None,
        lease_s: Duration | None = None,
        max_failures: int = 0,
        max_bytes: int = 0,
        acked: int = 0,
    ) -> BatchState:
        """Take the next batch of jobs, or the one that is open again: the identical set.

        Batches are numbered from 1. A number is used up when it finds jobs, and stays open until
        it is acknowledged or released. It may be claimed again, by any process: jobs whose lease
        ran out meanwhile are taken back, and those that are held by another worker, finished or
        gone are reported as ``lost``. Heartbeat the jobs as usual.

        A batch that is claimed under another epoch has failed once more. After ``max_failures`` it
        is taken apart: it is open without jobs, and each of them comes in a later batch of its own,
        where it fails once each time that its batch does. 0 means that it never is.

        A new batch ends before its payloads have more than ``max_bytes`` bytes, counting those that
        are kept beside the queue; it has one job at least. 0 means that they are not counted.

        ``acked`` is the number of the batch before, if it is done: that is acknowledged in the same
        commit, also if there are no jobs for this one. What it makes room for, by a limit or as a
        job that others wait for, is found by the next claim. The answer has both batches.
        """
        _check_batch(consumer, batch)
        check.whole_number(acked, "acked", 0)
        operation = bulk.ClaimBatch(
            consumer=consumer,
            epoch=epoch,
            batch=batch,
            secret=new_token(self._sender.clock),
            worker=self._worker if worker is None else worker,
            kinds=as_names(kinds, "kinds"),
            limit=limit,
            lease_s=lease_seconds(lease_s),
            max_failures=max_failures,
            max_bytes=max_bytes,
            acked=acked,
        )
        return cast("BatchState", await self._sender.send(operation))

    async def prepare_batch(
        self,
        consumer: str,
        epoch: int,
        batch: int,
        kinds: Names = None,
        *,
        limit: int = 1000,
        worker: str | None = None,
        lease_s: Duration | None = None,
        max_bytes: int = 0,
    ) -> BatchState:
        """Reserve jobs for the batch after the open one, so that its claim takes less time.

        ``batch`` is one more than that of the open batch, and the rest is as for ``claim_batch``,
        which hands the jobs out. Until then they can be read, and are only reserved: one whose
        lease expires is released at no cost, and is not part of the batch. Claiming the open
        batch again renews the leases of both, and ``release_batch`` gives up a prepared batch
        without using up its number.
        """
        _check_batch(consumer, batch)
        operation = bulk.PrepareBatch(
            consumer=consumer,
            epoch=epoch,
            batch=batch,
            secret=new_token(self._sender.clock),
            worker=self._worker if worker is None else worker,
            kinds=as_names(kinds, "kinds"),
            limit=limit,
            lease_s=lease_seconds(lease_s),
            max_bytes=max_bytes,
        )
        return cast("BatchState", await self._sender.send(operation))

    async def read_batch(
        self, consumer: str, batch: int, *, start: int = 0, limit: int = 1000, fetch: bool = True
    ) -> JobBatch[T]:
        """Read a slice of a batch that is open or prepared, in the order of its claim.

        Large payloads are fetched as by ``claim``, unless ``fetch`` is False.
        """
        _check_batch(consumer, batch)
        operation = bulk.ReadBatch(consumer=consumer, batch=batch, start=start, limit=limit)
        page: BatchPage = await self._sender.send(operation)
        jobs = await self._reader.fetched(page.jobs) if fetch else map(self._reader.job, page.jobs)
        return JobBatch(tuple(jobs), page.lost, page.next_start)

    async def ack_batch(
        self, consumer: str, epoch: int, batch: int, *, request: str | None = None
    ) -> BatchState:
        """Complete every job that still belongs to a batch, in one commit, and close it.

        The answer says how many that were. For a batch that was closed before it is 0.
        """
        _check_batch(consumer, batch)
        operation = bulk.AckBatch(consumer=consumer, epoch=epoch, batch=batch)
        return cast("BatchState", await self._sender.send(operation, request))

    async def settle_batch(
        self,
        consumer: str,
        batch: int,
        jobs: Iterable[SettledJob],
        *,
        request: str | None = None,
    ) -> BatchState:
        """Complete and fail some jobs of the open batch, all in one commit; they leave it.

        The answer says how many that were, and as ``lost`` which of them are not jobs of the batch
        under the leases that were read. A batch that is repeated does not have them any more.
        Results of more than 1 MiB are rejected.
        """
        _check_batch(consumer, batch)
        several = as_several(jobs, "settle_batch takes an iterable of SettledJob objects")
        operation = bulk.SettleBatch(consumer=consumer, batch=batch, jobs=tuple(several))
        return cast("BatchState", await self._sender.send(operation, request))

    async def release_batch(
        self, consumer: str, epoch: int, batch: int, *, request: str | None = None
    ) -> BatchState:
        """Give the jobs of a batch back, and close it; its number is used up.

        That of a batch that was only prepared is not.
        """
        _check_batch(consumer, batch)
        operation = bulk.ReleaseBatch(consumer=consumer, epoch=epoch, batch=batch)
        return cast("BatchState", await self._sender.send(operation, request))

    async def consumers(self) -> list[ConsumerInfo]:
        """List the consumers, in the order in which they were first opened."""
        return list(await self._sender.send(bulk.ReadConsumers()))

    async def remove_consumer(self, consumer: str, *, request: str | None = None) -> bool:
        """Remove a consumer and release its jobs; return whether there was one."""
        check.name(consumer, "consumer")
        return cast(
            "bool", await self._sender.send(bulk.RemoveConsumer(consumer=consumer), request)
        )

    async def publish(
        self,
        writer: str,
        batch: int,
        jobs: Iterable[JobSpec[T] | NewJob],
        *,
        part: int = 0,
        last: bool = False,
        request: str | None = None,
    ) -> bool:
        """Add jobs, all or none, once for each position of a writer; return whether it was now.

        A writer only moves forward, by batch and then by part. A position that is not after the
        last one changes nothing and returns False, even if it is repeated. A ``NewJob`` is encoded
        already, and is pushed as it is.

        The queue remembers ``max_writers`` writers. If nothing can be published under a name again,
        because all answers have come, publish its last position once more, without jobs and with
        ``last``: that forgets it.
        """
        self._sender.check_open()
        check.name(writer, "writer")
        check.whole_number(batch, "batch", 0)
        check.whole_number(part, "part", 0)
        if request is not None:
            parse_token(request, bulk.Publish)
        several = as_several(jobs, "publish takes an iterable of JobSpec objects")
        first = _first_id(writer, batch, part)
        # A ``NewJob`` is not checked here: every job is checked when it is applied.
        new = tuple(
            [
                job
                if isinstance(job, NewJob)
                else new_job(job, _id_at(first, place), self._payload_type)
                for place, job in enumerate(several)
            ]
        )
        operation = bulk.Publish(writer=writer, batch=batch, part=part, jobs=new, last=last)
        return cast("bool", await self._sender.send(operation, request))


def _check_batch(consumer: object, batch: object) -> None:
    check.name(consumer, "consumer")
    check.whole_number(batch, "batch", 1)


def _first_id(writer: str, batch: int, part: int) -> int:
    """Return the number of the first id at a position, the same for every publisher."""
    name = f"{writer}/{batch}/{part}".encode()
    return int.from_bytes(blake2b(name, digest_size=_HASH_BYTES).digest())


def _id_at(first: int, place: int) -> str:
    """Return the id of a job, which no other job has."""
    return crockford((first + place) % _HASHES, _ID_LENGTH)
