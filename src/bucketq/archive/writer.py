"""Writing archive files.

An archive file must exist before its jobs are removed from the queue, so a write with an unknown
outcome is retried. The key is derived from the content, so a retry is idempotent.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from itertools import groupby
from operator import itemgetter
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

    async def write(
        self, jobs: Sequence[FinishedJob], version: int, lines: Sequence[bytes] = ()
    ) -> list[str]:
        """Write jobs that were done at ``version`` of the queue; return the keys.

        ``lines`` are the encoded jobs, without fields that are not known, if they were made before.

        Raises:
            UnavailableError: The outcome is unknown; call it again.
            StoreRefusedError: The store rejects the files; the jobs stay in the queue.
        """
        made = lines or [_encoder.encode(job) for job, _ in jobs]
        if any(extra for _, extra in jobs):
            made = [_extended(line, extra) for line, (_, extra) in zip(made, jobs, strict=True)]
        by_hour: dict[datetime, list[bytes]] = {}
        moments = (finished_at(job) for job, _ in jobs)
        for moment, together in groupby(zip(moments, made, strict=True), itemgetter(0)):
            by_hour.setdefault(hour_of(moment), []).extend(line for _, line in together)
        keys = []
        for hour, some in by_hour.items():
            body = b"\n".join((*some, b""))
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


def _extended(line: bytes, extra: dict[str, Raw] | None) -> bytes:
    """Add fields that this version does not know to the line of a job."""
    return line if not extra else line[:-1] + b"," + _encoder.encode(extra)[1:]
