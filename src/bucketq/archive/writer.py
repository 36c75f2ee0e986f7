"""Writing archive files.

An archive file must exist before its jobs are removed from the queue, so a write with an unknown
outcome is retried. The key is derived from the content, so a retry is idempotent.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from itertools import groupby
from typing import TYPE_CHECKING

import msgspec
from msgspec import Raw

from bucketq.archive.archive_layout import Layout, hour_of
from bucketq.model.indexes.finished_jobs import finished_at
from bucketq.model.records import JobRecord
from bucketq.store.base import ObjectStore

if TYPE_CHECKING:  # It is imported when it is used.
    from bucketq.archive.reader import ArchiveReader

FinishedJob = tuple[JobRecord, dict[str, Raw] | None]
"""A job, and its fields that this version of bucketq does not know."""

_encoder = msgspec.json.Encoder()


class ArchiveWriter:
    """Writes finished jobs to the archive of one queue."""

    def __init__(self, store: ObjectStore, layout: Layout) -> None:
        self._store = store
        self._layout = layout

    @property
    def where(self) -> str:
        """The address of the archive, for messages."""
        return f"{self._store.url.rstrip('/')}/{self._layout.root}"

    async def write(self, jobs: Iterable[FinishedJob], version: int) -> list[str]:
        """Write jobs that were done at ``version`` of the queue; return the keys.

        Raises:
            UnavailableError: The outcome is unknown; call it again.
            StoreRefusedError: The store rejects the files; the jobs stay in the queue.
        """
        by_hour: dict[datetime, list[FinishedJob]] = {}
        for moment, together in groupby(jobs, lambda each: finished_at(each[0])):
            by_hour.setdefault(hour_of(moment), []).extend(together)
        keys = []
        for hour, some in by_hour.items():
            body = _lines(some)
            key = self._layout.file_key(hour, version, body)
            await self._store.put(key, body)
            keys.append(key)
        return keys

    def name_of(self, key: str) -> str:
        """Return the name of an archive file: its key from the folder of the archive on."""
        return key.removeprefix(self._layout.root)

    def reader(self) -> ArchiveReader:
        """Return a reader of the same archive."""
        from bucketq.archive.reader import ArchiveReader  # noqa: PLC0415 - as below

        return ArchiveReader(self._store, self._layout)

    async def prune(self, before: datetime) -> int:
        """Delete the archive files of hours that ended before a moment; return how many."""
        # It needs the reader of the archive, which most processes that write never use.
        from bucketq.archive.upkeep import prune  # noqa: PLC0415

        return await prune(self._store, self._layout, before)


def _lines(jobs: Sequence[FinishedJob]) -> bytes:
    if not any(extra for _, extra in jobs):  # Encoded together, they take half the time.
        return _encoder.encode_lines([job for job, _ in jobs])
    return b"".join([_line(*each) for each in jobs])


def _line(job: JobRecord, extra: dict[str, Raw] | None) -> bytes:
    line = _encoder.encode(job)
    return (line if not extra else line[:-1] + b"," + _encoder.encode(extra)[1:]) + b"\n"
