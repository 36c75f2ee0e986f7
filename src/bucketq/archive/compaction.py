"""Compaction: many small archive files become a few Parquet files; no job is lost or doubled.

It works in rounds. A round is planned from the archive files that exist, its parts are written by
Spark tasks or by one process, and then the files of all parts are published in one commit of the
table's log. Only published files are visible, and only after that the archive files that they
replace are deleted. A kill leaves Parquet files that no reader sees, or archive files whose jobs
are in the table as well; the next run deletes both.

No list of compacted archive files is kept. A job is identified by its id, its ``seq`` and when it
finished: a job that is in the table already is skipped, whether its archive file came late, was
written twice, or was compacted by a run that could not delete it any more.

If two runs compete, the second to publish finds a version that it has not read. If that version
added jobs of the same hours, the round is dropped with its files and planned again.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from datetime import datetime, timedelta
from functools import partial
from typing import TypeVar

from msgspec import Struct

from bucketq.archive.archive_layout import Layout
from bucketq.archive.archive_lines import CopyKey, copy_key, lines_in
from bucketq.archive.compacted import file_name, open_log
from bucketq.archive.delta import DeltaLog
from bucketq.archive.delta_actions import AddFile, added
from bucketq.archive.parquet_format import (
    GROUP_ROWS,
    ArchivedRow,
    Group,
    copies_in,
    file_of,
    group_of,
)
from bucketq.clock import Clock, new_id
from bucketq.errors import UnavailableError
from bucketq.store.base import ObjectMissingError, ObjectStore

T = TypeVar("T")

SETTLED_AFTER = timedelta(hours=1)
"""How long an hour must be over before it is compacted: later files would need another round."""
LONGEST_ROUND = timedelta(hours=6)
"""A longer round is not published, because its files may have been swept as leftovers."""

PART_BYTES = 64 << 20  # Bounds the memory of a task.
_ROUND_BYTES = 1 << 30  # Bounds the work that is lost with a round.
_FILE_ROWS = 500_000  # Bounds a file, which is encoded in memory.
_AT_ONCE = 8  # Archive files are small, so a request is mostly latency.
_ATTEMPTS = 5  # With pauses of 0.2, 0.4, 0.8 and 1.6 s: three seconds in all.
_PAUSE_S = 0.2
_HOUR = timedelta(hours=1)


class HourWork(Struct, frozen=True):
    """The archive files of an hour, and the files of the table that may hold some of its jobs."""

    hour: datetime
    archive_files: list[str]
    files: list[str]


class CompactionPart(Struct, frozen=True):
    """What one task writes: whole hours of one day, so that copies of a job meet in one task."""

    run: str
    hours: list[HourWork]
    size_bytes: int


class Written(Struct, frozen=True):
    """What a task has written."""

    files: list[AddFile]
    covered: list[str]
    """The archive files whose jobs are all in ``files`` or were in the table before."""
    jobs: int
    repeated: int
    """How many jobs were in the table already, or twice in archive files."""


class Round(Struct, frozen=True):
    """What is published in one commit."""

    began_at: datetime
    version: int
    """The version of the table when the round was planned."""
    parts: list[CompactionPart]

    @property
    def archive_files(self) -> int:
        """How many archive files it compacts."""
        return sum(len(work.archive_files) for part in self.parts for work in part.hours)


class Compactor:
    """Plans rounds and publishes them; ``write_part`` writes the files."""

    def __init__(self, store: ObjectStore, layout: Layout, clock: Clock) -> None:
        self._store = store
        self._layout = layout
        self._clock = clock
        self._log: DeltaLog = open_log(store, layout)

    async def archive_files(
        self, since: datetime | None, until: datetime | None, settled_after: timedelta
    ) -> int:
        """Return how many archive files there are to compact, to show progress."""
        return sum([1 async for _ in self._candidates(since, until, settled_after)])

    async def plan(
        self,
        since: datetime | None = None,
        until: datetime | None = None,
        settled_after: timedelta = SETTLED_AFTER,
    ) -> Round | None:
        """Plan the next round; return None if nothing is left to do.

        The table is read before the archive files are listed, so that a run that ends in between
        is noticed when the round is published.
        """
        began_at = self._clock.now()
        await patiently(self._log.refresh)
        hours: dict[datetime, tuple[list[str], int]] = {}
        total_bytes = 0
        async for hour, key, size_bytes in self._candidates(since, until, settled_after):
            if hour not in hours and total_bytes >= _ROUND_BYTES:
                break
            keys, before_bytes = hours.get(hour, ([], 0))
            keys.append(key)
            hours[hour] = (keys, before_bytes + size_bytes)
            total_bytes += size_bytes
        if not hours:
            return None
        works = [
            (HourWork(hour, keys, self._files_of(hour)), size_bytes)
            for hour, (keys, size_bytes) in hours.items()
        ]
        return Round(began_at, self._log.version, list(_packed(works, new_id(self._clock))))

    async def publish(self, planned: Round, written: list[Written]) -> bool:
        """Publish what was written, and delete the archive files that it replaces.

        Returns False if another run was first; this round then has no effect.

        Raises:
            UnavailableError: The outcome is unknown; run it again.
        """
        files = [file for each in written for file in each.files]
        if files and not await self._commit(planned, files):
            await delete_all(self._store, [self._layout.compacted + file.name for file in files])
            return False
        if files:
            await self._log.checkpoint(self._clock)
        await delete_all(self._store, [key for each in written for key in each.covered])
        return True

    async def _commit(self, planned: Round, files: list[AddFile]) -> bool:
        hours = [work.hour for part in planned.parts for work in part.hours]
        while self._clock.now() - planned.began_at < LONGEST_ROUND:
            new = await patiently(self._log.refresh)
            if any(file.overlaps(hour, hour + _HOUR) for file in new for hour in hours):
                return False
            if await self._log.commit(files, self._clock, "WRITE"):
                return True
        return False

    def _files_of(self, hour: datetime) -> list[str]:
        files = self._log.files.values()
        return [file.name for file in files if file.overlaps(hour, hour + _HOUR)]

    async def _candidates(
        self, since: datetime | None, until: datetime | None, settled_after: timedelta
    ) -> AsyncIterator[tuple[datetime, str, int]]:
        """Yield the archive files of hours that are over, with their hours and sizes."""
        last = self._clock.now() - settled_after
        async for info in self._store.list(self._layout.root):
            archive_file = self._layout.parse(info.key)
            if archive_file is None:
                continue
            end = archive_file.hour + _HOUR
            if end > last or (until is not None and end > until):
                break  # Keys are listed in order, and so are their hours.
            if since is None or archive_file.hour >= since:
                yield archive_file.hour, archive_file.key, info.size_bytes


async def write_part(
    store: ObjectStore, layout: Layout, part: CompactionPart, clock: Clock
) -> Written:
    """Write the files of a part. It is idempotent, also if two tasks do it at once."""
    files = _Files(store, layout.compacted, part.run, clock.now())
    covered: list[str] = []
    repeated = 0
    for work in part.hours:
        seen = await _known(store, layout.compacted, work)
        async for key, rows in _archive_files(store, work.archive_files):
            for row in rows:
                copy = copy_key(row.job)
                if copy in seen:
                    repeated += 1
                    continue
                seen.add(copy)
                if files.take(row):
                    await files.close_group(row.job.kind)
            covered.append(key)
        await files.close_hour()
    await files.close()
    return Written(files.added, covered, files.jobs, repeated)


class _Files:
    """The files of a part. Jobs are added hour by hour; a row group holds one hour."""

    def __init__(self, store: ObjectStore, root: str, run: str, now: datetime) -> None:
        self._store = store
        self._root = root
        self._run = run
        self._now = now
        self._rows: dict[str, list[ArchivedRow]] = {}
        self._groups: dict[str, list[Group]] = {}
        self.added: list[AddFile] = []
        self.jobs = 0

    def take(self, row: ArchivedRow) -> bool:
        """Add a job; return True if its kind has enough jobs for a row group."""
        self.jobs += 1
        rows = self._rows.setdefault(row.job.kind, [])
        rows.append(row)
        return len(rows) == GROUP_ROWS

    async def close_group(self, kind: str) -> None:
        """Make a row group of the jobs of a kind, and write a file if it is large enough."""
        groups = self._groups.setdefault(kind, [])
        groups.append(group_of(self._rows.pop(kind)))
        if sum(group.rows for group in groups) >= _FILE_ROWS:
            await self._write(kind)

    async def close_hour(self) -> None:
        """Start new row groups for the jobs of the next hour."""
        for kind in list(self._rows):
            await self.close_group(kind)

    async def close(self) -> None:
        """Write what is left."""
        for kind in sorted(self._groups):
            await self._write(kind)

    async def _write(self, kind: str) -> None:
        groups = self._groups.pop(kind)
        body = file_of(groups)
        span = (min(group.first for group in groups), max(group.last for group in groups))
        name = file_name(span[0].date().isoformat(), kind, self._run, body)
        await patiently(partial(self._store.put, self._root + name, body))
        rows = sum(group.rows for group in groups)
        self.added.append(added(name, len(body), kind, span, rows, self._now))


async def delete_all(store: ObjectStore, keys: list[str]) -> None:
    """Delete objects, a few at a time."""
    for start in range(0, len(keys), _AT_ONCE):
        some = keys[start : start + _AT_ONCE]
        await asyncio.gather(*(patiently(partial(store.delete, key)) for key in some))


async def patiently(ask: Callable[[], Awaitable[T]]) -> T:
    """Make an idempotent call to a store, and retry it while the outcome is unknown."""
    for attempt in range(_ATTEMPTS):
        try:
            return await ask()
        except UnavailableError:
            if attempt == _ATTEMPTS - 1:
                raise
            await asyncio.sleep(_PAUSE_S * 2**attempt)
    raise AssertionError


async def _known(store: ObjectStore, root: str, work: HourWork) -> set[CopyKey]:
    """Return the keys of the jobs of an hour that are in the table."""
    known: set[CopyKey] = set()
    for name in work.files:
        body = await _get(store, root + name)
        if body is not None:
            known |= copies_in(body, work.hour, work.hour + _HOUR, root + name)
    return known


async def _archive_files(
    store: ObjectStore, keys: list[str]
) -> AsyncIterator[tuple[str, Iterator[ArchivedRow]]]:
    """Yield the rows of archive files; files that were deleted meanwhile are skipped."""
    for start in range(0, len(keys), _AT_ONCE):
        some = keys[start : start + _AT_ONCE]
        bodies = await asyncio.gather(*(_get(store, key) for key in some))
        for key, body in zip(some, bodies, strict=True):
            if body is not None:
                yield key, (ArchivedRow(job, line) for job, line in lines_in(body, key))


async def _get(store: ObjectStore, key: str) -> bytes | None:
    try:
        return (await patiently(partial(store.get, key))).body
    except ObjectMissingError:
        return None


def _packed(works: Iterable[tuple[HourWork, int]], run: str) -> Iterator[CompactionPart]:
    """Combine small hours of one day into parts."""
    some: list[HourWork] = []
    total_bytes = 0
    for work, size_bytes in works:
        is_other_day = bool(some) and some[0].hour.date() != work.hour.date()
        if some and (is_other_day or total_bytes + size_bytes > PART_BYTES):
            yield CompactionPart(run, some, total_bytes)
            some, total_bytes = [], 0
        some.append(work)
        total_bytes += size_bytes
    if some:
        yield CompactionPart(run, some, total_bytes)
