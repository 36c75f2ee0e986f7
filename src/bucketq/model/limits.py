"""Limits, as data: how many jobs of a kind or a group run at once, and how many start in a period.

A limit is a row of the object, named after what it holds for: ``kind=email``, ``group=acme``, or
``group=*`` for every group that has no limit of its own. Jobs without a group have no limit of a
group. How many run follows from the jobs that are running. How many have started is a token
bucket: it holds ``rate`` tokens at most, a start takes one, and it fills up in ``period_s``. Of a
bucket only the time is kept at which it will be full, and of one that is full nothing at all.

``limit_room`` says what may start, ``limit_changes`` what each operation does.
"""

from datetime import datetime, timedelta
from functools import lru_cache

from msgspec import Struct

from bucketq.model.base import Operation

FEATURE = "limits"
"""What an object with limits requires of its readers: others would start too many jobs."""
GROUPS = "groups"
"""What an object requires in which a job has a group: others would not let groups take turns."""
EVERY_GROUP = "*"
"""The name that stands for every group that has no limit of its own."""

_MICROSECOND = timedelta(microseconds=1)


def kind_target(kind: str) -> str:
    """Return the name of the limit of a kind."""
    return f"kind={kind}"


def group_target(group: str) -> str:
    """Return the name of the limit of a group."""
    return f"group={group}"


class LimitRecord(
    Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True, forbid_unknown_fields=True
):
    """A limit as the object holds it."""

    id: str
    """What it holds for."""
    seq: int
    running: int | None = None
    """How many jobs may run at once; None: any number."""
    rate: int | None = None
    """How many jobs may start in a period, and at once if none has started for as long."""
    period_s: float | None = None

    def tokens(self, full_at: datetime | None, now: datetime) -> int:
        """How many jobs its rate lets start now, with a bucket that will be full at a time."""
        if self.rate is None:
            raise AssertionError(f"the limit {self.id} has no rate")
        if full_at is None or full_at <= now:
            return self.rate
        missing = (full_at - now) // _MICROSECOND
        # Rounded up: a token counts when all of it is there.
        return self.rate + (-missing * self.rate) // self._period

    def spent(self, full_at: datetime | None, now: datetime, count: int) -> datetime:
        """When a bucket will be full if so many jobs start now."""
        base = now if full_at is None or full_at < now else full_at
        return base + _cost(self.period_s, self.rate or 1, count)

    def next_token(self, full_at: datetime) -> datetime:
        """When a bucket that is empty has a token."""
        rate = self.rate or 1
        return full_at - timedelta(microseconds=(rate - 1) * self._period // rate)

    @property
    def period(self) -> timedelta:
        """How long it takes to fill the bucket."""
        return _periods(self.period_s)[0]

    @property
    def _period(self) -> int:
        """In microseconds."""
        return _periods(self.period_s)[1]


@lru_cache(maxsize=1024)
def _periods(period_s: float | None) -> tuple[timedelta, int]:
    """Return a period, and its microseconds; cached, because every start of a job needs both."""
    return timedelta(seconds=period_s or 0.0), round((period_s or 0.0) * 1_000_000)


@lru_cache(maxsize=1024)
def _cost(period_s: float | None, rate: int, count: int) -> timedelta:
    """How long it takes until so many tokens are there again; cached, like ``_periods``."""
    return timedelta(microseconds=count * _periods(period_s)[1] // rate)


class BucketRecord(Struct, frozen=True, gc=False, kw_only=True, forbid_unknown_fields=True):
    """The token bucket of a kind or a group, which is not full."""

    id: str
    """``kind=…`` or ``group=…``, never that of every group."""
    seq: int
    full_at: datetime
    """When it is full, if nothing starts until then."""


class SetLimit(Operation, frozen=True):
    """Set the limit of a kind or a group. Answers ``created``, ``changed`` or ``unchanged``.

    It replaces all of the limit that is there.
    """

    target: str
    """``kind=…``, ``group=…`` or ``group=*``."""
    running: int | None = None
    rate: int | None = None
    period_s: float | None = None


class RemoveLimit(Operation, frozen=True):
    """Remove the limit of a kind or a group. Answers whether there was one."""

    target: str


class ReadLimits(Operation, frozen=True):
    """Read the limits. Answers a ``LimitInfo`` for each, in the order of their making.

    With a kind or a group, only the limits that hold for such jobs; that of every group is counted
    for this group then.
    """

    kind: str = ""
    group: str = ""


class LimitInfo(Struct, frozen=True, kw_only=True):
    """A limit at the moment at which it was read."""

    target: str
    """What it holds for: ``kind=…``, ``group=…``, or ``group=*`` for every other group."""
    running: int | None = None
    """How many jobs may run at once; None: any number."""
    rate: int | None = None
    """How many jobs may start in ``period_s``; None: any number."""
    period_s: float | None = None
    active: int | None = None
    """How many jobs run that it holds for; None for every group, of which each is counted apart."""
    tokens: int | None = None
    """How many jobs its rate lets start at this moment; None: it has none, or is that of every
    group."""

    @property
    def is_reached(self) -> bool:
        """Whether no more jobs start at this moment."""
        is_busy = self.running is not None and (self.active or 0) >= self.running
        return self.active is not None and (is_busy or self.tokens == 0)


AnyLimit = SetLimit | RemoveLimit | ReadLimits
