"""Consumers and writers, as data: what engines that work in numbered batches ask for.

Such an engine (Spark is one) may be killed at any point, and then does the same batch again, under
the same number. A **consumer** is a name under which batches of jobs are claimed one after the
other: its row in the object holds the one that is not acknowledged yet, so the next driver finds
the identical set. It may also hold the next one, prepared while the engine works on that.
Its epoch rises whenever it is opened, which fences the previous driver. A
**writer** is a name under which batches of jobs are published: its row holds the last position,
so that a batch that comes again changes nothing.

These are the rows, the operations and their answers; ``consumers``, ``prepared_batches``,
``failed_batches`` and ``pushes`` say what each operation does.
"""

from datetime import datetime
from typing import Self

from msgspec import Raw, Struct
from msgspec.structs import replace

from bucketq.model.base import NewJob, Operation
from bucketq.model.records import NOTHING, Encoding, JobRecord


class ConsumerInfo(Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True):
    """A consumer without its secret, from which the leases of its jobs are derived."""

    name: str
    epoch: int
    batch: int = 0
    """The number of the last batch that was claimed; 0: none was."""
    pending: int = 0
    """How many jobs its batch has, while that is not acknowledged."""
    at: datetime
    """When it was last used."""
    failures: int = 0
    """How many drivers have failed to finish its open batch."""
    apart: int = 0
    """How many jobs of batches that failed too often are still to come, each in its own batch."""
    prepared: int = 0
    """How many jobs are reserved for its next batch."""


class PreparedBatch(Struct, frozen=True, gc=False, kw_only=True, forbid_unknown_fields=True):
    """Jobs that are reserved for the next batch of a consumer: they run under its leases."""

    batch: int
    """The number that it will have. It counts only if that is the next one: a writer that does not
    know this field keeps it from the batch before."""
    epoch: int
    """The driver that prepared it."""
    secret: str
    jobs: tuple[str, ...]
    seq_limit: int
    """As in a ``ConsumerRecord``, for this batch."""

    def may_hold(self, job: JobRecord) -> bool:
        """Whether a job with one of its ids can be the one that was claimed."""
        return job.seq < self.seq_limit


