"""``ScheduleFirer``: pushes the jobs of schedules when they are due, beside the requests.

It computes what is due by the clock of this process and by the state in memory, and submits a
``Fire`` for each schedule. That counts only if the object still says what was decided before: if
another process was faster, or the state was old, it changes nothing. So any number of processes
may try, and none has to be the one that does.

A run that cannot be pushed, because the queue is full for instance, is not decided: it is tried
again as a missed run.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from bucketq.clock import Clock
from bucketq.commit.due_times import NoCronError, last_due, next_due
from bucketq.commit.upkeep.background import BackgroundLoop
from bucketq.commit.upkeep.transient_faults import TransientFault
from bucketq.errors import ClosedError, QueueFullError, RejectedError
from bucketq.model.operations import Request
from bucketq.model.schedules import MOST_RUNS, Fire, ScheduleRecord
from bucketq.model.state import State

_log = logging.getLogger("bucketq")

_PASS_S = 1.0
"""The longest pause between two passes, which may take twice as long: what others change, and a
clock that is set, are noticed after it. Without schedules there are no passes."""
_LEAST_PASS_S = 0.005
"""A timer may fire a little early; this keeps the task from spinning until a schedule is due."""
MISSED_AFTER = timedelta(seconds=60)
"""After so long a run counts as missed: another broker has taken over by then."""
_WRONG_CLOCK = timedelta(minutes=10)
"""Clocks that differ by more are logged: twice what ``clock_margin_s`` allows them."""
_AT_ONCE = 100
"""How many schedules are fired together: many are due at the same minute, and a broker commits what
comes together in one write."""
_HEAD_START = timedelta(seconds=10)
"""How long a process leaves a run to the broker that the object names, which may be gone."""


def plan(schedule: ScheduleRecord, now: datetime) -> Fire | None:
    """Return what to submit for a schedule; None: nothing is due. Raises ``NoCronError``."""
    if schedule.paused:
        return None
    due = last_due(schedule, schedule.decided_at, now, 1 if schedule.alone else MOST_RUNS)
    if not due:
        return None
    runs = due
    if schedule.missed != "all":
        # What is not missed yet runs, however many due times have passed since the last pass.
        runs = [each for each in due if now - each <= MISSED_AFTER]
    if schedule.missed == "latest":
        runs = runs or due[-1:]
    return Fire(
        schedule=schedule.id,
        timing=schedule.timing,
        created_at=schedule.created_at,
        after=schedule.decided_at,
        until=due[-1],
        runs=tuple(runs),
    )


class ScheduleFirer:
    """Fires the schedules of one queue."""

    def __init__(
        self, submit: Callable[[Request], Awaitable[Any]], clock: Clock, where: str
    ) -> None:
        """Commit with ``submit``; ``where`` is what messages call the queue."""
        self._submit = submit
        self._clock = clock
        self._where = where
        self._loop = BackgroundLoop(clock, TransientFault(clock, _log, f"{where}: schedules fail"))
        self._next: dict[str, tuple[ScheduleRecord, datetime | None]] = {}
        """When each schedule is due, and the row that this was computed from."""
        self._troubles: dict[str, str] = {}
        """Why a schedule does not fire, which is logged once."""

    def start(self, current: Callable[[], State | None], *, leads: bool) -> None:
        """Fire what is due in the background, until ``stop``.

        ``current`` returns the state in memory. A process that does not lead leaves it to the
        broker of the queue for a while, if there is one.
        """
        self._loop.start(partial(self._pass, current, leads=leads), None)

    def notice(self, state: State) -> None:
        """Look at a state that was read or committed: it may have the first schedule."""
        if state.schedules and not self._next:
            self._loop.wake()

    async def stop(self) -> None:
        """Stop firing."""
        await self._loop.stop()

    async def _pass(self, current: Callable[[], State | None], *, leads: bool) -> float | None:
        state = current()
        if state is None:
            return _PASS_S
        if not state.schedules:
            self._next = {}
            return None
        now = self._clock.now()
        delay = timedelta(0) if leads or not state.is_served else _HEAD_START
        await self.fire_due(list(state.schedules), now - delay)
        # What was due has been tried, and is tried again after a whole pause.
        later = (at + delay for _, at in self._next.values() if at is not None)
        soonest = min((at for at in later if at > now), default=None)
        left_s = _PASS_S if soonest is None else (soonest - self._clock.now()).total_seconds()
        return max(_LEAST_PASS_S, min(left_s, _PASS_S))

    async def fire_due(self, schedules: list[ScheduleRecord], now: datetime) -> int:
        """Fire what is due at a time; return how many jobs were pushed."""
        known, waiting = self._next, list[ScheduleRecord]()
        self._next = {}
        for schedule in schedules:
            row, due = known.get(schedule.id, (None, None))
            try:
                if row is not schedule:
                    self._notice(schedule, now)
                    due = None if schedule.paused else next_due(schedule, schedule.decided_at)
            except NoCronError as error:
                self._report(schedule, str(error))
                continue
            self._next[schedule.id] = (schedule, due)
            if due is not None and due <= now:
                waiting.append(schedule)
            else:
                self._troubles.pop(schedule.id, None)
        count = 0
        for start in range(0, len(waiting), _AT_ONCE):
            page = waiting[start : start + _AT_ONCE]
            tries = (self._try(schedule, now) for schedule in page)
            for fired in await asyncio.gather(*tries, return_exceptions=True):
                if isinstance(fired, BaseException):
                    raise fired
                count += fired
        return count

    async def _try(self, schedule: ScheduleRecord, now: datetime) -> int:
        """Fire one schedule; what is wrong with it does not stop the others."""
        try:
            count = await self._fire(schedule, now)
        except ClosedError:
            raise
        except (NoCronError, RejectedError) as error:
            self._report(schedule, str(error))
            return 0
        self._troubles.pop(schedule.id, None)
        return count

    async def _fire(self, schedule: ScheduleRecord, now: datetime) -> int:
        fire = plan(schedule, now)
        if fire is None:
            return 0
        if not fire.runs:
            _log.warning(
                "%s: schedule %s skips what was due until %s, when no process fired it",
                self._where,
                schedule.id,
                fire.until.isoformat(),
            )
        try:
            return len(await self._submit(Request(fire)))
        except QueueFullError:
            if len(fire.runs) <= 1:
                raise
        # There may be room for one.
        first = fire.runs[0]
        one = Fire(
            schedule=fire.schedule,
            timing=fire.timing,
            created_at=fire.created_at,
            after=fire.after,
            until=first,
            runs=(first,),
        )
        return len(await self._submit(Request(one)))

    def _notice(self, schedule: ScheduleRecord, now: datetime) -> None:
        """Log a schedule that will be silent because a clock was wrong."""
        ahead = schedule.decided_at - now
        if ahead > _WRONG_CLOCK and not schedule.paused:
            _log.warning(
                "%s: schedule %s has fired what was due until %s, which is %s ahead of the clock "
                "of this host, and fires nothing before; if another clock was wrong, remove it "
                "and add it again",
                self._where,
                schedule.id,
                schedule.decided_at.isoformat(),
                ahead,
            )

    def _report(self, schedule: ScheduleRecord, trouble: str) -> None:
        if self._troubles.get(schedule.id) != trouble:
            self._troubles[schedule.id] = trouble
            _log.warning("%s: schedule %s does not fire: %s", self._where, schedule.id, trouble)
