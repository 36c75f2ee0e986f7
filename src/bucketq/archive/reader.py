"""Reading a range of time from the archive: only the hours in it, each job once.

Finished jobs are in archive files, and after a compaction in the Parquet files of a table. A
compaction publishes its files and only then deletes the archive files that they replace. So the
archive files of a day are listed first and the table is read after that: an archive file that was
not listed, or is gone when it is read, is in the table by then. A job that is in both is read once.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection, Iterator, Sequence
from datetime import datetime, timedelta
from itertools import groupby

import msgspec

from bucketq.archive.archive_layout import ArchiveFile, Layout, hours_between
from bucketq.archive.archive_lines import CopyKey, copy_key, decode_line, jobs_in_lines
from bucketq.archive.compacted import CompactedReader
from bucketq.errors import InvalidRequestError
from bucketq.model import check
from bucketq.model.indexes.finished_jobs import finished_at
from bucketq.model.records import JobRecord
from bucketq.store.base import ObjectMissingError, ObjectStore

_AT_ONCE = 8  # Archive files read at once: they are small, so a read is mostly latency.
_TOGETHER = 5000
"""How many jobs of the table are yielded at a time, to bound memory."""
_LONGEST_RANGE = timedelta(days=366 * 20)  # Longer is a mistake: every day costs a listing.
_HOUR = timedelta(hours=1)
_DAY_HOURS = 24


class ArchiveReader:
    """Reads the archive of one queue."""

    def __init__(self, store: ObjectStore, layout: Layout) -> None:
        self._store = store
        self._layout = layout
        self._compacted = CompactedReader(store, layout)

    async def jobs(
        self, since: datetime, until: datetime, kinds: Collection[str] | None = None
    ) -> AsyncIterator[JobRecord]:
        """Yield the jobs that finished from ``since`` up to but not including ``until``.

        Jobs are yielded hour by hour; within an hour those that are not compacted come first, in
        the order in which they were archived. A job that a crash left in two archive files is
        yielded once.
        """
        async for some in self.batches(since, until, kinds):
            for job in some:
                yield job

    async def batches(
        self, since: datetime, until: datetime, kinds: Collection[str] | None = None
    ) -> AsyncIterator[Sequence[JobRecord]]:
        """Yield the same jobs in batches."""
        check.moment(since, "since")
        check.moment(until, "until")
        if until - since > _LONGEST_RANGE:
            raise InvalidRequestError(
                f"a range of {(until - since).days} days is too long: read it in parts"
            )
        for hours in _by_day(since, until):
            listed = await self._listed(hours)
            await self._compacted.refresh()
            for hour, archive_files in listed.items():
                first, end = max(since, hour), min(until, hour + _HOUR)
                async for some in self._jobs_of(archive_files, first, end, kinds):
                    yield some

    async def find(
        self, job_id: str, since: datetime, until: datetime, *, newest: bool = False
    ) -> JobRecord | None:
        """Return a job that finished in a range of time, or None.

        The search begins with the first hour, or with the last one for the ``newest`` of several
        jobs with the same id.
        """
        days = list(_by_day(since, until))
        for hours in reversed(days) if newest else days:
            listed = await self._listed(hours)
            await self._compacted.refresh()
            for hour in reversed(hours) if newest else hours:
                found = [job async for job in self._copies(job_id, hour, listed[hour])]
                if found:
                    return max(found, key=lambda job: (finished_at(job), job.seq))
        return None

    async def find_in(self, job_id: str, names: Sequence[str]) -> JobRecord | None:
        """Return a job that is in one of a few archive files, or None.

        What was compacted meanwhile is looked for in the table.
        """
        parsed = (self._layout.parse(self._layout.root + name) for name in names)
        by_hour: dict[datetime, list[ArchiveFile]] = {}
        for archive_file in parsed:
            if archive_file is not None:
                by_hour.setdefault(archive_file.hour, []).append(archive_file)
        for hour, files in by_hour.items():
            bodies = await asyncio.gather(*map(self._body, files))
            found = [job for body in bodies for job in _named(job_id, body or b"")]
            if not found and None in bodies:
                await self._compacted.refresh()
                found = [
                    job
                    async for job in self._compacted.jobs(hour, hour + _HOUR)
                    if job.id == job_id
                ]
            if found:
                return max(found, key=lambda job: (finished_at(job), job.seq))
        return None

    async def _copies(
        self, job_id: str, hour: datetime, archive_files: list[ArchiveFile]
    ) -> AsyncIterator[JobRecord]:
        """Yield the jobs of an hour that have an id; only lines that name it are decoded."""
        is_some_gone = False
        for start in range(0, len(archive_files), _AT_ONCE):
            some = archive_files[start : start + _AT_ONCE]
            for body in await asyncio.gather(*map(self._body, some)):
                is_some_gone = is_some_gone or body is None
                for job in _named(job_id, body or b""):
                    yield job
        if is_some_gone:
            await self._compacted.refresh()
        async for job in self._compacted.jobs(hour, hour + _HOUR):
            if job.id == job_id:
                yield job

    async def archive_files(self, hour: datetime) -> list[ArchiveFile]:
        """Return the archive files of an hour, in the order of their versions."""
        return [each async for each in self._archive_files(self._layout.hour_prefix(hour))]

    async def _listed(self, hours: list[datetime]) -> dict[datetime, list[ArchiveFile]]:
        """Return the archive files of some hours of one day. A whole day is listed at once."""
        if len(hours) < _DAY_HOURS:
            return {hour: await self.archive_files(hour) for hour in hours}
        found: dict[datetime, list[ArchiveFile]] = {hour: [] for hour in hours}
        async for archive_file in self._archive_files(self._layout.day_prefix(hours[0])):
            found[archive_file.hour].append(archive_file)
        return found

    async def _archive_files(self, prefix: str) -> AsyncIterator[ArchiveFile]:
        async for info in self._store.list(prefix):
            archive_file = self._layout.parse(info.key)
            if archive_file is not None:
                yield archive_file

    async def _jobs_of(
        self,
        archive_files: list[ArchiveFile],
        since: datetime,
        until: datetime,
        kinds: Collection[str] | None,
    ) -> AsyncIterator[Sequence[JobRecord]]:
        """Yield the jobs of a range of time within an hour."""
        seen: set[CopyKey] = set()
        is_some_gone = False
        for start in range(0, len(archive_files), _AT_ONCE):
            some = archive_files[start : start + _AT_ONCE]
            for jobs in await asyncio.gather(*map(self.read, some)):
                is_some_gone = is_some_gone or jobs is None
                fresh = _unseen(jobs or (), seen)
                yield [
                    job
                    for job in fresh
                    if job.finished_at is not None
                    and since <= job.finished_at < until
                    and (kinds is None or job.kind in kinds)
                ]
        if is_some_gone:
            await self._compacted.refresh()
        together: list[JobRecord] = []
        async for job in self._compacted.jobs(since, until, kinds):
            together.append(job)
            if len(together) == _TOGETHER:
                yield _unseen(together, seen)
                together = []
        yield _unseen(together, seen)

    async def read(self, archive_file: ArchiveFile) -> list[JobRecord] | None:
        """Return the jobs of one archive file, or None if it was deleted meanwhile."""
        body = await self._body(archive_file)
        return None if body is None else jobs_in_lines(body, archive_file.key)

    async def _body(self, archive_file: ArchiveFile) -> bytes | None:
        try:
            return (await self._store.get(archive_file.key)).body
        except ObjectMissingError:
            return None


def _named(job_id: str, body: bytes) -> list[JobRecord]:
    """Return the jobs of an archive file that have an id; only lines that name it are decoded."""
    name = msgspec.json.encode(job_id)
    jobs = [decode_line(line) for line in body.splitlines() if name in line]
    return [job for job in jobs if job.id == job_id]


def _unseen(jobs: Sequence[JobRecord], seen: set[CopyKey]) -> Sequence[JobRecord]:
    """Return the jobs that were not seen before, and add them to ``seen``."""
    by_key = {copy_key(job): job for job in jobs}
    if len(by_key) < len(jobs) or not seen.isdisjoint(by_key):
        jobs = [job for key, job in by_key.items() if key not in seen]
    seen.update(by_key)
    return jobs


def _by_day(since: datetime, until: datetime) -> Iterator[list[datetime]]:
    for _, hours in groupby(hours_between(since, until), key=lambda hour: hour.date()):
        yield list(hours)