class ConsumerRecord(
    Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True, forbid_unknown_fields=True
):
    """A consumer as the object holds it."""

    id: str
    """Its name."""
    seq: int
    epoch: int
    """Rises whenever it is opened; a driver with an older epoch is fenced."""
    at: datetime
    """When it was last used."""
    batch: int = 0
    """The number of the last batch that was claimed."""
    secret: str = ""
    """The secret of that claim, while the batch is open. A job belongs to the batch exactly while
    it is running under the lease that follows from this, the job and its attempt."""
    jobs: tuple[str, ...] = ()
    """The ids of the batch in the order of the claim, until it is acknowledged or released."""
    seq_limit: tuple[int, int] | None = None
    """``(batch, seq)``: every job of that batch has a smaller ``seq``, so a later job under one of
    its ids is known not to belong to it. It counts only if ``batch`` is that of the row: a writer
    that does not know this field keeps it from the batch before."""
    replays: tuple[int, int, int] | None = None
    """``(batch, epoch, failures)``: the driver that claimed that batch last, and how many failed to
    finish it before. It counts only if ``batch`` is that of the row, and so do the next two."""
    emptied: int = 0
    """The batch that is open without jobs: they were settled one by one, or it was taken apart."""
    alone: int = 0
    """The batch that has one job, of a batch that was taken apart."""
    apart: tuple[tuple[str, int], ...] = ()
    """Jobs of a batch that was taken apart, by id and ``seq``: each comes in a batch of its own."""
    prepared: PreparedBatch | None = None
    """The next batch, if it was prepared; see ``ahead``."""

    @property
    def ahead(self) -> PreparedBatch | None:
        """The next batch, if it was prepared and no writer has passed it over."""
        prepared = self.prepared
        return prepared if prepared is not None and prepared.batch == self.batch + 1 else None

    @property
    def is_open(self) -> bool:
        """Whether its batch is not acknowledged yet."""
        return bool(self.jobs) or self.is_empty

    @property
    def is_empty(self) -> bool:
        """Whether its batch is not acknowledged yet, but has no jobs left."""
        return not self.jobs and 0 < self.emptied == self.batch

    @property
    def failures(self) -> int:
        """How many drivers have failed to finish the open batch."""
        return self.replays[2] if self.replays and self.replays[0] == self.batch else 0

    def emptied_at(
        self, now: datetime, *, apart: tuple[tuple[str, int], ...] | None = None
    ) -> Self:
        """Return it with a batch that is open and has no jobs."""
        left = self.apart if apart is None else apart
        return replace(self, jobs=(), emptied=self.batch, apart=left, at=now)

    def closed(self, now: datetime) -> Self:
        """Return it with its batch closed."""
        return replace(
            self, secret="", jobs=(), seq_limit=None, replays=None, emptied=0, alone=0, at=now
        )

    @property
    def closed_since(self) -> datetime | None:
        """When it was last used; None while a batch is open, which must not be forgotten."""
        return None if self.is_open else self.at

    def may_hold(self, job: JobRecord) -> bool:
        """Whether a job with one of the ids of the batch can be the one that was claimed."""
        limit = self.seq_limit
        return limit is None or limit[0] != self.batch or job.seq < limit[1]

    def info(self) -> ConsumerInfo:
        """Its public part."""
        return ConsumerInfo(
            name=self.id,
            epoch=self.epoch,
            batch=self.batch,
            pending=len(self.jobs),
            at=self.at,
            failures=self.failures if self.is_open else 0,
            apart=len(self.apart),
            prepared=0 if self.ahead is None else len(self.ahead.jobs),
        )


class WriterRecord(Struct, frozen=True, gc=False, kw_only=True, forbid_unknown_fields=True):
    """A writer as the object holds it: the position of what it published last."""

    id: str
    """Its name."""
    seq: int
    batch: int
    part: int
    at: datetime
    """When it last published."""

    @property
    def position(self) -> tuple[int, int]:
        """What has to be passed by what it publishes next."""
        return (self.batch, self.part)


class OpenConsumer(Operation, frozen=True):
    """Take a consumer over, or make it; answers a ``ConsumerState``.

    Its previous driver is fenced from now on.
    """

    consumer: str


class ClaimBatch(Operation, frozen=True):
    """Take the next batch of jobs, or the same one again. Answers a ``BatchState``.

    Its number is its id: asking again does no harm.
    """

    consumer: str
    epoch: int
    batch: int
    secret: str
    """As in ``Claim``; if the batch is open already, the lease time of its claim stays."""
    worker: str
    kinds: tuple[str, ...] = ()
    limit: int = 1
    lease_s: float | None = None
    """How long the worker of these attempts may be silent; None: as the settings say."""
    max_failures: int = 0
    """How many drivers may fail to finish a batch before it is taken apart; 0: any number."""
    max_bytes: int = 0
    """How many bytes the payloads of a batch may have, unless it has one job; 0: any number."""
    acked: int = 0
    """The batch before, if it is done: it is acknowledged in the same commit; 0: none is."""


class PrepareBatch(Operation, frozen=True):
    """Reserve jobs for the next batch while one is open. Answers a ``BatchState``.

    ``ClaimBatch`` with its number hands them out. If it is prepared already, nothing changes. The
    fields are those of ``ClaimBatch``.
    """

    consumer: str
    epoch: int
    batch: int
    secret: str
    worker: str
    kinds: tuple[str, ...] = ()
    limit: int = 1
    lease_s: float | None = None
    max_bytes: int = 0


class ReadBatch(Operation, frozen=True):
    """Read a slice of a batch that is open or prepared. Answers a ``BatchPage``."""

    consumer: str
    batch: int
    start: int = 0
    """How many jobs of the batch stand before the slice."""
    limit: int = 1000


