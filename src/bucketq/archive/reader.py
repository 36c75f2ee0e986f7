"""Reading a range of time from the archive: only the hours asked for, each job once.

Finished jobs are in segments, and after a compaction in the files of a table; both are read here
as one. A compaction publishes its files and only then deletes the segments that they hold. So the
segments of a day are listed first and the table is looked up after that: a segment that was not
listed, or that is gone when it is read, is in the table by then. What is in both comes once.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection, Iterator, Sequence
from datetime import datetime, timedelta
from itertools import groupby

from bucketq.archive.compacted import CompactedReader
from bucketq.archive.layout import Layout, Segment, hours_between
from bucketq.archive.lines import CopyKey, copy_key, jobs_in_lines
from bucketq.errors import InvalidRequestError
from bucketq.model import check
from bucketq.model.job import JobRecord
from bucketq.store.base import ObjectMissingError, ObjectStore

_AT_ONCE = 8
_TOGETHER = 5000
"""So many jobs of the table are handed on at a time."""
_LONGEST_RANGE = timedelta(days=366 * 20)
_HOUR = timedelta(hours=1)
_DAY_HOURS = 24


class ArchiveReader:
    """Reads the archive of one queue."""

    def __init__(self, store: ObjectStore, layout: Layout) -> None:
        """Read from ``store``, under the names of ``layout``."""
        self._store = store
        self._layout = layout
        self._compacted = CompactedReader(store, layout)

    async def jobs(
        self, since: datetime, until: datetime, kinds: Collection[str] | None = None
    ) -> AsyncIterator[JobRecord]:
        """Yield the jobs that finished from ``since`` up to but not including ``until``.

        They come hour by hour; within an hour first those that are not compacted yet, in the order
        in which they were archived. A job that a crash has left in two segments comes once.
        """
        async for some in self.batches(since, until, kinds):
            for job in some:
                yield job

    async def batches(
        self, since: datetime, until: datetime, kinds: Collection[str] | None = None
    ) -> AsyncIterator[Sequence[JobRecord]]:
        """Yield the same jobs, as many at a time as come together."""
        check.moment(since, "since")
        check.moment(until, "until")
        if until - since > _LONGEST_RANGE:
            message = f"a range of {(until - since).days} days is too long: read it in parts"
            raise InvalidRequestError(message)
        for hours in _by_day(since, until):
            listed = await self._listed(hours)
            await self._compacted.refresh()
            for hour, segments in listed.items():
                first, end = max(since, hour), min(until, hour + _HOUR)
                async for some in self._jobs_of(segments, first, end, kinds):
                    yield some

    async def segments(self, hour: datetime) -> list[Segment]:
        """The segments of an hour, in the order of the versions they were made at."""
        return [each async for each in self._segments(self._layout.hour_prefix(hour))]

    async def read(self, segment: Segment) -> list[JobRecord]:
        """The jobs of one segment; none where it was collected meanwhile."""
        return await self._read(segment) or []

    async def _listed(self, hours: list[datetime]) -> dict[datetime, list[Segment]]:
        """The segments of some hours of one day. A whole day is listed at once."""
        if len(hours) < _DAY_HOURS:
            return {hour: await self.segments(hour) for hour in hours}
        found: dict[datetime, list[Segment]] = {hour: [] for hour in hours}
        async for segment in self._segments(self._layout.day_prefix(hours[0])):
            found[segment.hour].append(segment)
        return found

    async def _segments(self, prefix: str) -> AsyncIterator[Segment]:
        async for info in self._store.list(prefix):
            segment = self._layout.parse(info.key)
            if segment is not None:
                yield segment

    async def _jobs_of(
        self,
        segments: list[Segment],
        since: datetime,
        until: datetime,
        kinds: Collection[str] | None,
    ) -> AsyncIterator[Sequence[JobRecord]]:
        """The jobs of a stretch within an hour."""
        seen: set[CopyKey] = set()
        is_some_gone = False
        for start in range(0, len(segments), _AT_ONCE):
            some = segments[start : start + _AT_ONCE]
            for jobs in await asyncio.gather(*map(self._read, some)):
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

    async def _read(self, segment: Segment) -> list[JobRecord] | None:
        try:
            body = (await self._store.get(segment.key)).body
        except ObjectMissingError:
            return None
        return jobs_in_lines(body, segment.key)


def _unseen(jobs: Sequence[JobRecord], seen: set[CopyKey]) -> Sequence[JobRecord]:
    """The jobs that were not seen before, and are from now on."""
    by_key = {copy_key(job): job for job in jobs}
    if len(by_key) < len(jobs) or not seen.isdisjoint(by_key):
        jobs = [job for key, job in by_key.items() if key not in seen]
    seen.update(by_key)
    return jobs


def _by_day(since: datetime, until: datetime) -> Iterator[list[datetime]]:
    for _, hours in groupby(hours_between(since, until), key=lambda hour: hour.date()):
        yield list(hours)
