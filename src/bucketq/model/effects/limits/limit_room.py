"""``LimitRoom``: how many jobs the limits let start in one claim.

How many jobs of a kind or group are running is counted by the state. What a token bucket lets start
follows from the time at which it will be full; what is taken from it is written when the claim is
sure to have its jobs. Each limit is looked up once in a claim, however many jobs it gets.
"""

from __future__ import annotations

from datetime import datetime

from msgspec import Struct

from bucketq.model.limits import (
    EVERY_GROUP,
    BucketRecord,
    LimitRecord,
    group_target,
    kind_target,
)
from bucketq.model.records import JobRecord
from bucketq.model.state import State

_ANY = 1 << 62
"""More than a queue can hold: there is no limit."""
_EVERY = group_target(EVERY_GROUP)


def limit_of_group(state: State, group: str) -> LimitRecord | None:
    """The limit that holds for a group, its own or that of every group; None: there is none."""
    by_id = state.limits.by_id
    return by_id.get(group_target(group)) or by_id.get(_EVERY)


class Room(Struct, gc=False):
    """What one kind or group may still start in a claim."""

    target: str
    limit: LimitRecord | None
    left: int
    taken: int = 0
    """How many jobs were taken in this claim."""


_UNLIMITED = Room("", None, _ANY)
"""That of kinds and groups without a limit, and of jobs without a group; it never changes."""


class LimitRoom:
    """What may start now, less what was taken of it since."""

    __slots__ = ("_groups", "_kinds", "_limits", "_now", "_spending", "_state")

    def __init__(self, state: State, now: datetime) -> None:
        """Look at the limits of a state; nothing is changed before ``spend``."""
        self._state = state
        self._now = now
        self._limits = state.limits.by_id
        self._kinds: dict[str, Room] = {}
        self._groups: dict[str, Room] = {}
        self._spending: list[Room] = []
        """Those with a rate of which something was taken."""

    def of_kind(self, kind: str) -> Room:
        """What jobs of a kind may start."""
        if not self._limits:
            return _UNLIMITED
        if (room := self._kinds.get(kind)) is None:
            target = kind_target(kind)
            limit = self._limits.get(target)
            running = 0 if limit is None else self._state.count(kind, "running")
            room = self._kinds[kind] = self._room(target, limit, running)
        return room

    def of_group(self, group: str) -> Room:
        """What jobs of a group may start."""
        if not self._limits or not group:
            return _UNLIMITED
        if (room := self._groups.get(group)) is None:
            target = group_target(group)
            limit = self._limits.get(target) or self._limits.get(_EVERY)
            running = self._state.running.in_group.get(group, 0)
            room = self._groups[group] = self._room(target, limit, running)
        return room

    def has(self, job: JobRecord) -> bool:
        """Whether a job may start."""
        return self.of_kind(job.kind).left > 0 and self.of_group(job.group).left > 0

    def take(self, job: JobRecord) -> None:
        """Note that a job starts, for which there is room."""
        for room in (self.of_kind(job.kind), self.of_group(job.group)) if self._limits else ():
            if room.limit is not None:
                if not room.taken and room.limit.rate is not None:
                    self._spending.append(room)
                room.left -= 1
                room.taken += 1

    def spend(self) -> None:
        """Take tokens for all jobs that were taken."""
        state, buckets, most = self._state, self._state.buckets, self._state.settings.max_limits
        for room in self._spending:
            if (limit := room.limit) is None:
                continue
            known = buckets.by_id.get(room.target)
            if known is None and len(buckets.by_id) >= most:
                self._forget_full()
            full_at = limit.spent(None if known is None else known.full_at, self._now, room.taken)
            seq = buckets.next_seq if known is None else known.seq
            bucket = BucketRecord(id=room.target, seq=seq, full_at=full_at)
            state.put_bucket(bucket, limit.period)

    def next_token(self, room: Room) -> datetime | None:
        """When a rate lets jobs start that lets none start now; None: no rate holds them up."""
        limit = room.limit
        if limit is None or limit.rate is None:
            return None
        known = self._state.buckets.get(room.target)
        full_at = None if known is None else known.full_at
        if room.taken:
            full_at = limit.spent(full_at, self._now, room.taken)
        if full_at is not None:
            return limit.next_token(full_at) if limit.tokens(full_at, self._now) < 1 else None
        first = self._state.buckets.first_full() if self._is_crowded() else None
        return None if first is None else first.full_at

    def _room(self, target: str, limit: LimitRecord | None, running: int) -> Room:
        if limit is None:
            return _UNLIMITED
        left = _ANY if limit.running is None else limit.running - running
        if limit.rate is not None:
            bucket = self._state.buckets.by_id.get(target)
            if bucket is None and self._is_crowded():
                return Room(target, limit, 0)
            tokens = limit.rate if bucket is None else limit.tokens(bucket.full_at, self._now)
            left = min(left, tokens)
        return Room(target, limit, left)

    def _is_crowded(self) -> bool:
        """Whether there are so many buckets that none can be added before one is full."""
        state = self._state
        # Each of those that are spent may need a bucket.
        if len(state.buckets.by_id) + len(self._spending) < state.settings.max_limits:
            return False
        first = state.buckets.first_full()
        return first is not None and first.full_at > self._now

    def _forget_full(self) -> None:
        """Forget a bucket that is full, if there is one: there are too many."""
        first = self._state.buckets.first_full()
        if first is not None and first.full_at <= self._now:
            self._state.forget("buckets", first.id)
