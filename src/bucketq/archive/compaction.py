"""Compaction: from many small segments to a few Parquet files, without a gap and without doubles.

It goes in rounds. A round is planned from the segments that are there, its parts are written by
whoever has the hands for it (Spark, or one process), and then the files of all parts are published
in one commit of the table's log. Only what is published is visible; only after that are the
segments deleted that it holds. A kill leaves files that nobody sees, or segments whose jobs are in
the table as well, and the next run takes both away.

Nothing has to be remembered about segments. A job is known by its id, its number and the moment at
which it finished: one that is in the table already is left out, whether its segment came late, was
archived twice, or was compacted by a run that could not delete it any more.

Two runs at once: whoever publishes second finds a version that it has not read. If that one added
jobs of the same hours, the round is dropped with its files and planned anew.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from datetime import datetime, timedelta
from functools import partial
from typing import TypeVar

from msgspec import Struct

from bucketq.archive.compacted import file_name, open_log, touches
from bucketq.archive.delta import AddFile, DeltaLog, added
from bucketq.archive.layout import Layout
from bucketq.archive.lines import CopyKey, copy_key, lines_in
from bucketq.archive.parquet import GROUP_ROWS, Group, Row, copies_in, file_of, group_of
from bucketq.clock import Clock, new_id
from bucketq.errors import UnavailableError
from bucketq.store.base import ObjectMissingError, ObjectStore

T = TypeVar("T")

SETTLED_AFTER = timedelta(hours=1)
"""How long an hour has to be over. What comes later is compacted later."""
LONGEST_ROUND = timedelta(hours=6)
"""A round that took longer is not published, for its files may be swept away as left over."""

PART_BYTES = 64 << 20
_ROUND_BYTES = 1 << 30
_FILE_ROWS = 500_000
_AT_ONCE = 8
_ATTEMPTS = 5
_PAUSE_S = 0.2
_HOUR = timedelta(hours=1)


class HourWork(Struct, frozen=True):
    """The segments of an hour, and the files of the table that may hold some of its jobs."""

    hour: datetime
    segments: list[str]
    files: list[str]


class Part(Struct, frozen=True):
    """What one task writes: some hours of one day. None is cut, so that doubles meet."""

    run: str
    hours: list[HourWork]
    size_bytes: int


class Written(Struct, frozen=True):
    """What a task has written."""

    files: list[AddFile]
    covered: list[str]
    """Segments whose jobs are all in ``files``, or were in the table before."""
    jobs: int
    repeated: int
    """Jobs that were there already, or twice."""


class Round(Struct, frozen=True):
    """What is published in one commit."""

    began_at: datetime
    version: int
    """Of the table, when the round was planned."""
    parts: list[Part]

    @property
    def segments(self) -> int:
        """How many segments it takes."""
        return sum(len(work.segments) for part in self.parts for work in part.hours)


class Compactor:
    """Plans rounds and publishes them. It writes no files of jobs itself: ``write_part`` does."""

    def __init__(self, store: ObjectStore, layout: Layout, clock: Clock) -> None:
        """Compact the archive that lies in ``store`` under the names of ``layout``."""
        self._store = store
        self._layout = layout
        self._clock = clock
        self._log: DeltaLog = open_log(store, layout)

    async def segments(
        self, since: datetime | None, until: datetime | None, settled_after: timedelta
    ) -> int:
        """How many segments are there to compact, for those who want to see progress."""
        return sum([1 async for _ in self._candidates(since, until, settled_after)])

    async def plan(
        self,
        since: datetime | None = None,
        until: datetime | None = None,
        settled_after: timedelta = SETTLED_AFTER,
    ) -> Round | None:
        """Plan the next round; None where nothing is left to do.

        The table is read before the segments: a run that ends in between is then found out when
        the round is published.
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
        """Make what was written visible, and delete the segments that it holds.

        False means that another run was first: everything is as if this round had not been.

        Raises:
            UnavailableError: Nobody can tell; run it again.
        """
        files = [file for each in written for file in each.files]
        if files and not await self._commit(planned, files):
            await delete_all(self._store, [self._layout.compacted + file.name for file in files])
            return False
        await delete_all(self._store, [key for each in written for key in each.covered])
        return True

    async def _commit(self, planned: Round, files: list[AddFile]) -> bool:
        hours = [work.hour for part in planned.parts for work in part.hours]
        while self._clock.now() - planned.began_at < LONGEST_ROUND:
            new = await patiently(self._log.refresh)
            if any(touches(file, hour, hour + _HOUR) for file in new for hour in hours):
                return False
            if await self._log.commit(files, self._clock, "WRITE"):
                return True
        return False

    def _files_of(self, hour: datetime) -> list[str]:
        files = self._log.files.values()
        return [file.name for file in files if touches(file, hour, hour + _HOUR)]

    async def _candidates(
        self, since: datetime | None, until: datetime | None, settled_after: timedelta
    ) -> AsyncIterator[tuple[datetime, str, int]]:
        """Segments of hours that are over, with their hours and sizes."""
        last = self._clock.now() - settled_after
        async for info in self._store.list(self._layout.root):
            segment = self._layout.parse(info.key)
            if segment is None:
                continue
            end = segment.hour + _HOUR
            if end > last or (until is not None and end > until):
                break  # Keys come in order, and so do their hours.
            if since is None or segment.hour >= since:
                yield segment.hour, segment.key, info.size_bytes


