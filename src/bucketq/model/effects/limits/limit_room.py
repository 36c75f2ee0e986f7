"""``LimitRoom``: how many jobs the limits let start in one claim.

How many jobs of a kind or group are running is counted by the state. What a token bucket lets start
follows from the time at which it will be full; what is taken from it is written when the claim is
sure to have its jobs.
"""

from __future__ import annotations

from datetime import datetime

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


def limit_of_group(state: State, group: str) -> LimitRecord | None:
    """The limit that holds for a group, its own or that of every group; None: there is none."""
    by_id = state.limits.by_id
    return by_id.get(group_target(group)) or by_id.get(group_target(EVERY_GROUP))


class LimitRoom:
    """What may start now, less what was taken of it since."""

    def __init__(self, state: State, now: datetime) -> None:
        """Look at the limits of a state; nothing is changed before ``spend``."""
        self._state = state
        self._now = now
        self._left: dict[str, int] = {}
        """How many jobs may still start, by target, as far as it was asked for."""
        self._taken: dict[str, tuple[LimitRecord, int]] = {}
        """How many jobs were taken under limits that have a rate, by target."""
        self._has_limits = bool(state.limits)

    def of_kind(self, kind: str) -> int:
        """How many jobs of a kind may start."""
        if not self._has_limits:
            return _ANY
        target = kind_target(kind)
        if (left := self._left.get(target)) is None:
            limit = self._state.limits.by_id.get(target)
            running = self._state.count(kind, "running") if limit is not None else 0
            left = self._left[target] = self._room(target, limit, running)
        return left

    def of_group(self, group: str) -> int:
        """How many jobs of a group may start."""
        if not self._has_limits or not group:
            return _ANY
        target = group_target(group)
        if (left := self._left.get(target)) is None:
            running = self._state.running.in_group.get(group, 0)
            limit = limit_of_group(self._state, group)
            left = self._left[target] = self._room(target, limit, running)
        return left

    def has(self, job: JobRecord) -> bool:
        """Whether a job may start."""
        return self.of_kind(job.kind) > 0 and self.of_group(job.group) > 0

    def take(self, job: JobRecord) -> None:
        """Note that a job starts, for which there is room."""
        if not self._has_limits:
            return
        self._take(kind_target(job.kind), self._state.limits.by_id.get(kind_target(job.kind)))
        if job.group:
            self._take(group_target(job.group), limit_of_group(self._state, job.group))

    def spend(self) -> None:
        """Take tokens for all jobs that were taken."""
        state = self._state
        for target, (limit, count) in self._taken.items():
            known = state.buckets.get(target)
            if known is None:
                self._make_place()
            full_at = limit.spent(None if known is None else known.full_at, self._now, count)
            seq = state.buckets.next_seq if known is None else known.seq
            state.put_bucket(BucketRecord(id=target, seq=seq, full_at=full_at), limit.period)

    def next_token(self, target: str, limit: LimitRecord | None) -> datetime | None:
        """When a rate that lets nothing start now will; None: it is not the rate."""
        if limit is None or limit.rate is None:
            return None
        known = self._state.buckets.get(target)
        full_at = None if known is None else known.full_at
        if target in self._taken:
            full_at = limit.spent(full_at, self._now, self._taken[target][1])
        if full_at is not None:
            return limit.next_token(full_at) if limit.tokens(full_at, self._now) < 1 else None
        first = self._state.buckets.first_full() if self._is_crowded() else None
        return None if first is None else first.full_at

    def _take(self, target: str, limit: LimitRecord | None) -> None:
        if target in self._left:
            self._left[target] -= 1
        if limit is not None and limit.rate is not None:
            self._taken[target] = (limit, self._taken.get(target, (limit, 0))[1] + 1)

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
        if len(state.buckets) + len(self._taken) < state.settings.max_limits:
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
