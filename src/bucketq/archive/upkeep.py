"""Keeping the archive small: what is too old, and what nothing needs.

Deleting is safe at any time and by anybody: a segment is only taken away when it is older than
the retention, or when a single later segment of the same hour holds every job in it. That rule
needs no lock: whoever takes the later one away has found all of it in a still later one.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from bucketq.archive.layout import Layout, hour_of
from bucketq.archive.reader import ArchiveReader
from bucketq.store.base import ObjectStore

_SETTLED_AFTER = timedelta(hours=2)


async def prune(store: ObjectStore, layout: Layout, before: datetime) -> int:
    """Delete the segments of hours that ended before a moment; return how many."""
    doomed = []
    async for info in store.list(layout.root):
        segment = layout.parse(info.key)
        if segment is None:
            continue
        if segment.hour + timedelta(hours=1) > before:
            break  # Keys come in order, and so do their hours.
        doomed.append(segment.key)
    for key in doomed:
        await store.delete(key)
    return len(doomed)


async def collect(store: ObjectStore, layout: Layout, since: datetime, now: datetime) -> int:
    """Delete segments that only repeat others, from ``since`` up to two hours ago.

    A process that died between writing a segment and letting its jobs go leaves one: its jobs
    were archived again by the next process. Recent hours are left alone, for their jobs may not
    have been let go yet.
    """
    reader = ArchiveReader(store, layout)
    count, hour, last = 0, hour_of(since), hour_of(now - _SETTLED_AFTER)
    while hour < last:
        count += await _collect_hour(store, reader, hour)
        hour += timedelta(hours=1)
    return count


async def _collect_hour(store: ObjectStore, reader: ArchiveReader, hour: datetime) -> int:
    segments = await reader.segments(hour)
    if len(segments) <= 1:
        return 0
    ids = [{job.id for job in await reader.read(segment)} for segment in segments]
    doomed = [
        segment.key
        for place, segment in enumerate(segments)
        if any(ids[place] <= later for later in ids[place + 1 :])
    ]
    for key in doomed:
        await store.delete(key)
    return len(doomed)
