"""Unique jobs as their rules define them: every job is looked at, wherever it is."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any

import msgspec
from msgspec import Raw

from bucketq.errors import InvalidRequestError, RejectedError
from bucketq.model.base import NewJob
from bucketq.model.settings import Settings
from tests.unit.model.reference_expiry import expires_at, has_expired
from tests.unit.model.reference_payloads import content

Row = dict[str, Any]


class UniqueReference:
    """The part of the reference that knows unique names."""

    jobs: dict[str, Row]
    keys: dict[str, Row]
    settings: Settings

    def check_unique(self, jobs: list[NewJob]) -> None:
        """Refuse what cannot be pushed."""
        names = [(job.kind, job.unique) for job in jobs]
        if names and self.settings.max_format < 2:
            raise RejectedError
        retention_s = self.settings.key_retention_s
        if len(set(names)) < len(names) or any((job.unique_s or 0) > retention_s for job in jobs):
            raise InvalidRequestError

    def taken(self, job: NewJob, now: datetime) -> str | None:
        """The id of the job that has the unique name of another, or None."""
        if job.unique_s is not None:
            key = self.keys.get(period_key(job))
            period = timedelta(seconds=job.unique_s)
            is_valid = key is not None and now - period <= key["at"] <= now + timedelta(days=1)
            return key["job"] if key is not None and is_valid else None
        scope = ("queued",) if job.unique_scope == "queued" else ("queued", "running")
        found = [
            row
            for row in _named(self.jobs.values(), job)
            if row["status"] in scope and not has_expired(row, now)
        ]
        return max(found, key=lambda row: row["seq"])["id"] if found else None

    def replace(self, jobs: list[NewJob], taken: dict[str, str], now: datetime) -> None:
        """Replace what a push replaces in the jobs that are there, if they wait."""
        for job in jobs:
            row = self.jobs.get(taken[job.id])
            if row is not None and (row["status"], row["unique"]) == ("queued", job.unique):
                self._replace(job, row, now)

    def put_keys(self, wanted: dict[str, NewJob], taken: dict[str, str], now: datetime) -> None:
        """Remember the keys and the periods of a push."""
        for key, job in wanted.items():
            self.keys.pop(key, None)
            there = taken.get(job.id, job.id)
            self.keys[key] = {"job": there, "content": key_content(job), "at": now}

    def _replace(self, job: NewJob, row: Row, now: datetime) -> None:
        if job.replace in ("payload", "both"):
            row.update(payload=bytes(job.payload), payload_encoding=job.payload_encoding)
        if job.replace in ("run_at", "both"):
            row["run_at"] = now + timedelta(seconds=job.delay_s) if job.delay_s else job.run_at
            row["expires_at"] = expires_at(job, now)


def key_content(job: NewJob) -> object:
    """What a push with a known key has to have in common with the first one."""
    plain = msgspec.structs.replace(job, id="", payload=Raw(b"0"))
    return plain, content(job.payload, job.payload_encoding)


def period_key(job: NewJob) -> str:
    """The key under which the period of a unique job is remembered."""
    return f"\x1f{job.kind}\n{job.unique}"


def _named(rows: Iterable[Row], job: NewJob) -> list[Row]:
    return [row for row in rows if (row["kind"], row["unique"]) == (job.kind, job.unique)]
