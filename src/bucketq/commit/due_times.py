"""When schedules are due: intervals, and cron expressions in a time zone.

Cron expressions are read by ``cronsim``, an extra, as times on the wall of their zone. These become
instants here: a time that the clocks skip in spring is the first instant after the gap, and one
that they show twice in autumn is the first of the two. So the order of due times is that of the
times on the wall, and each is one instant.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Protocol

from bucketq.errors import InvalidRequestError

if TYPE_CHECKING:
    from zoneinfo import ZoneInfo

_LONGEST_OVERLAP = timedelta(hours=3)
"""The hands of a clock are set back by two hours at most (Antarctica/Troll)."""
_SECOND = timedelta(seconds=1)


class Timed(Protocol):
    """What due times follow from; a ``ScheduleRecord`` has it."""

    @property
    def cron(self) -> str:
        """The cron expression, or empty."""
        ...

    @property
    def timezone(self) -> str:
        """The zone of the cron expression."""
        ...

    @property
    def every_s(self) -> float:
        """The interval, or 0."""
        ...

    @property
    def created_at(self) -> datetime:
        """From when intervals are counted."""
        ...


class NoCronError(Exception):
    """This process cannot compute the due times of a schedule, and another one may."""


def check_cron(cron: str, timezone: str) -> None:
    """Raise ``InvalidRequestError`` if a cron expression or its zone cannot be read here."""
    try:
        first = next(_local_times(cron, timezone, datetime(2000, 1, 1, tzinfo=UTC)), None)
    except NoCronError as error:
        raise InvalidRequestError(str(error)) from error
    if first is None:
        raise InvalidRequestError(f"cron expression {cron!r} is never due")


def next_due(schedule: Timed, after: datetime) -> datetime | None:
    """Return the first due time after an instant; None: there is none. Raises ``NoCronError``."""
    try:
        if schedule.every_s:
            step, start = timedelta(seconds=schedule.every_s), schedule.created_at
            return start + max((after - start) // step + 1, 1) * step
        due = _local_times(schedule.cron, schedule.timezone, after)
        return next((at for at in due if at > after), None)
    except OverflowError:
        return None  # It is after the last year.


def last_due(schedule: Timed, after: datetime, now: datetime, limit: int) -> list[datetime]:
    """Return the last due times after an instant and not after now, at most ``limit``, in order.

    What it costs depends on ``limit``, however long ago ``after`` is. Raises ``NoCronError``.
    """
    if schedule.every_s:
        step, start = timedelta(seconds=schedule.every_s), schedule.created_at
        last = (now - start) // step
        first = max((after - start) // step + 1, 1, last - limit + 1)
        return [start + count * step for count in range(first, last + 1)]
    found: list[datetime] = []
    for at in _local_times(schedule.cron, schedule.timezone, now, backward=True):
        if at <= after or len(found) == limit:
            break
        if at <= now and at not in found[-1:]:
            found.append(at)
    return found[::-1]


def _local_times(
    cron: str, timezone: str, start: datetime, *, backward: bool = False
) -> Iterator[datetime]:
    """Return due times from an instant on, forward or backward; those that are skipped are equal.

    The first ones may lie on the other side of ``start``. Raises ``NoCronError``.
    """
    cronsim = _cronsim()
    zone = _zone(timezone)
    local = start.astimezone(zone).replace(tzinfo=None)
    if backward:
        # What the clock shows may come again, and a time that is due now is included.
        local = local.replace(microsecond=0) + _LONGEST_OVERLAP + _SECOND
    try:
        times: Iterator[datetime] = cronsim.CronSim(cron, local, reverse=backward)
    except cronsim.CronSimError as error:
        message = f"bad cron expression {cron!r}: {error}"
        raise NoCronError(message) from error
    return (_instant(at, zone) for at in times)


def _instant(local: datetime, zone: ZoneInfo) -> datetime:
    """Return when a clock of a zone shows a time first, or the end of the gap that it is in."""
    before = local.replace(tzinfo=zone, fold=0).astimezone(UTC)
    after = local.replace(tzinfo=zone, fold=1).astimezone(UTC)
    if before <= after:
        return before
    # It is skipped: with the offset before the gap it is too late, with that after it too early.
    early, late, offset = after, before, before.astimezone(zone).utcoffset()
    while late - early > _SECOND:
        middle = early + (late - early) // _SECOND // 2 * _SECOND
        if middle.astimezone(zone).utcoffset() == offset:
            late = middle
        else:
            early = middle
    return late


@lru_cache(maxsize=64)  # More zones than a queue has.
def _zone(name: str) -> ZoneInfo:
    from zoneinfo import ZoneInfo  # noqa: PLC0415 - few queues have a cron expression

    try:
        return ZoneInfo(name)
    except (KeyError, OSError, ValueError) as error:
        message = f"time zone {name!r} is not known on this host; use a name like Europe/Berlin"
        raise NoCronError(message) from error


def _cronsim() -> Any:
    try:
        import cronsim  # noqa: PLC0415 - an extra
    except ImportError as error:
        message = 'cron expressions need one more package: pip install "bucketq[cron]"'
        raise NoCronError(message) from error
    return cronsim
