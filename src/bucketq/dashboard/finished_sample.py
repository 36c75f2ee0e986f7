"""A sample of finished jobs: how long they waited and ran, and whether their attempts failed.

The archive of a day can have a hundred thousand files. A look at it reads few of them: it lists
the hours of its range, one request for each 1,000 files, and reads at most ``MOST_FILES``, one
of so many in each hour. Every job that was read stands for as many as were left out. Files never
change, so what was read is kept, and the next look reads only what is new.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

from msgspec import Struct

from bucketq.archive.archive_layout import ArchiveFile, Layout, hours_between
from bucketq.archive.reader import ArchiveReader
from bucketq.model.indexes.finished_jobs import finished_at
from bucketq.model.records import JobRecord
from bucketq.store.base import ObjectStore

MOST_FILES = 96
"""How many files one look reads: some 20,000 jobs, half a second from a cloud."""
_FILE_JOBS = 100
"""How many jobs of a file are kept: 20 KB, and enough for percentiles."""
_KEPT_FILES = 600
"""How many files are remembered of each queue: 12 MB."""
_KEPT_HOURS = 50
_SETTLED = timedelta(hours=1)
"""An hour that ended so long ago is listed once: nearly nothing is added to it."""
_AT_ONCE = 8
"""Requests at once: each is mostly latency."""


class FinishedJob(Struct, frozen=True, gc=False):
    """What is counted of a job that has ended, or is dead."""

    kind: str
    at_s: float
    """When it ended, in seconds since 1970."""
    is_completed: bool
    is_dead: bool
    wait_s: float | None
    """From the time it was due to its claim; None: it was tried more than once, or never."""
    run_s: float | None
    """How long its last attempt ran."""
    attempts: int
    failed: int
    """How many of the attempts failed."""
    weight: float = 1.0
    """How many jobs it stands for."""


class SampleRead(NamedTuple):
    """What a look at the archive found, and what it took."""

    jobs: list[FinishedJob]
    files: int
    """How many files the hours have."""
    read_files: int
    """How many of them are in the sample."""


class _Hour(NamedTuple):
    files: int
    spread: list[ArchiveFile]
    """Every so many of its files, at most ``MOST_FILES``."""
    step: int

    def every(self, step: int) -> list[ArchiveFile]:
        """Return one of ``step`` files, or as many as are known."""
        return self.spread[:: max(1, step // self.step)]


class ArchiveSample:
    """Samples the archive of one queue, and remembers what it has read."""

    def __init__(self) -> None:
        self._files: OrderedDict[str, Sequence[FinishedJob]] = OrderedDict()
        self._hours: OrderedDict[datetime, _Hour] = OrderedDict()

    async def read(
        self, store: ObjectStore, layout: Layout, since: datetime, now: datetime
    ) -> SampleRead:
        """Return a sample of the jobs that ended since a time. What is compacted is not in it."""
        reader, turns = ArchiveReader(store, layout), asyncio.Semaphore(_AT_ONCE)

        async def listed(hour: datetime) -> _Hour:
            async with turns:
                return await self._listed(reader, hour, now)

        async def sampled(archive_file: ArchiveFile) -> Sequence[FinishedJob]:
            async with turns:
                return await self._sampled(reader, archive_file)

        hours = await asyncio.gather(*map(listed, hours_between(since, now)))
        # A power of two: as time goes on, files that were chosen stay so, and are not read again.
        step = 1
        while sum(len(hour.every(step)) for hour in hours) > max(MOST_FILES, len(hours)):
            step *= 2
        jobs, since_s, read_files = list[FinishedJob](), since.timestamp(), 0
        for hour in hours:
            chosen = hour.every(step)
            weight = hour.files / max(1, len(chosen))
            read_files += len(chosen)
            for some in await asyncio.gather(*map(sampled, chosen)):
                jobs += [_weighted(job, weight) for job in some if job.at_s >= since_s]
        return SampleRead(jobs, sum(hour.files for hour in hours), read_files)

    async def _listed(self, reader: ArchiveReader, hour: datetime, now: datetime) -> _Hour:
        known = self._hours.get(hour)
        if known is not None:
            return known
        files = await reader.archive_files(hour)
        step = 1
        while len(files) > MOST_FILES * step:
            step *= 2
        found = _Hour(len(files), files[::step], step)
        if now - hour > _SETTLED + timedelta(hours=1):
            self._hours[hour] = found
            while len(self._hours) > _KEPT_HOURS:
                self._hours.popitem(last=False)
        return found

    async def _sampled(
        self, reader: ArchiveReader, archive_file: ArchiveFile
    ) -> Sequence[FinishedJob]:
        known = self._files.get(archive_file.key)
        if known is not None:
            self._files.move_to_end(archive_file.key)
            return known
        jobs = await reader.read(archive_file) or []
        step = -(-len(jobs) // _FILE_JOBS) or 1
        chosen = jobs[::step]
        found = measure(chosen, len(jobs) / max(1, len(chosen)))
        self._files[archive_file.key] = found
        while len(self._files) > _KEPT_FILES:
            self._files.popitem(last=False)
        return found


def measure(jobs: Iterable[JobRecord], weight: float = 1.0) -> list[FinishedJob]:
    """Return what is counted of some jobs that have ended."""
    return [_measured(job, weight) for job in jobs]


def _measured(job: JobRecord, weight: float) -> FinishedJob:
    ended = finished_at(job)
    wait_s = run_s = None
    if job.claimed_at is not None:
        run_s = max(0.0, (ended - job.claimed_at).total_seconds())
        if job.attempt == 1:
            due = max(job.pushed_at, job.run_at or job.pushed_at)
            wait_s = max(0.0, (job.claimed_at - due).total_seconds())
    is_completed = job.outcome == "completed"
    failed = job.failures + job.lost_leases
    return FinishedJob(
        kind=job.kind,
        at_s=ended.timestamp(),
        is_completed=is_completed,
        is_dead=job.status == "dead" or job.outcome == "dead",
        wait_s=wait_s,
        run_s=run_s if is_completed or failed else None,
        attempts=max(job.attempt, failed),
        failed=failed,
        weight=weight,
    )


def _weighted(job: FinishedJob, times: float) -> FinishedJob:
    if times == 1:
        return job
    return FinishedJob(
        job.kind,
        job.at_s,
        job.is_completed,
        job.is_dead,
        job.wait_s,
        job.run_s,
        job.attempts,
        job.failed,
        job.weight * times,
    )
