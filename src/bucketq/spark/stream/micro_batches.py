"""The batches of a consumer, as a stream asks for them: found again, kept, and acknowledged.

Spark numbers what it reads, and after a crash asks for the same number again. Here a number is a
batch of jobs that the queue itself keeps under the name of the consumer, so whoever asks again,
from whatever process, gets the identical set. What this promises:

* A batch is acknowledged only when Spark asks for what follows it, which Spark does once it has
  committed the batch. What is not acknowledged is done again.
* Whoever begins anew, without a checkpoint, begins with the batch that is not acknowledged.
* While a batch is open its leases are kept, by claiming it again: that is one request for all of
  its jobs, and it tells a driver that was replaced to stop.
* A stream that finds nothing asks seldom, and writes nothing.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

from bucketq.errors import (
    ConsumerFencedError,
    InvalidRequestError,
    LeaseLostError,
    UnavailableError,
)
from bucketq.model.bulk import BatchState
from bucketq.model.job import JobRecord
from bucketq.model.operations import Stats
from bucketq.queue.base import Queue
from bucketq.spark.stream.stream_options import StreamOptions

A = TypeVar("A")

POLL_S = 0.25
"""How long a stream that found nothing waits before it asks again."""
LAG_S = 1.0
"""How old the number of waiting jobs may be that is told."""
_BEATS = 3
"""How often in a lease it is renewed."""
_PAUSE_S = 0.5
_PAGE = 500
_SHOWN = 3
_log = logging.getLogger(__name__)


class Claims:
    """What one driver takes under the name of a consumer. It must be opened before it is asked."""

    def __init__(self, queue: Queue[Any], options: StreamOptions) -> None:
        """Ask this queue; nothing is claimed yet."""
        self._queue = queue
        self._options = options
        self._name = options.consumer
        self._epoch = 0
        self._last = 0
        """The number of the last batch that was claimed, by whomever."""
        self._pending = False
        """Whether that one is not acknowledged yet."""
        self._held = False
        """Whether this driver has claimed it."""
        self._most_jobs = options.max_jobs
        self._left: int | None = None
        """How many jobs may still be taken, where the stream is to end."""
        self._waiting = 0
        self._is_paused = False
        """Whether jobs are held back, as far as that was told."""
        self._counted_at = float("-inf")
        self._asked_at = float("-inf")
        """When nothing was found, by the loop's time."""
        self._turn = asyncio.Lock()
        self._keeper: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """Take the consumer over; a driver that had it before is refused from now on."""
        settings = await self._queue.config()
        state = await self._queue.open_consumer(self._name)
        self._most_jobs = settings.max_batch_jobs
        self._epoch, self._last = state.epoch, state.batch
        self._pending = state.pending > 0
        self._keeper = asyncio.create_task(self._keep())

    async def close(self) -> None:
        """Keep no lease any more. An open batch stays as it is, to be done again."""
        if self._keeper is not None:
            self._keeper.cancel()
            with suppress(asyncio.CancelledError):
                await self._keeper

    def first(self) -> int:
        """What to begin behind, without a checkpoint."""
        return self._last - 1 if self._pending else self._last

    @property
    def progress(self) -> tuple[int, int]:
        """The number of the last batch, and about how many jobs are waiting."""
        return self._last, self._waiting

    async def take_no_more_than_now(self) -> None:
        """Take as many jobs as are waiting now, and then no more."""
        stats = await self._patiently(self._queue.stats)
        self._left = self._count(stats)
        self._tell_of_pause(stats)

    async def latest(self, start: int, limit: int | None) -> int:
        """Acknowledge up to ``start`` and claim the batch behind it; ``start``: there is none."""
        self._check_start(start)
        await self._acknowledge(start)
        if not self._pending:
            if self._left == 0:
                await self._see_lag()
                return start
            if self._left is None:
                await self._wait_for_turn()
        async with self._turn:
            state = await self._patiently(lambda: self._claim(start + 1, limit))
        if not state.jobs and not state.lost:
            self._asked_at = asyncio.get_running_loop().time()
            self._left = None if self._left is None else 0
        await self._see_lag()
        return self._last if self._pending else start

    async def jobs(self, start: int, end: int) -> list[JobRecord]:
        """The jobs of a batch, the same at each call, in the order of their claim."""
        if start == end:
            return []
        if end != start + 1 or end != self._last:
            raise self._elsewhere(f"has batch {end} under way")
        if not self._pending:
            return self._without([], f"batch {end} was acknowledged or released")
        if not self._held:
            async with self._turn:
                await self._patiently(lambda: self._claim(end, None))
        found, lost = await self._read(end)
        if lost:
            shown = ", ".join(lost[:_SHOWN]) + (", …" if len(lost) > _SHOWN else "")
            what = f"{len(lost):,} of {len(lost) + len(found):,} jobs of batch {end} are lost to it"
            return self._without(found, f"{what} ({shown})")
        return found

    async def _read(self, batch: int) -> tuple[list[JobRecord], list[str]]:
        """The jobs of the open batch, and the ids of those that do not belong to it any more."""
        found: list[JobRecord] = []
        lost: list[str] = []
        limit = min(_PAGE, self._most_jobs)
        start: int | None = 0
        while start is not None:
            ask = partial(self._queue.read_batch, self._name, batch, start=start, limit=limit)
            page = await self._patiently(ask)
            found += [job.record for job in page.jobs]
            lost += page.lost
            start = page.next_start
        return found, lost

    async def _acknowledge(self, batch: int) -> None:
        """Close a batch that Spark has committed, if it is the open one."""
        if not self._pending or batch != self._last:
            return
        async with self._turn:
            state = await self._patiently(
                lambda: self._queue.ack_batch(self._name, self._epoch, batch)
            )
            self._pending = self._held = False
        if state.lost:
            _log.warning(
                "batch %d of consumer %r is done, but others had taken %d of its jobs meanwhile "
                "and do them again: give it a longer leaseSeconds",
                batch,
                self._name,
                len(state.lost),
            )

    async def _claim(self, batch: int, limit: int | None) -> BatchState:
        options = self._options
        again = self._pending
        most = min(limit or self._most_jobs, self._most_jobs)
        if self._left is not None and not again:
            most = min(most, self._left)
        state = await self._queue.claim_batch(
            self._name,
            self._epoch,
            batch,
            options.kinds or None,
            limit=max(most, 1),
            worker=self._name,
            lease_s=options.lease_s,
        )
        if state.jobs or state.lost:
            self._last, self._pending, self._held = batch, True, True
            if self._left is not None and not again:
                self._left -= state.jobs
        return state

    async def _keep(self) -> None:
        """Renew the leases of the open batch until it is cancelled, or refused."""
        pause_s = self._options.lease_s / _BEATS
        while True:
            await asyncio.sleep(pause_s)
            pause_s = self._options.lease_s / _BEATS
            async with self._turn:
                if not self._held:
                    continue
                try:
                    await self._claim(self._last, None)
                except ConsumerFencedError as error:
                    # The next request is refused as well, and the stream ends with that error.
                    _log.warning("the leases of %r are no longer kept: %s", self._name, error)
                    return
                except Exception as error:  # noqa: BLE001 - it may pass before the leases run out
                    _log.warning("the leases of %r were not renewed: %s", self._name, error)
                    pause_s = min(pause_s, _PAUSE_S)

    async def _wait_for_turn(self) -> None:
        """Spark asks again at once; the queue is to be asked at a moderate pace."""
        loop = asyncio.get_running_loop()
        await asyncio.sleep(max(0.0, self._asked_at + POLL_S - loop.time()))

    async def _see_lag(self) -> None:
        """Count the waiting jobs, now and then."""
        now = asyncio.get_running_loop().time()
        if now >= self._counted_at + LAG_S:
            self._counted_at = now
            stats = await self._patiently(self._queue.stats)
            self._waiting = self._count(stats)
            self._tell_of_pause(stats)

    def _tell_of_pause(self, stats: Stats) -> None:
        """Say once that jobs wait and are not handed out, and what the stream does about it."""
        held = (
            self._chosen(stats) if stats.paused else self._chosen(stats) & set(stats.paused_kinds)
        )
        waiting = sum(stats.counts.get(kind, {}).get("queued", 0) for kind in held)
        if waiting and not self._is_paused:
            _log.warning(
                "%s waiting, and %s is paused: resume it (bucketq resume); %s",
                f"{waiting:,} jobs are" if waiting > 1 else "1 job is",
                "the queue" if stats.paused else ", ".join(sorted(held)),
                "the stream waits for that"
                if self._left is None
                else "the stream is to take what is there now, and may end without them",
            )
        self._is_paused = waiting > 0

    def _chosen(self, stats: Stats) -> set[str]:
        return set(self._options.kinds or stats.counts)

    def _count(self, stats: Stats) -> int:
        return sum(stats.counts.get(kind, {}).get("queued", 0) for kind in self._chosen(stats))

    async def _patiently(self, ask: Callable[[], Awaitable[A]]) -> A:
        """Ask until there is an answer, for as long as a lease lasts: an error ends the stream.

        Every request of a stream is named by its number, so it can be sent again as it is.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._options.lease_s
        while True:
            try:
                return await ask()
            except UnavailableError as error:
                if loop.time() >= deadline:
                    raise
                _log.warning("the queue is not to be reached, trying again: %s", error)
                await asyncio.sleep(_PAUSE_S)

    def _check_start(self, start: int) -> None:
        """See that the checkpoint and the consumer speak of the same batches."""
        if start not in (self._last, self.first()):
            raise self._elsewhere(f"ends with batch {start}")

    def _elsewhere(self, what: str) -> InvalidRequestError:
        return InvalidRequestError(
            f"the checkpoint of this stream {what}, and consumer {self._name!r} is at batch "
            f"{self._last}: another stream has used that name, or the consumer or the queue was "
            "made anew; begin with a new checkpoint, or take a name of its own for each stream. "
            "No job is lost by that"
        )

    def _without(self, found: list[JobRecord], what: str) -> list[JobRecord]:
        """Go on without some jobs, if that is allowed."""
        where = f"{what}, consumer {self._name!r}"
        if self._options.fail_on_lost:
            message = (
                f"{where}: the leases ran out, or somebody took, finished or cancelled them; the "
                'queue takes care of them. To go on without, set option("failOnLostClaim", '
                '"false"); so that it does not happen again, a longer leaseSeconds'
            )
            raise LeaseLostError(message)
        _log.warning("%s: going on without them", where)
        return found
