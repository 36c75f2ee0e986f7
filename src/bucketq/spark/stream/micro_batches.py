"""Claims the micro-batches of a stream, renews their leases, and has them acknowledged.

Spark numbers what it reads, and after a crash asks for the same number again. Here a number is a
consumer batch that the queue itself keeps under the name of the consumer, so any process that asks
again gets the identical set of jobs. What this guarantees:

* A micro-batch is acknowledged only when Spark asks for the next one, which Spark does once it has
  committed the micro-batch: the commit that claims the next one completes its jobs. One that is not
  acknowledged is repeated.
* A query without a checkpoint begins with the micro-batch that is not acknowledged.
* While a micro-batch is open its leases are renewed, by claiming it again: that is one request for
  all its jobs, and a driver that was replaced gets an error from it.
* While Spark works on a large micro-batch, the next one is prepared, if enough jobs wait: they are
  reserved and read, so that Spark waits only for the acknowledgement. It is released if the query
  ends, and otherwise once its leases have expired, at no cost to its jobs.
* A stream that finds no jobs asks rarely, and writes nothing.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple, Self, TypeVar

import msgspec

from bucketq.errors import (
    BucketQError,
    ConsumerFencedError,
    InvalidRequestError,
    LeaseLostError,
    UnavailableError,
)
from bucketq.model.numbered_batches import BatchState
from bucketq.model.records import JobRecord
from bucketq.model.side_objects import payload_size
from bucketq.queue.queue import Queue
from bucketq.spark.format_options import StreamOptions
from bucketq.spark.stream.acknowledge import acknowledge_micro_batch, warn_of_lost
from bucketq.spark.stream.jobs_behind import JobsBehind

A = TypeVar("A")

_encode = msgspec.json.Encoder().encode

POLL_S = 0.25
"""The wait between claims that find nothing: short for a person, and four cheap reads a second."""
_RENEWALS_PER_LEASE = 3
"""One renewal can fail, and the next is still in time."""
_RETRY_S = 0.5
"""Short beside a lease, and long beside a request."""
_PAGE_JOBS = 500
"""With the largest payloads of a default queue, 1 MiB each, an answer is half of what a client
accepts from a broker."""
_BATCH_BYTES = 256 << 20
"""Of payloads, unless ``maxBytesPerTrigger`` is set: the driver holds them, and they fit into one
answer of a broker, so that a batch is read by one request and not by twenty."""
_PREPARED_JOBS = 1000
"""The smallest micro-batch that is prepared: it costs one more commit, and a claim of fewer jobs
takes hardly longer than that."""
_PREPARED_BYTES = 16 << 20
"""The largest, by its payloads: the queue's object holds it beside the open one."""
_RELEASE_S = 5.0
"""How long releasing a prepared micro-batch may take when the query ends: Spark does not wait."""
_SHOWN_IDS = 3
"""Of how many jobs a message has the ids: it stays a line."""
_log = logging.getLogger(__name__)


class BatchProgress(NamedTuple):
    """What a query's progress shows of a stream."""

    batch: int
    """The number of the last batch."""
    jobs: int = 0
    payload_bytes: int = 0
    """How many jobs that batch has, and how many bytes their payloads."""
    waiting: int = 0
    """About how many jobs wait: the lag of the stream."""


