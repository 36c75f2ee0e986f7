"""Groups that take turns, and limits, written down slowly and obviously."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from fractions import Fraction
from typing import Any

from bucketq.errors import RejectedError
from bucketq.model.limits import LimitInfo, ReadLimits, RemoveLimit, SetLimit
from bucketq.model.records import JobRecord
from bucketq.model.settings import Settings

Row = dict[str, Any]
Seen = Callable[[str], JobRecord]


class TurnReference:
    """Which jobs a claim takes, and which limits it meets."""

    jobs: dict[str, Row]
    settings: Settings

    def __init__(self) -> None:
        """Begin without limits."""
        self.limits: dict[str, SetLimit] = {}
        self.has_groups = False
        """Whether a job has had a group: before that no turns are noted."""
        self.full_at: dict[str, datetime] = {}
        """When each token bucket will be full."""
        self.served: dict[tuple[frozenset[str], int], str] = {}
        """The group that was served last, by kinds of the claim and priority."""

    def limit_content(self) -> tuple[object, ...]:
        """All of it, as values."""
        return (dict(self.limits), dict(self.full_at), list(self.served.items()))

    def take_turns(
        self, due: Iterable[Row], kinds: Iterable[str], most: int, now: datetime
    ) -> list[Row]:
        """Return the jobs that a claim takes, in their order; nothing is changed."""
        left, taken = list(due), list[Row]()
        served = dict(self.served)
        while len(taken) < most:
            free = [row for row in left if self.has_room(row, taken, now)]
            if not free:
                break
            priority = min(row["priority"] for row in free)
            urgent = [row for row in free if row["priority"] == priority]
            last = served.get((frozenset(kinds), priority))
            groups = sorted({row["group"] for row in urgent})
            later = [group for group in groups if last is not None and group > last]
            group = (later or groups)[0]
            row = min((row for row in urgent if row["group"] == group), key=lambda row: row["seq"])
            served[frozenset(kinds), priority] = group
            left.remove(row)
            taken.append(row)
        return taken

    def note_turns(self, taken: Iterable[Row], kinds: Iterable[str], now: datetime) -> None:
        """Note whose turns there were, and take tokens."""
        rows = list(taken)
        for row in rows if self.has_groups else ():
            self.served[frozenset(kinds), row["priority"]] = row["group"]
        self.spend(rows, now)

    def spend(self, taken: Iterable[Row], now: datetime) -> None:
        """Take tokens for jobs that start."""
        for row in taken:
            for target in self._targets(row):
                limit = self._limit(target)
                if limit is not None and limit.rate is not None:
                    base = max(self.full_at.get(target, now), now)
                    self.full_at[target] = base + self._period(limit) / limit.rate

    def has_room(self, row: Row, taken: list[Row], now: datetime) -> bool:
        """Whether a job may start after others."""
        for target in self._targets(row):
            limit = self._limit(target)
            if limit is None:
                continue
            before = [other for other in taken if target in self._targets(other)]
            running = [
                other
                for other in self.jobs.values()
                if other["status"] == "running" and target in self._targets(other)
            ]
            if limit.running is not None and len(running) + len(before) >= limit.running:
                return False
            if limit.rate is not None and self._tokens(target, limit, now) - len(before) < 1:
                return False
        return True

    def mend_buckets(self, now: datetime) -> int:
        """Forget buckets that are full for everyone, and mend those that are full too late."""
        margin, count = timedelta(seconds=self.settings.clock_margin_s), 0
        for target, full_at in list(self.full_at.items()):
            limit = self._limit(target)
            assert limit is not None
            if full_at < now - margin:
                del self.full_at[target]
                count += 1
            elif full_at > now + self._period(limit) + margin:
                self.full_at[target] = now + self._period(limit)
                count += 1
        return count

    def _setlimit(self, operation: SetLimit, now: datetime, _seen: Seen) -> str:
        if operation.target not in self.limits and len(self.limits) >= self.settings.max_limits:
            raise RejectedError
        known = self.limits.get(operation.target)
        if known == operation:
            return "unchanged"
        self._change({**self.limits, operation.target: operation}, now)
        return "created" if known is None else "changed"

    def _removelimit(self, operation: RemoveLimit, now: datetime, _seen: Seen) -> bool:
        if operation.target not in self.limits:
            return False
        kept = {name: row for name, row in self.limits.items() if name != operation.target}
        self._change(kept, now)
        return True

    def _readlimits(
        self, _operation: ReadLimits, now: datetime, _seen: Seen
    ) -> tuple[LimitInfo, ...]:
        found = []
        for target, limit in self.limits.items():
            active = tokens = None
            if target != "group=*":
                rows = [row for row in self.jobs.values() if row["status"] == "running"]
                active = sum(target in self._targets(row) for row in rows)
                if limit.rate is not None:
                    tokens = max(0, self._tokens(target, limit, now))
            shown = LimitInfo(
                target=target,
                running=limit.running,
                rate=limit.rate,
                period_s=limit.period_s,
                active=active,
                tokens=tokens,
            )
            found.append(shown)
        return tuple(found)

    def _change(self, limits: dict[str, SetLimit], now: datetime) -> None:
        before = {target: self._limit(target) for target in self.full_at}
        self.limits = limits
        for target, old in before.items():
            new = self._limit(target)
            assert old is not None
            if new is None or new.rate is None:
                del self.full_at[target]
            elif new.period_s != old.period_s:
                missing = max(timedelta(0), self.full_at[target] - now) / self._period(old)
                self.full_at[target] = now + missing * self._period(new)

    def _targets(self, row: Row) -> list[str]:
        groups = [f"group={row['group']}"] if row["group"] else []
        return [f"kind={row['kind']}", *groups]

    def _limit(self, target: str) -> SetLimit | None:
        default = "group=*" if target.startswith("group=") else ""
        return self.limits.get(target) or self.limits.get(default)

    def _period(self, limit: SetLimit) -> timedelta:
        return timedelta(seconds=limit.period_s or 0.0)

    def _tokens(self, target: str, limit: SetLimit, now: datetime) -> int:
        missing_s = Fraction((self.full_at.get(target, now) - now) / timedelta(microseconds=1))
        missing = max(Fraction(0), missing_s) / Fraction(limit.period_s or 0.0) / 1_000_000
        return int((limit.rate or 0) * (1 - missing) // 1)
