"""Keeping the archive small: what is too old, and what nothing needs.

Deleting is safe at any time and by anybody: a segment is only taken away when it is older than
the retention, or when a single later segment of the same hour holds every job in it. That rule
needs no lock: whoever takes the later one away has found all of it in a still later one, or has
published it in the compacted archive.

A file of the compacted archive is taken out of the log first, and deleted then; a file that no log
names was left by a run that was killed or overtaken, and goes once it is a day old.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from bucketq.archive.compacted import open_log
from bucketq.archive.delta import removed
from bucketq.archive.layout import Layout, hour_of
from bucketq.archive.lines import copy_key
from bucketq.archive.reader import ArchiveReader
from bucketq.clock import Clock, SystemClock
from bucketq.store.base import ObjectStore

_SETTLED_AFTER = timedelta(hours=2)
_LEFT_OVER_AFTER = timedelta(days=1)
"""Much longer than a round of compaction may take."""
_ATTEMPTS = 5


async def prune(
    store: ObjectStore, layout: Layout, before: datetime, clock: Clock | None = None
) -> int:
    """Delete what finished before a moment: segments of whole hours, and whole compacted files.

    Return how many there were. A compacted file goes when its last job is that old.
    """
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
    return len(doomed) + await _prune_compacted(store, layout, before, clock or SystemClock())


async def sweep(store: ObjectStore, layout: Layout, now: datetime) -> int:
    """Delete files of jobs that no log names, once they are a day old; return how many.

    The log is read after the listing: a file that was published in between is named there.
    """
    root = layout.compacted
    found = [
        info.key
        async for info in store.list(root + "date=")
        if now - info.modified_at > _LEFT_OVER_AFTER
    ]
    if not found:
        return 0
    log = open_log(store, layout)
    await log.refresh()
    named = {root + file.name for file in log.files.values()}
    doomed = [key for key in found if key not in named]
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
    jobs = [set(map(copy_key, await reader.read(segment))) for segment in segments]
    doomed = [
        segment.key
        for place, segment in enumerate(segments)
        if any(jobs[place] <= later for later in jobs[place + 1 :])
    ]
    for key in doomed:
        await store.delete(key)
    return len(doomed)


async def _prune_compacted(
    store: ObjectStore, layout: Layout, before: datetime, clock: Clock
) -> int:
    log = open_log(store, layout)
    for _ in range(_ATTEMPTS):
        await log.refresh()
        doomed = [file for file in log.files.values() if file.span[1] < before]
        if not doomed:
            return 0
        lines = [removed(file, clock.now()) for file in doomed]
        if await log.commit(lines, clock, "DELETE"):
            for file in doomed:
                await store.delete(layout.compacted + file.name)
            return len(doomed)
    return 0
