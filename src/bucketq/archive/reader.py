"""Reading a range of time from the archive: only the hours asked for, each job once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from datetime import datetime, timedelta

import msgspec

from bucketq.archive.layout import Layout, Segment, hours_between
from bucketq.errors import CorruptStateError, InvalidRequestError
from bucketq.model import check
from bucketq.model.job import JobRecord
from bucketq.store.base import ObjectMissingError, ObjectStore

_AT_ONCE = 8
_LONGEST_RANGE = timedelta(days=366 * 20)


_decode = msgspec.json.Decoder(JobRecord).decode
_KNOWN = frozenset(JobRecord.__struct_fields__)


class ArchiveReader:
    """Reads the archive of one queue."""

    def __init__(self, store: ObjectStore, layout: Layout) -> None:
        """Read from ``store``, under the names of ``layout``."""
        self._store = store
        self._layout = layout

    async def jobs(self, since: datetime, until: datetime) -> AsyncIterator[JobRecord]:
        """Yield the jobs that finished from ``since`` up to but not including ``until``.

        They come hour by hour, and within an hour in the order in which they were archived. A job
        that a crash has left in two segments comes once.
        """
        check.moment(since, "since")
        check.moment(until, "until")
        if until - since > _LONGEST_RANGE:
            message = f"a range of {(until - since).days} days is too long: read it in parts"
            raise InvalidRequestError(message)
        for hour in hours_between(since, until):
            seen: set[str] = set()
            async for job in self._jobs_of(hour):
                if job.id in seen:
                    continue
                seen.add(job.id)
                if job.finished_at is not None and since <= job.finished_at < until:
                    yield job

    async def segments(self, hour: datetime) -> list[Segment]:
        """The segments of an hour, in the order of the versions they were made at."""
        found = []
        async for info in self._store.list(self._layout.hour_prefix(hour)):
            segment = self._layout.parse(info.key)
            if segment is not None:
                found.append(segment)
        return found

    async def read(self, segment: Segment) -> list[JobRecord]:
        """The jobs of one segment; none where it was collected meanwhile."""
        try:
            body = (await self._store.get(segment.key)).body
        except ObjectMissingError:
            return []
        return list(_jobs_in(body, segment.key))

    async def _jobs_of(self, hour: datetime) -> AsyncIterator[JobRecord]:
        segments = await self.segments(hour)
        for start in range(0, len(segments), _AT_ONCE):
            some = segments[start : start + _AT_ONCE]
            for jobs in await asyncio.gather(*map(self.read, some)):
                for job in jobs:
                    yield job


def _jobs_in(body: bytes, key: str) -> Iterator[JobRecord]:
    for number, line in enumerate(body.splitlines(), start=1):
        try:
            yield _decode_line(line)
        except msgspec.MsgspecError as error:
            message = f"archive segment {key}, line {number} cannot be read: {error}"
            raise CorruptStateError(message) from error


def _decode_line(line: bytes) -> JobRecord:
    """Decode a job, leaving out fields that a newer bucketq may have given it."""
    try:
        return _decode(line)
    except msgspec.ValidationError:
        fields = msgspec.json.decode(line, type=dict[str, msgspec.Raw])
        known = {name: value for name, value in fields.items() if name in _KNOWN}
        return _decode(msgspec.json.encode(known))
