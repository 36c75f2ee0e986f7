"""Archives for tests: finished jobs of the hours before now."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from msgspec import Raw

from bucketq.archive.archive_layout import Layout
from bucketq.archive.writer import ArchiveWriter
from bucketq.clock import SystemClock
from bucketq.model.records import Failure, JobRecord
from bucketq.store.base import ObjectStore
from bucketq.store.url import open_store

HOUR = timedelta(hours=1)


def hours_ago(hours: float) -> datetime:
    """A moment in the middle of an hour that is so long ago."""
    whole = SystemClock().now().replace(minute=30, second=0, microsecond=0)
    return whole.astimezone(UTC) - hours * HOUR


def finished(name: str, at: datetime, kind: str = "index", *errors: str) -> JobRecord:
    """A job that waited for ten seconds and ran for two; with errors, one that failed and died."""
    return JobRecord(
        id=name,
        kind=kind,
        status="done",
        seq=int(name[3:]) if name[3:].isdigit() else 0,
        payload=Raw(b'{"name":"%b"}' % name.encode()),
        pushed_at=at - timedelta(seconds=12),
        claimed_at=None if errors else at - timedelta(seconds=2),
        finished_at=at,
        outcome="dead" if errors else "completed",
        attempt=len(errors) or 1,
        failures=len(errors),
        errors=tuple(Failure(at, place, "failed", each) for place, each in enumerate(errors, 1)),
        tags={"team": "search"},
        priority=3,
    )


def archive(url: str, *archive_files: Sequence[JobRecord]) -> None:
    """Write archive files to the archive of a queue."""
    asyncio.run(_archive(url, archive_files))


def listed(url: str) -> tuple[list[str], list[str]]:
    """The keys of the archive files, and of the files that compactions have written."""
    return asyncio.run(_listed(url))


async def keys(store: ObjectStore, layout: Layout) -> tuple[list[str], list[str]]:
    """The same, of a store that is open."""
    found = [info.key async for info in store.list(layout.root)]
    files = [key for key in found if key.startswith(layout.compacted) and key.endswith(".parquet")]
    return [key for key in found if layout.parse(key)], files


async def _archive(url: str, archive_files: Sequence[Sequence[JobRecord]]) -> None:
    location = open_store(url)
    try:
        writer = ArchiveWriter(location.store, Layout.of(location.store.url, location.key))
        for version, jobs in enumerate(archive_files):
            await writer.write([(job, None) for job in jobs], version)
    finally:
        await location.store.close()


async def _listed(url: str) -> tuple[list[str], list[str]]:
    location = open_store(url)
    try:
        return await keys(location.store, Layout.of(location.store.url, location.key))
    finally:
        await location.store.close()
