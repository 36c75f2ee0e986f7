"""``LimitRoom``: how many jobs the limits let start in one claim.

How many jobs of a kind or group are running is counted by the state. What a token bucket lets start
follows from the time at which it will be full; what is taken from it is written when the claim is
sure to have its jobs. Each limit is looked up once in a claim, however many jobs it gets.
"""

from __future__ import annotations

from datetime import datetime
from itertools import chain

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


class _Room:
    """What one kind or group may still start."""

    __slots__ = ("has_rate", "left", "limit", "taken", "target")

    def __init__(self, target: str, limit: LimitRecord | None, left: int) -> None:
        self.target = target
        self.limit = limit
        self.left = left
        self.taken = 0
        """How many jobs were taken in this claim."""
        self.has_rate = limit is not None and limit.rate is not None


class LimitRoom:
    """What may start now, less what was taken of it since."""

    def __init__(self, state: State, now: datetime) -> None:
        """Look at the limits of a state; nothing is changed before ``spend``."""
        self._state = state
        self._now = now
        self._kinds: dict[str, _Room] = {}
        self._groups: dict[str, _Room] = {}
        self._new_buckets = 0
        """How many buckets this claim needs, at most."""
        self._has_limits = bool(state.limits)

    def of_kind(self, kind: str) -> int:
        """How many jobs of a kind may start."""
        return self._of_kind(kind).left if self._has_limits else _ANY

    def of_group(self, group: str) -> int:
        """How many jobs of a group may start."""
        return self._of_group(group).left if self._has_limits and group else _ANY

    def has(self, job: JobRecord) -> bool:
        """Whether a job may start."""
        return self.of_kind(job.kind) > 0 and self.of_group(job.group) > 0

    def take(self, job: JobRecord) -> None:
        """Note that a job starts, for which there is room."""
        if not self._has_limits:
            return
        self._take(self._of_kind(job.kind))
        if job.group:
            self._take(self._of_group(job.group))

    def spend(self) -> None:
        """Take tokens for all jobs that were taken."""
        state = self._state
        for room in chain(self._kinds.values(), self._groups.values()):
            if room.taken and room.limit is not None and room.has_rate:
                known = state.buckets.get(room.target)
                if known is None:
                    self._make_place()
                before = None if known is None else known.full_at
                full_at = room.limit.spent(before, self._now, room.taken)
                seq = state.buckets.next_seq if known is None else known.seq
                bucket = BucketRecord(id=room.target, seq=seq, full_at=full_at)
                state.put_bucket(bucket, room.limit.period)

    def kind_token(self, kind: str) -> datetime | None:
        """When a rate lets jobs of a kind start that lets none start now; None: no rate does."""
        return self._next_token(self._of_kind(kind))

    def group_token(self, group: str) -> datetime | None:
        """When a rate lets jobs of a group start, as ``kind_token``."""
        return self._next_token(self._of_group(group))

    def _next_token(self, room: _Room) -> datetime | None:
        limit = room.limit
        if limit is None or not room.has_rate:
            return None
        known = self._state.buckets.get(room.target)
        full_at = None if known is None else known.full_at
        if room.taken:
            full_at = limit.spent(full_at, self._now, room.taken)
        if full_at is not None:
            return limit.next_token(full_at) if limit.tokens(full_at, self._now) < 1 else None
        first = self._state.buckets.first_full() if self._is_crowded() else None
        return None if first is None else first.full_at

    def _of_kind(self, kind: str) -> _Room:
        if (room := self._kinds.get(kind)) is None:
            target = kind_target(kind)
            limit = self._state.limits.by_id.get(target)
            running = 0 if limit is None else self._state.count(kind, "running")
            room = self._kinds[kind] = _Room(target, limit, self._room(target, limit, running))
        return room

    def _of_group(self, group: str) -> _Room:
        if (room := self._groups.get(group)) is None:
            target, by_id = group_target(group), self._state.limits.by_id
            limit = by_id.get(target) or by_id.get(_EVERY)
            running = self._state.running.in_group.get(group, 0)
            room = self._groups[group] = _Room(target, limit, self._room(target, limit, running))
        return room

    def _take(self, room: _Room) -> None:
        room.left -= 1
        if room.has_rate and not room.taken:
            self._new_buckets += 1
        room.taken += 1

    def _room(self, target: str, limit: LimitRecord | None, running: int) -> int:
        if limit is None:
            return _ANY
        left = _ANY if limit.running is None else limit.running - running
        if limit.rate is not None:
            bucket = self._state.buckets.get(target)
            if bucket is None and self._is_crowded():
                return 0
            full_at = None if bucket is None else bucket.full_at
            left = min(left, limit.tokens(full_at, self._now))
        return left

    def _is_crowded(self) -> bool:
        """Whether there are so many buckets that none can be added before one is full."""
        state = self._state
        if len(state.buckets) + self._new_buckets < state.settings.max_limits:
            return False
        first = state.buckets.first_full()
        return first is not None and first.full_at > self._now

    def _make_place(self) -> None:
        """Forget a bucket that is full, if there are too many."""
        state = self._state
        if len(state.buckets) < state.settings.max_limits:
            return
        first = state.buckets.first_full()
        if first is not None and first.full_at <= self._now:
            state.forget("buckets", first.id)
