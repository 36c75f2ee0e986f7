"""Keeps the leases of the jobs that a worker holds, by heartbeats.

A job is kept from its claim until the queue has acknowledged its end. Whoever keeps it is told
when the queue says that the lease is lost or that somebody wants the job cancelled, and also when
no heartbeat was acknowledged for so long that the lease may have run out: then another worker may
have the job, and nothing can tell any more.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Literal, Protocol

from bucketq.errors import RejectedError, UnavailableError
from bucketq.model.operations import LeaseRef, Pulse
from bucketq.model.settings import Settings

News = Literal["lost", "silent", "cancel"]
"""What befell a lease. Silent: it may be lost, for nobody has answered for too long."""

_log = logging.getLogger(__name__)
_MARGIN = 0.2
"""The part of a lease that is left to stop a handler in before others may have its job."""
_LOOKS = 4
"""How often in the time between two heartbeats it is seen whether leases have run out."""
_LARGEST_BATCH = 5000


class Beats(Protocol):
    """What is needed of a queue."""

    async def heartbeat(self, jobs: list[LeaseRef], /) -> list[Pulse]:
        """Say that jobs are still being worked on."""
        ...


class _Kept:
    """A lease that is kept."""

    __slots__ = ("lease", "proved_at", "tell", "told")

    def __init__(self, lease: LeaseRef, proved_at: float, tell: Callable[[News], None]) -> None:
        self.lease = lease
        self.proved_at = proved_at
        """When the request was sent that last showed it to be held."""
        self.tell = tell
        self.told: dict[News, None] = {}

    def news(self, news: News) -> None:
        """Tell, once."""
        if news not in self.told:
            self.told[news] = None
            self.tell(news)


class LeaseKeeper:
    """Sends heartbeats for all jobs of a worker together."""

    def __init__(self, queue: Beats, settings: Settings) -> None:
        """Keep nothing yet; ``settings`` may be replaced while it runs."""
        self._queue = queue
        self.settings = settings
        self._kept: dict[tuple[str, str], _Kept] = {}
        self._news = asyncio.Event()
        self._woke_at = float("-inf")
        """When this process was last found to have stood still, by the loop's time."""

    def keep(self, lease: LeaseRef, since_s: float, tell: Callable[[News], None]) -> None:
        """Keep a lease that was asked for at ``since_s``, by the loop's time."""
        self._kept[lease.job, lease.lease] = _Kept(lease, since_s, tell)
        self._news.set()

    def drop(self, lease: LeaseRef) -> None:
        """Keep a lease no longer."""
        self._kept.pop((lease.job, lease.lease), None)

    async def run(self) -> None:
        """Beat until it is cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            await self._until_something_is_kept()
            await self._rest()
            sent_at = loop.time()
            leases = [kept.lease for kept in self._kept.values()]
            size = min(_LARGEST_BATCH, self.settings.max_batch_jobs)
            for start in range(0, len(leases), size):
                await self._beat(leases[start : start + size], sent_at)

    async def _until_something_is_kept(self) -> None:
        while not self._kept:
            self._news.clear()
            await self._news.wait()

    async def _rest(self) -> None:
        """Wait between two heartbeats. A lease that runs out does not wait for the next one."""
        loop = asyncio.get_running_loop()
        for look in range(_LOOKS):
            if look:
                self._fence()
            slept_at, pause_s = loop.time(), self.settings.heartbeat_s / _LOOKS
            await asyncio.sleep(pause_s)
            self._note_standstill(slept_at, pause_s)

    async def _beat(self, leases: list[LeaseRef], sent_at: float) -> None:
        """Send one heartbeat; while it has no answer, watch for leases that may run out."""
        loop = asyncio.get_running_loop()
        beating = loop.create_task(self._ask(leases))
        try:
            while not beating.done():
                waited_at, patience_s = loop.time(), self.settings.heartbeat_s / _LOOKS
                await asyncio.wait([beating], timeout=patience_s)
                self._note_standstill(waited_at, patience_s)
                if not beating.done():
                    self._fence()
        finally:
            beating.cancel()
        for pulse, lease in zip(beating.result(), leases, strict=False):
            self._hear(pulse, lease, sent_at)
        self._fence()

    async def _ask(self, leases: list[LeaseRef]) -> list[Pulse]:
        try:
            return await self._queue.heartbeat(leases)
        except (UnavailableError, RejectedError) as error:
            _log.warning("a heartbeat for %d jobs had no answer: %s", len(leases), error)
            return []

    def _hear(self, pulse: Pulse, lease: LeaseRef, sent_at: float) -> None:
        kept = self._kept.get((lease.job, lease.lease))
        if kept is None:
            return  # It ended meanwhile.
        if not pulse.held:
            self.drop(lease)  # It never comes back.
            kept.news("lost")
            return
        kept.proved_at = max(kept.proved_at, sent_at)
        if pulse.cancel_requested:
            kept.news("cancel")

    def _note_standstill(self, since: float, meant_s: float) -> None:
        """Note it where a pause took far longer than it was meant to."""
        now = asyncio.get_running_loop().time()
        if now - since > meant_s + self.settings.heartbeat_s:
            self._woke_at = now

    def _fence(self) -> None:
        """Tell of leases that may have run out.

        Not right after this process stood still: the queue may hold them yet (it, too, can have
        stood still), and an answer that says so may be waiting to be read.
        """
        limit_s = self.settings.lease_s * (1 - _MARGIN)
        now_s = asyncio.get_running_loop().time()
        if now_s - self._woke_at < self.settings.heartbeat_s:
            return
        for kept in list(self._kept.values()):
            if now_s - kept.proved_at >= limit_s:
                kept.news("silent")
