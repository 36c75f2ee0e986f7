"""Archives of finished jobs that ``spark.py`` reads and compacts."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

from msgspec import Raw

from bucketq.archive.archive_layout import Layout
from bucketq.archive.writer import ArchiveWriter
from bucketq.model.records import JobRecord
from bucketq.store.local import LocalStore

FINISHED = datetime(2026, 1, 1, tzinfo=UTC)
"""When the first of them was."""


async def fill_archive(
    path: Path, jobs: int, *, jobs_per_file: int, hours: int, kinds: Sequence[str]
) -> None:
    """Write archive files as a queue does: some jobs in each, all of one hour."""
    store = LocalStore(path.parent)
    writer = ArchiveWriter(store, Layout.of(store.url, path.name))
    for version, first in enumerate(range(0, jobs, jobs_per_file)):
        hour = FINISHED + timedelta(hours=first * hours // jobs)
        numbers = range(first, min(first + jobs_per_file, jobs))
        some = [(_finished(number, hour, kinds[number % len(kinds)]), None) for number in numbers]
        await writer.write(some, version)
    await store.close()


def _finished(number: int, hour: datetime, kind: str) -> JobRecord:
    """A job that ran for two seconds, with a payload of about a hundred bytes."""
    at = hour + timedelta(seconds=number % 3600, microseconds=number)
    return JobRecord(
        id=f"01K{number:023d}",
        kind=kind,
        status="done",
        seq=number,
        payload=Raw(b'{"id":%d,"text":"%b"}' % (number, b"x" * 80)),
        pushed_at=at - timedelta(seconds=20),
        attempt=1,
        lease=f"{number:032x}",
        worker="worker-1",
        claimed_at=at - timedelta(seconds=2),
        heartbeat_at=at,
        finished_at=at,
        outcome="completed",
        result=Raw(b'{"ok":true}'),
    )