async def write_part(store: ObjectStore, layout: Layout, part: Part, clock: Clock) -> Written:
    """Write the files of a part. To do it again, or twice at once, writes the same."""
    files = _Files(store, layout.compacted, part.run, clock.now())
    covered: list[str] = []
    repeated = 0
    for work in part.hours:
        seen = await _known(store, layout.compacted, work)
        async for key, rows in _segments(store, work.segments):
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
    """The files of a part. Its jobs come hour by hour; each group of rows is of one hour."""

    def __init__(self, store: ObjectStore, root: str, run: str, now: datetime) -> None:
        self._store = store
        self._root = root
        self._run = run
        self._now = now
        self._rows: dict[str, list[Row]] = {}
        self._groups: dict[str, list[Group]] = {}
        self.added: list[AddFile] = []
        self.jobs = 0

    def take(self, row: Row) -> bool:
        """Take a job; True: there are enough of its kind for a group."""
        self.jobs += 1
        rows = self._rows.setdefault(row.job.kind, [])
        rows.append(row)
        return len(rows) == GROUP_ROWS

    async def close_group(self, kind: str) -> None:
        """Make a group of the jobs of a kind, and a file where there is enough for one."""
        groups = self._groups.setdefault(kind, [])
        groups.append(group_of(self._rows.pop(kind)))
        if sum(group.rows for group in groups) >= _FILE_ROWS:
            await self._write(kind)

    async def close_hour(self) -> None:
        """Let the jobs that come from now on be in groups of their own."""
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
    """Delete objects, a few at once."""
    for start in range(0, len(keys), _AT_ONCE):
        some = keys[start : start + _AT_ONCE]
        await asyncio.gather(*(patiently(partial(store.delete, key)) for key in some))


async def patiently(ask: Callable[[], Awaitable[T]]) -> T:
    """Ask a store for something that may be done twice, again where the outcome is unknown."""
    for attempt in range(_ATTEMPTS):
        try:
            return await ask()
        except UnavailableError:
            if attempt == _ATTEMPTS - 1:
                raise
            await asyncio.sleep(_PAUSE_S * 2**attempt)
    raise AssertionError


async def _known(store: ObjectStore, root: str, work: HourWork) -> set[CopyKey]:
    """The jobs of an hour that are in the table."""
    known: set[CopyKey] = set()
    for name in work.files:
        body = await _get(store, root + name)
        if body is not None:
            known |= copies_in(body, work.hour, work.hour + _HOUR, root + name)
    return known


async def _segments(
    store: ObjectStore, keys: list[str]
) -> AsyncIterator[tuple[str, Iterator[Row]]]:
    """The rows of segments; one that was collected or compacted meanwhile is passed over."""
    for start in range(0, len(keys), _AT_ONCE):
        some = keys[start : start + _AT_ONCE]
        bodies = await asyncio.gather(*(_get(store, key) for key in some))
        for key, body in zip(some, bodies, strict=True):
            if body is not None:
                yield key, (Row(job, line) for job, line in lines_in(body, key))


async def _get(store: ObjectStore, key: str) -> bytes | None:
    try:
        return (await patiently(partial(store.get, key))).body
    except ObjectMissingError:
        return None


def _packed(works: Iterable[tuple[HourWork, int]], run: str) -> Iterator[Part]:
    """Put hours of one day together as long as they are small."""
    some: list[HourWork] = []
    total_bytes = 0
    for work, size_bytes in works:
        is_other_day = bool(some) and some[0].hour.date() != work.hour.date()
        if some and (is_other_day or total_bytes + size_bytes > PART_BYTES):
            yield Part(run, some, total_bytes)
            some, total_bytes = [], 0
        some.append(work)
        total_bytes += size_bytes
    if some:
        yield Part(run, some, total_bytes)
