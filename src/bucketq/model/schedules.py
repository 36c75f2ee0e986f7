"""Schedules, as data: jobs that the queue pushes by itself, by a calendar or in intervals.

A row has what is pushed, when, and the *decided* time: what was due up to then has been pushed, or
will never be. Processes that stay open compute what is due since, by their own clocks, and submit
``Fire``. It pushes the jobs and moves the decided time in one commit, and only if that time is the
one that it was computed from. So a due time fires once, whichever processes try, and however often.

``schedule_changes`` says what each operation does, ``due_times`` when a schedule is due.
"""

from datetime import datetime
from typing import Literal

from msgspec import Raw, Struct

from bucketq.model.base import NewJob, Operation
from bucketq.model.records import Backoff, Encoding

FEATURE = "schedules"
"""What an object with schedules requires of its readers: others would drop what is due."""
MOST_RUNS = 100
"""How many missed runs one commit makes up for; older ones are lost."""

Missed = Literal["skip", "latest", "all"]
"""What happens to runs that were missed: none, the latest, or the last 100 run."""
MISSED: tuple[Missed, ...] = ("latest", "skip", "all")
SetAnswer = Literal["created", "changed", "unchanged"]

Timing = tuple[str, str, float]
"""What due times follow from: ``cron``, ``timezone`` and ``every_s``."""


class ScheduleRecord(
    Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True, forbid_unknown_fields=True
):
    """A schedule as the object holds it."""

    id: str
    """Its name."""
    seq: int
    kind: str
    payload: Raw
    created_at: datetime
    """When its times were set: intervals are counted from here."""
    decided_at: datetime
    """Everything that was due up to this time has been decided."""
    payload_encoding: Encoding | None = None
    priority: int = 0
    max_attempts: int | None = None
    backoff: Backoff | None = None
    tags: dict[str, str] | None = None
    group: str = ""
    cron: str = ""
    """Five fields, as in a crontab; empty: it has an interval."""
    timezone: str = "UTC"
    """Where ``cron`` is the time on the wall."""
    every_s: float = 0.0
    """The interval; 0: it has a cron expression."""
    missed: Missed = "latest"
    jitter_s: float = 0.0
    """A run waits for up to so long, each for another time."""
    alone: bool = False
    """Whether nothing is pushed while the last run is not finished."""
    paused: bool = False
    last_job: str = ""
    """The job of the last run; empty: there was none."""
    last_seq: int = 0

    @property
    def timing(self) -> Timing:
        """What its due times follow from."""
        return (self.cron, self.timezone, self.every_s)


class SetSchedule(Operation, frozen=True):
    """Add a schedule, or change the one of this name. Answers which of it was done.

    It stays paused if it was. If its times are the same, so are those that were decided.
    """

    schedule: str
    job: NewJob
    """What is pushed; its id is ignored."""
    cron: str = ""
    timezone: str = "UTC"
    every_s: float = 0.0
    missed: str = "latest"
    jitter_s: float = 0.0
    alone: bool = False


class RemoveSchedule(Operation, frozen=True):
    """Remove a schedule. Answers whether there was one. Jobs that it pushed stay."""

    schedule: str


class PauseSchedule(Operation, frozen=True):
    """Push no more jobs of a schedule."""

    schedule: str


class ResumeSchedule(Operation, frozen=True):
    """Undo the pause of a schedule. What was due meanwhile never runs."""

    schedule: str


class RunSchedule(Operation, frozen=True):
    """Push the job of a schedule now, paused or not. Answers its id, as a push does."""

    schedule: str
    job: str
    """The id of the job, made by the client."""


class ReadSchedules(Operation, frozen=True):
    """Read the schedules. Answers a ``ScheduleRecord`` for each, in the order of their making."""


class Fire(Operation, frozen=True):
    """Push what was due, if nothing has been decided since it was computed. Answers the ids."""

    schedule: str
    timing: Timing
    created_at: datetime
    after: datetime
    """The decided time that this was computed from."""
    until: datetime
    """The decided time from now on."""
    runs: tuple[datetime, ...] = ()
    """The due times that run; what was due beside these never does."""


AnySchedule = (
    SetSchedule
    | RemoveSchedule
    | PauseSchedule
    | ResumeSchedule
    | RunSchedule
    | ReadSchedules
    | Fire
)