class MicroBatches:
    """The micro-batches of one driver, under the name of a consumer. Use it as ``async with``."""

    def __init__(self, queue: Queue[Any], options: StreamOptions) -> None:
        self._queue = queue
        self._options = options
        self._name = options.consumer
        self._epoch = 0
        self._last = 0
        """The number of the last batch that was claimed, by this driver or an earlier one."""
        self._pending = False
        """Whether the last batch is not acknowledged yet."""
        self._held = False
        """Whether this driver has claimed it."""
        self._most_jobs = options.max_jobs
        self._left: int | None = None
        """How many jobs may still be claimed, if the query ends with what is queued now."""
        self._behind = JobsBehind(options.kinds)
        self._read_ahead: tuple[int, list[JobRecord], list[str]] | None = None
        """The number, the jobs and the lost ids of a batch that was read when it was claimed."""
        self._bounded = 0
        """The number of a batch that was claimed with at most ``_BATCH_BYTES``."""
        self._most = 0
        """How many jobs the last batch could have."""
        self._prepared = 0
        """The number of the batch that is prepared, or may be; 0: none."""
        self._prepared_jobs: list[JobRecord] = []
        """The jobs of that batch, if this driver has read all of them."""
        self._reserved = 0
        """How many jobs an earlier driver has reserved."""
        self._preparing: asyncio.Task[None] | None = None
        self._counting: asyncio.Task[None] | None = None
        self._encoded: tuple[list[JobRecord], list[bytes]] = ([], [])
        """The jobs of the prepared batch, and their lines."""
        self._sizes = (0, 0)
        """The number of jobs of the last batch, and of the bytes of their payloads."""
        self._found_none_at = float("-inf")
        """When a claim last found none, by the loop's time."""
        self._lock = asyncio.Lock()
        self._renewing: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        """Open the consumer; the queue rejects an earlier driver of it from now on."""
        settings = await self._queue.settings()
        state = await self._queue.open_consumer(self._name)
        self._most_jobs = settings.max_batch_jobs
        self._epoch, self._last = state.epoch, state.batch
        self._pending = state.pending > 0 or state.is_empty
        self._reserved = state.prepared
        self._prepared = self._last + 1 if state.prepared else 0
        self._renewing = asyncio.create_task(self._renew_leases())
        return self

    async def __aexit__(self, *error: object) -> None:
        """Stop renewing leases. An open batch stays as it is, to be repeated."""
        for task in filter(None, (self._renewing, self._preparing, self._counting)):
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
        if self._prepared:
            # If this fails, its leases expire.
            with suppress(BucketQError, TimeoutError):
                async with asyncio.timeout(_RELEASE_S):
                    await self._queue.release_batch(self._name, self._epoch, self._prepared)

    def first(self) -> int:
        """Return the batch after which a query without a checkpoint begins."""
        return self._last - 1 if self._pending else self._last

    async def report(self) -> BatchProgress:
        """Return the last batch, and about how many jobs are waiting behind it."""
        await self._until_counted()
        return BatchProgress(self._last, *self._sizes, self._behind.count)

    async def limit_to_queued(self) -> None:
        """Claim as many jobs as are queued now, and then no more."""
        stats = await self._retry(self._queue.stats)
        self._left = self._behind.count_in(stats) + self._reserved
        self._behind.log_pause(stats, is_endless=False)

    async def latest(self, start: int, limit: int | None) -> int:
        """Acknowledge up to ``start`` and claim the next batch; return ``start`` if it is empty."""
        self._check_start(start)
        is_claimed = await self._acknowledge(start, limit)
        if not self._pending:
            if self._left == 0:
                await self._update_waiting()
                return start
            if self._left is None:
                await self._wait_to_poll()
        if not is_claimed:
            async with self._lock:
                await self._retry(lambda: self._claim(start + 1, limit))
        if not self._pending:
            self._found_none_at = asyncio.get_running_loop().time()
            self._left = None if self._left is None else 0
            await self._update_waiting()
            return start
        found, lost = self._prepared_jobs, list[str]()
        if not found:
            found, lost = await self._read(self._last)
        self._prepared_jobs = []
        self._read_ahead = (self._last, found, lost)
        self._sizes = (len(found), sum(map(payload_size, found)))
        await self._until_counted()
        self._counting = asyncio.create_task(self._count_behind(self._last))
        return self._last

    async def jobs(self, start: int, end: int) -> list[JobRecord]:
        """Return the jobs of a batch, the same at each call, in the order of their claim."""
        if start == end:
            return []
        if end != start + 1 or end != self._last:
            raise self._mismatch(f"has batch {end} under way")
        if not self._pending:
            return self._without([], f"batch {end} was acknowledged or released")
        if not self._held:
            async with self._lock:
                await self._retry(lambda: self._claim(end, None))
        ahead, self._read_ahead = self._read_ahead, None
        found, lost = ahead[1:] if ahead and ahead[0] == end else await self._read(end)
        if lost:
            shown = ", ".join(lost[:_SHOWN_IDS]) + (", …" if len(lost) > _SHOWN_IDS else "")
            what = f"{len(lost):,} of {len(lost) + len(found):,} jobs of batch {end} are lost"
            return self._without(found, f"{what} ({shown})")
        return found

    def encode(self, jobs: list[JobRecord]) -> list[bytes]:
        """Encode the jobs of a batch for Spark, unless that was done when it was prepared."""
        (known, lines), self._encoded = self._encoded, ([], [])
        return lines if known is jobs else [*map(_encode, jobs)]

    async def prepare_next(self) -> None:
        """Prepare the next batch in the background, if it would be large and enough jobs wait."""
        await self._until_counted()
        most = self._most
        if (
            self._held
            and not self._prepared
            and most >= _PREPARED_JOBS
            and most <= self._behind.count
            and (self._left is None or most <= self._left)
            and self._sizes[1] <= _PREPARED_BYTES
        ):
            self._prepared = self._last + 1
            self._preparing = asyncio.create_task(self._prepare(self._prepared, most))

    async def _prepare(self, batch: int, most: int) -> None:
        """Reserve jobs, and read them. If that fails, the claim of the batch takes longer."""
        options = self._options
        async with self._lock:
            if batch != self._last + 1 or not self._held:
                return  # Spark was faster, and has claimed it.
            try:
                state = await self._queue.prepare_batch(
                    self._name,
                    self._epoch,
                    batch,
                    options.kinds or None,
                    limit=most,
                    worker=self._name,
                    lease_s=options.lease_s,
                    max_bytes=min(options.max_bytes or _PREPARED_BYTES, _PREPARED_BYTES),
                )
                if state.jobs:
                    self._bounded = batch
                    self._prepared_jobs, lost = await self._read(batch)
                    if lost:
                        self._prepared_jobs = []
                    ready = self._prepared_jobs
                    self._encoded = (ready, [*map(_encode, ready)])
                else:
                    self._prepared = 0
            except BucketQError as error:
                _log.warning(
                    "batch %d of consumer %r is not prepared: %s", batch, self._name, error
                )

    async def _read(self, batch: int) -> tuple[list[JobRecord], list[str]]:
        """Return the jobs of the open batch, and the ids of those that do not belong to it now."""
        found: list[JobRecord] = []
        lost: list[str] = []
        # One that an earlier driver has claimed may be of any size.
        limit = self._most_jobs if batch == self._bounded else min(_PAGE_JOBS, self._most_jobs)
        start: int | None = 0
        while start is not None:
            # Executors fetch large payloads: the driver would hold those of a whole batch.
            ask = partial(
                self._queue.read_batch, self._name, batch, start=start, limit=limit, fetch=False
            )
            page = await self._retry(ask)
            found += [job.record for job in page.jobs]
            lost += page.lost
            start = page.next_start
        return found, lost

    async def _acknowledge(self, batch: int, limit: int | None) -> bool:
        """Acknowledge a batch that Spark has committed, if it is the open one.

        The next one is claimed with it, in one commit; return whether it has jobs.
        """
        if not self._pending or batch != self._last:
            return False
        async with self._lock:
            if self._left == 0:
                ask = partial(acknowledge_micro_batch, self._queue, self._name, self._epoch, batch)
                await self._retry(ask)
                self._pending = self._held = False
            else:
                state = await self._retry(lambda: self._claim(batch + 1, limit, acked=batch))
                warn_of_lost(self._name, batch, state.acked_lost)
        return self._pending

    async def _claim(self, batch: int, limit: int | None, *, acked: int = 0) -> BatchState:
        options = self._options
        is_repeated = self._pending and not acked
        most = min(limit or self._most_jobs, self._most_jobs)
        if self._left is not None and not is_repeated:
            most = min(most, self._left)
        max_bytes = options.max_bytes or _BATCH_BYTES
        state = await self._queue.claim_batch(
            self._name,
            self._epoch,
            batch,
            options.kinds or None,
            limit=max(most, 1),
            worker=self._name,
            lease_s=options.lease_s,
            max_failures=options.max_failures,
            max_bytes=max_bytes,
            acked=acked,
        )
        if acked:
            self._pending = self._held = False
        if not is_repeated:
            self._most, self._prepared, self._reserved = max(most, 1), 0, 0
            if not state.prepared or state.prepared != len(self._prepared_jobs):
                self._prepared_jobs = []
        if is_repeated and not self._held and not state.jobs and not state.lost:
            _log.warning(
                "batch %d of consumer %r has no jobs left: they were settled one by one, or it "
                "failed too often (maxBatchFailures), and each comes in a batch of its own",
                batch,
                self._name,
            )
            if self._left is not None:  # They are queued now, and this query takes them, too.
                self._left = max(self._left, self._behind.count_in(await self._queue.stats()))
        if state.jobs or state.lost or is_repeated:
            self._last, self._pending, self._held = batch, True, True
            if not is_repeated and max_bytes <= _BATCH_BYTES:
                self._bounded = batch
            if self._left is not None and not is_repeated:
                self._left -= state.jobs
        return state

    async def _renew_leases(self) -> None:
        """Renew the leases of the open batch, until this is cancelled or another driver has it."""
        pause_s = self._options.lease_s / _RENEWALS_PER_LEASE
        while True:
            await asyncio.sleep(pause_s)
            pause_s = self._options.lease_s / _RENEWALS_PER_LEASE
            async with self._lock:
                if not self._held:
                    continue
                try:
                    await self._claim(self._last, None)
                except ConsumerFencedError as error:
                    # The stream ends with this error at its next request.
                    _log.warning(
                        "leases of consumer %r are no longer renewed: %s", self._name, error
                    )
                    return
                except Exception as error:  # noqa: BLE001 - retried before the leases expire
                    _log.warning("leases of consumer %r were not renewed: %s", self._name, error)
                    pause_s = min(pause_s, _RETRY_S)

    async def _wait_to_poll(self) -> None:
        """Wait until ``POLL_S`` after a claim that found nothing; Spark itself does not wait."""
        loop = asyncio.get_running_loop()
        await asyncio.sleep(max(0.0, self._found_none_at + POLL_S - loop.time()))

    async def _count_behind(self, batch: int) -> None:
        """Count the jobs that wait behind a batch, while Spark begins with it."""
        try:
            await self._update_waiting(is_due=True)
        except BucketQError as error:
            _log.warning(
                "jobs behind batch %d of consumer %r are not counted: %s", batch, self._name, error
            )

    async def _until_counted(self) -> None:
        if self._counting is not None:
            await self._counting

    async def _update_waiting(self, *, is_due: bool = False) -> None:
        """Count the waiting jobs, if that is due."""
        if is_due or self._behind.is_due:
            self._behind.begin()
            stats = await self._retry(self._queue.stats)
            self._behind.note(stats, is_endless=self._left is None)

    async def _retry(self, ask: Callable[[], Awaitable[A]]) -> A:
        """Retry a request while the queue is unavailable, for as long as a lease lasts.

        An error would end the query. Every request of a stream is identified by its batch number,
        so it can be sent again as it is.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._options.lease_s
        while True:
            try:
                return await ask()
            except UnavailableError as error:
                if loop.time() >= deadline:
                    raise
                _log.warning("the queue cannot be reached, retrying: %s", error)
                await asyncio.sleep(_RETRY_S)

    def _check_start(self, start: int) -> None:
        """Check that the checkpoint and the consumer are at the same batch."""
        if start not in (self._last, self.first()):
            raise self._mismatch(f"ends with batch {start}")

    def _mismatch(self, what: str) -> InvalidRequestError:
        return InvalidRequestError(
            f"the checkpoint of this stream {what}, and consumer {self._name!r} is at batch "
            f"{self._last}: another stream has used that name, or the consumer or the queue was "
            "created again; begin with a new checkpoint, or give each stream a name of its own. "
            "No job is lost by that"
        )

    def _without(self, found: list[JobRecord], what: str) -> list[JobRecord]:
        """Continue without some jobs, or raise if ``failOnLostClaim`` is set."""
        where = f"{what}, consumer {self._name!r}"
        if self._options.fail_on_lost:
            message = (
                f"{where}: their leases expired, or they were claimed, finished or cancelled; they "
                "stay in the queue or its archive. To continue without them, set "
                'option("failOnLostClaim", "false"); to avoid it, set a longer leaseSeconds'
            )
            raise LeaseLostError(message)
        _log.warning("%s: continuing without them", where)
        return found
