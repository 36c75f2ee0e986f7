"""Renews the leases of a worker's jobs by heartbeats.

A lease is renewed from the claim until the queue has acknowledged the outcome. The worker is
notified if the queue reports that the lease is lost or that cancellation was requested, and also if
no heartbeat was acknowledged for so long that the lease may have expired: then another worker may
have the job.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Literal

from bucketq.errors import RejectedError, UnavailableError
from bucketq.model.operations import LeaseRef, Pulse
from bucketq.model.partitions import split_lease
from bucketq.model.records import Progress
from bucketq.model.settings import Settings

LeaseEvent = Literal["lost", "silent", "cancel"]
"""What happened to a lease. Silent: it may be lost, as no heartbeat was acknowledged in time."""

_log = logging.getLogger(__name__)
_MARGIN = 0.2
"""The part of a lease that is reserved for stopping the handler before another worker may start."""
_LOOKS = 4
"""How often leases are checked for expiry between two heartbeats."""
_LARGEST_BATCH = 5000
"""How many leases one heartbeat renews; the limit of the queue may be lower."""


@dataclass(slots=True)
class _HeldLease:
    """A lease that is renewed."""

    lease: LeaseRef
    proved_at: float
    """When the last request was sent whose answer confirmed the lease."""
    on_event: Callable[[LeaseEvent], None]
    progress: Callable[[], Progress | None]
    notified: tuple[LeaseEvent, ...] = ()

    def notify(self, event: LeaseEvent) -> None:
        """Notify the worker, once per event."""
        if event not in self.notified:
            self.notified += (event,)
            self.on_event(event)


class LeaseKeeper:
    """Sends heartbeats for all jobs of a worker together."""

    def __init__(
        self, heartbeat: Callable[..., Awaitable[list[Pulse]]], settings: Settings
    ) -> None:
        """Renew leases by ``heartbeat``, a verb of the queue."""
        self._heartbeat = heartbeat
        self.settings = settings
        """They may be replaced while it runs."""
        self._kept: dict[tuple[str, str], _HeldLease] = {}
        self._beating: dict[int | None, asyncio.Task[None]] = {}
        """Heartbeats without an answer, by partition, if jobs are in several."""
        self._news = asyncio.Event()
        self._woke_at = float("-inf")
        """When this process last resumed after a suspension, by the loop's time."""

    def keep(
        self,
        lease: LeaseRef,
        since_s: float,
        on_event: Callable[[LeaseEvent], None],
        progress: Callable[[], Progress | None] = lambda: None,
    ) -> None:
        """Renew a lease that was requested at ``since_s``, by the loop's time.

        What ``progress`` returns is sent with every heartbeat: a broker keeps it in memory.
        """
        self._kept[lease.job, lease.lease] = _HeldLease(lease, since_s, on_event, progress)
        self._news.set()

    def drop(self, lease: LeaseRef) -> None:
        """Stop renewing a lease."""
        self._kept.pop((lease.job, lease.lease), None)

    async def run(self) -> None:
        """Send heartbeats until cancelled."""
        try:
            await self._run()
        finally:
            for task in self._beating.values():
                task.cancel()

    async def _run(self) -> None:
        while True:
            while not self._kept:
                self._news.clear()
                await self._news.wait()
            await self._rest()
            leases = [kept.lease for kept in self._kept.values()]
            if len({split_lease(each.lease)[1] for each in leases}) <= 1 and not self._beating:
                await self._beat_all(leases)
            else:
                await self._beat_partitions(leases)

    async def _beat_partitions(self, leases: list[LeaseRef]) -> None:
        """Send heartbeats to several partitions: one that does not answer holds up no other."""
        parts: dict[int | None, list[LeaseRef]] = {}
        for lease in leases:
            parts.setdefault(split_lease(lease.lease)[1], []).append(lease)
        loop = asyncio.get_running_loop()
        for partition, some in parts.items():
            if partition not in self._beating:
                self._beating[partition] = loop.create_task(self._beat_all(some))
        await asyncio.wait(self._beating.values(), timeout=self.settings.heartbeat_s)
        for partition in [each for each, task in self._beating.items() if task.done()]:
            self._beating.pop(partition).result()

    async def _beat_all(self, leases: list[LeaseRef]) -> None:
        sent_at = asyncio.get_running_loop().time()
        size = min(_LARGEST_BATCH, self.settings.max_batch_jobs)
        for start in range(0, len(leases), size):
            await self._beat(leases[start : start + size], sent_at)

    async def _rest(self) -> None:
        """Wait between two heartbeats, and check for leases that may have expired."""
        for look in range(_LOOKS):
            if look:
                self._fence()
            await self._pause(None)

    async def _beat(self, leases: list[LeaseRef], sent_at: float) -> None:
        """Send one heartbeat; until it is answered, check for leases that may have expired."""
        beating = asyncio.get_running_loop().create_task(self._ask(leases))
        try:
            while not beating.done():
                await self._pause(beating)
                if not beating.done():
                    self._fence()
        finally:
            beating.cancel()
        for pulse, lease in zip(beating.result(), leases, strict=False):
            self._hear(pulse, lease, sent_at)
        self._fence()

    async def _ask(self, leases: list[LeaseRef]) -> list[Pulse]:
        kept = (self._kept.get((lease.job, lease.lease)) for lease in leases)
        reported = ((each.lease.job, each.progress()) for each in kept if each is not None)
        progress = {job: come for job, come in reported if come is not None}
        try:
            if progress:
                return await self._heartbeat(leases, progress=progress)
            return await self._heartbeat(leases)
        except (UnavailableError, RejectedError) as error:
            _log.warning("a heartbeat for %d jobs was not acknowledged: %s", len(leases), error)
            return []

    def _hear(self, pulse: Pulse, lease: LeaseRef, sent_at: float) -> None:
        kept = self._kept.get((lease.job, lease.lease))
        if kept is None:
            return  # The job ended meanwhile.
        if not pulse.held:
            self.drop(lease)  # It never comes back.
            kept.notify("lost")
            return
        kept.proved_at = max(kept.proved_at, sent_at)
        if pulse.cancel_requested:
            kept.notify("cancel")

    async def _pause(self, beating: asyncio.Task[list[Pulse]] | None) -> None:
        """Wait until leases are checked again, or a heartbeat is answered.

        A pause that took far longer than intended means that the process was suspended.
        """
        loop = asyncio.get_running_loop()
        since, pause_s = loop.time(), self.settings.heartbeat_s / _LOOKS
        if beating is None:
            await asyncio.sleep(pause_s)
        else:
            await asyncio.wait([beating], timeout=pause_s)
        if loop.time() - since > pause_s + self.settings.heartbeat_s:
            self._woke_at = loop.time()

    def _fence(self) -> None:
        """Notify the worker of leases that may have expired.

        Not right after this process was suspended: the queue may still hold them (it may have been
        suspended too), and an answer that confirms it may be waiting to be read.
        """
        limit_s = self.settings.lease_s * (1 - _MARGIN)
        now_s = asyncio.get_running_loop().time()
        if now_s - self._woke_at < self.settings.heartbeat_s:
            return
        for kept in list(self._kept.values()):
            if now_s - kept.proved_at >= limit_s:
                kept.notify("silent")
