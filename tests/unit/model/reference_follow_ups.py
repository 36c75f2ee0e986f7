"""Jobs that a completion pushes, as their rules define them: one after the other."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

from bucketq.errors import InvalidRequestError
from bucketq.model.base import NewJob
from bucketq.model.settings import Settings
from tests.unit.model.reference_expiry import check_expiry
from tests.unit.model.reference_payloads import PayloadReference
from tests.unit.model.reference_unique import UniqueReference, period_key

Row = dict[str, Any]


class FollowUpReference(UniqueReference, PayloadReference):
    """The part of the reference that adds jobs with completions."""

    jobs: dict[str, Row]
    keys: dict[str, Row]
    settings: Settings
    pushed: int
    _add: Callable[[NewJob, datetime, int], None]
    keys_in_the_way: Callable[..., list[str]]

    def check_follow_ups(self, jobs: tuple[NewJob, ...]) -> None:
        """Refuse what no completion may push."""
        for names in (
            [job.id for job in jobs],
            [job.key for job in jobs if job.key is not None],
            [(job.kind, job.unique) for job in jobs if job.unique is not None],
        ):
            if len(set(names)) < len(names):
                raise InvalidRequestError
        for job in jobs:
            check_expiry(job)
            if (job.unique_s or 0) > self.settings.key_retention_s:
                raise InvalidRequestError

    def push_follow_ups(self, jobs: tuple[NewJob, ...], now: datetime) -> None:
        """Add the jobs of a completion whose ids, keys and names are not taken."""
        numbers = range(self.pushed + 1, self.pushed + 1 + len(jobs))
        there = {job.id for job in jobs if self._key_of(job, now) or job.id in self.jobs}
        unknown = [job for job in jobs if job.id not in there]
        taken = {job.id: found for job in unknown if (found := self._taken(job, now)) is not None}
        fresh = [job for job in unknown if job.id not in taken]
        wanted = {job.key: job for job in unknown if job.key is not None}
        wanted |= {period_key(job): job for job in fresh if job.unique_s is not None}
        for key in self.keys_in_the_way(set(wanted), now, must_fit=False):
            del self.keys[key]
        for number, job in zip(numbers, jobs, strict=True):
            if job in fresh:
                self._add(job, now, number)
        self.pushed += len(jobs) if fresh else 0
        self.replace([job for job in unknown if job.id in taken], taken, now)
        self.put_keys(wanted, taken, now)

    def _taken(self, job: NewJob, now: datetime) -> str | None:
        return None if job.unique is None else self.taken(job, now)

    def _key_of(self, job: NewJob, now: datetime) -> bool:
        key = self.keys.get(job.key) if job.key is not None else None
        retention = timedelta(seconds=self.settings.key_retention_s)
        return key is not None and now - retention <= key["at"] <= now + timedelta(days=1)
