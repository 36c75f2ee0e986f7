"""A schedule as its user sees it, and the options of one."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any, Generic, TypedDict, TypeVar

from msgspec import Struct

from bucketq.commit.due_times import NoCronError, check_cron, next_due
from bucketq.errors import InvalidRequestError
from bucketq.model.records import Backoff
from bucketq.model.requests.stateless_checks import check_times
from bucketq.model.schedules import Missed, ScheduleRecord, SetSchedule
from bucketq.queue import payload as payloads
from bucketq.queue.arguments import to_seconds
from bucketq.queue.push_options import JobSpec, new_job

T = TypeVar("T")


class ScheduleOptions(TypedDict, total=False):
    """The options of ``schedule``; it needs ``cron`` or ``every_s``."""

    cron: str | None
    """Minute, hour, day of the month, month and day of the week, as in a crontab."""
    timezone: str
    """Where ``cron`` is the time on the wall, as in ``Europe/Berlin``; by default UTC."""
    every_s: float | timedelta | None
    """An interval, counted from the creation of the schedule."""
    missed: Missed
    """What happens to runs that were missed, because no process was there or the queue was full:
    ``latest`` runs the last one, ``all`` the last 100, ``skip`` none."""
    jitter_s: float | timedelta
    """A run waits for up to so long, each for another time."""
    alone: bool
    """Whether a run is left out if the one before it is not finished."""
    priority: int
    """Lower goes first."""
    max_attempts: int | None
    """After how many failures and lost leases a job is dead; None: what the settings say."""
    backoff: Backoff | None
    """How long a job waits after a failure; None: what the settings say."""
    tags: dict[str, str] | None
    """Labels of its jobs."""
    group: str | None
    """With which jobs its jobs share turns and limits."""


class Schedule(Struct, Generic[T], frozen=True, kw_only=True):
    """A schedule at the moment at which it was read."""

    name: str
    kind: str
    payload: T
    cron: str | None
    timezone: str
    every_s: float | None
    missed: Missed
    jitter_s: float
    alone: bool
    paused: bool
    created_at: datetime
    decided_at: datetime
    """Everything that was due up to this time has run, or never will."""
    last_job: str | None
    """The job of the last run."""
    next_at: datetime | None
    """When it is due next; None: it is paused, or this process cannot read its cron expression."""
    priority: int = 0
    max_attempts: int | None = None
    backoff: Backoff | None = None
    tags: dict[str, str] | None = None
    group: str | None = None


def set_operation(
    name: str, kind: str, payload: object, options: ScheduleOptions, payload_type: Any
) -> SetSchedule:
    """Check a schedule, and encode it. Raises ``InvalidRequestError``."""
    unknown = [option for option in options if option not in ScheduleOptions.__annotations__]
    if unknown:
        raise InvalidRequestError(f"schedule has no option {', '.join(unknown)}")
    cron = options.get("cron") or ""
    if not isinstance(cron, str):
        raise InvalidRequestError(f"cron must be a string, got {type(cron).__name__}")
    cron, timezone = " ".join(cron.split()), options.get("timezone", "UTC")
    every_s = to_seconds(options.get("every_s")) or 0.0
    check_times(cron, timezone, every_s)
    if cron:
        check_cron(cron, timezone)
    spec = JobSpec(
        kind=kind,
        payload=payload,
        priority=options.get("priority", 0),
        max_attempts=options.get("max_attempts"),
        backoff=options.get("backoff"),
        tags=options.get("tags"),
        group=options.get("group"),
    )
    return SetSchedule(
        schedule=name,
        job=new_job(spec, name, payload_type),
        cron=cron,
        timezone=timezone,
        every_s=every_s,
        missed=options.get("missed", "latest"),
        jitter_s=to_seconds(options.get("jitter_s", 0.0)),
        alone=options.get("alone", False),
    )


def read_schedule(row: ScheduleRecord, payload_type: Any) -> Schedule[Any]:
    """Make what a user sees of a row."""
    try:
        next_at = None if row.paused else next_due(row, row.decided_at)
    except NoCronError:
        next_at = None
    what = f"payload of schedule {row.id}"
    return Schedule(
        name=row.id,
        kind=row.kind,
        payload=payloads.decode(row.payload, row.payload_encoding, payload_type, what),
        cron=row.cron or None,
        timezone=row.timezone,
        every_s=row.every_s or None,
        missed=row.missed,
        jitter_s=row.jitter_s,
        alone=row.alone,
        paused=row.paused,
        created_at=row.created_at,
        decided_at=row.decided_at,
        last_job=row.last_job or None,
        next_at=next_at,
        priority=row.priority,
        max_attempts=row.max_attempts,
        backoff=row.backoff,
        tags=row.tags,
        group=row.group or None,
    )
