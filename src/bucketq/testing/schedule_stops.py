"""``ScheduleStops``: where the clock of a workbench stops, because a schedule is due."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from bucketq.client.connect_arguments import own_register
from bucketq.client.loop_thread import LoopThread
from bucketq.clock import Clock
from bucketq.commit.direct_committer import DirectCommitter
from bucketq.commit.due_times import NoCronError, next_due
from bucketq.commit.upkeep.schedule_firer import ScheduleFirer
from bucketq.model.operations import Request, Tidy
from bucketq.model.schedules import ReadSchedules, ScheduleRecord
from bucketq.store.url import Location

_TIMEOUT_S = 60.0
"""As long as ``connect`` tries by default; a store in memory answers at once."""


class ScheduleStops:
    """Finds and fires the due schedules of one queue in memory, and finishes expired jobs."""

    def __init__(self, loop_thread: LoopThread, place: Location, clock: Clock) -> None:
        """Use a queue that exists; ``close`` ends that."""
        self._call = loop_thread.call
        self._clock = clock
        self._committer = DirectCommitter(own_register(place, clock), clock)
        self._firer = ScheduleFirer(self._submit, clock, place.url)
        self._call(self._committer.open)

    def close(self) -> None:
        """Close its connection."""
        self._call(self._committer.close)

    def next_due(self) -> datetime | None:
        """When the next schedule is due, after now; None: there is none."""
        now = self._clock.now()
        found = [_next_due(row, now) for row in self._call(self._read) if not row.paused]
        return min(filter(None, found), default=None)

    def fire_due(self) -> None:
        """Fire the schedules that are due."""
        self._call(self._fire_due)

    def finish_expired(self) -> None:
        """Finish the jobs that have expired."""
        while self._call(self._tidy):
            pass

    async def _tidy(self) -> int:
        return int(await self._submit(Request(Tidy())))

    async def _fire_due(self) -> None:
        await self._firer.fire_due(await self._read(), self._clock.now())

    async def _read(self) -> list[ScheduleRecord]:
        return list(await self._submit(Request(ReadSchedules())))

    async def _submit(self, request: Request) -> Any:
        return await self._committer.submit(request, _TIMEOUT_S)


def _next_due(row: ScheduleRecord, now: datetime) -> datetime | None:
    try:
        return next_due(row, max(row.decided_at, now))
    except NoCronError:
        return None