class AckBatch(Operation, frozen=True):
    """Complete every job that still belongs to a batch, and close it. Answers a ``BatchState``."""

    consumer: str
    epoch: int
    batch: int


class SettledJob(Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True):
    """One job of a batch that is completed, with its result, or failed, with its error.

    All are given by name.
    """

    job: str
    lease: str
    """``Job.lease.lease``, as ``read_batch`` returned it."""
    result: Raw = NOTHING
    """Its JSON as it is, a ``msgspec.Raw``; empty: there is none."""
    result_encoding: Encoding | None = None
    error: str | None = None
    """None: it is completed."""
    retry: bool = True
    """False: do not retry a job that failed, whatever attempts are left."""


class SettleBatch(Operation, frozen=True):
    """Complete and fail some jobs of a batch, which leave it. Answers a ``BatchState``.

    It has how many that were, and which were not its jobs under these leases. A batch of which all
    jobs were settled stays open until it is acknowledged.
    """

    consumer: str
    batch: int
    jobs: tuple[SettledJob, ...]


class ReleaseBatch(Operation, frozen=True):
    """Release the jobs of a batch at no cost, and close it. Answers a ``BatchState``.

    The number of a batch that was only prepared is not used up.
    """

    consumer: str
    epoch: int
    batch: int


class ReadConsumers(Operation, frozen=True):
    """Read which consumers there are. Answers a ``ConsumerInfo`` for each, in order."""


class RemoveConsumer(Operation, frozen=True):
    """Release what a consumer holds, and forget it. Answers whether there was one."""

    consumer: str


class Publish(Operation, frozen=True):
    """Push jobs, all or none, once for each position of a writer. Answers whether that was now.

    What is not behind the writer's last position has been published before, and changes nothing.
    """

    writer: str
    batch: int
    jobs: tuple[NewJob, ...]
    part: int = 0
    last: bool = False
    """Nothing is published under this name again, not even this position: the writer is forgotten.
    A caller that has its answer sends the position once more, without jobs, and so."""


class ConsumerState(Struct, frozen=True, gc=False):
    """The epoch and the last batch of a consumer that was just opened."""

    consumer: str
    epoch: int
    """To be shown with every batch."""
    batch: int
    """The number of the last batch that was claimed; 0: none was."""
    pending: int
    """How many jobs it has, while it is not acknowledged: claim it again first."""
    is_empty: bool = False
    """Whether it is not acknowledged, but has no jobs left."""
    prepared: int = 0
    """How many jobs are reserved for the batch after it."""


AnyNumbered = (
    OpenConsumer
    | ClaimBatch
    | PrepareBatch
    | ReadBatch
    | AckBatch
    | SettleBatch
    | ReleaseBatch
    | ReadConsumers
    | RemoveConsumer
    | Publish
)


AnyBatchClaim = ClaimBatch | PrepareBatch
BATCH_CLAIMS = (ClaimBatch, PrepareBatch)
BATCH_READS = (ReadBatch, ReadConsumers)


class BatchState(Struct, frozen=True, gc=False):
    """What became of a batch."""

    batch: int
    jobs: int
    """How many jobs it holds, or how many were completed or given back by this."""
    lost: tuple[str, ...] = ()
    """The jobs that do not belong to it any more."""
    acked: int = 0
    """How many jobs of the batch before a claim has completed, as ``ClaimBatch.acked`` asked."""
    acked_lost: tuple[str, ...] = ()
    """The jobs of that batch that did not belong to it any more."""
    prepared: int = 0
    """How many of its jobs were reserved by ``PrepareBatch``."""


class BatchPage(Struct, frozen=True):
    """A slice of a batch, in the order of its claim."""

    jobs: tuple[JobRecord, ...]
    lost: tuple[str, ...] = ()
    """Those of the slice that do not belong to the batch any more."""
    next_start: int | None = None
    """Where the next slice begins; None: there is none."""
