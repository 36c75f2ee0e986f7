"""Keeping the archive small: deleting what is too old or redundant.

Any process may delete at any time: an archive file is deleted only if it is older than the
retention, or if a single later archive file of the same hour holds every job in it. That rule needs
no lock: a process that deletes the later one has found all of it in a still later one, or has
published it in the compacted archive.

A file of the compacted archive is removed from the log first and deleted after that. A file that
the log does not name was left by a run that was killed or lost a race; it is deleted after a day.
"""

from __future__ import annotations

from contextlib import suppress
from datetime import datetime, timedelta

from bucketq.archive.archive_layout import Layout, hour_of
from bucketq.archive.archive_lines import copy_key
from bucketq.archive.compacted import open_log
from bucketq.archive.delta_actions import AddFile, removed
from bucketq.archive.parquet_format import jobs_in
from bucketq.archive.reader import ArchiveReader
from bucketq.archive.side_folder import SideFolder
from bucketq.clock import Clock, SystemClock
from bucketq.store.base import ObjectMissingError, ObjectStore

_SETTLED_AFTER = timedelta(hours=2)
"""Jobs of a younger hour may still be in the queue, because an archiver was stopped."""
_LEFT_OVER_AFTER = timedelta(days=1)
"""Much longer than a round of compaction may take."""
_ROUNDED = timedelta(seconds=1)
"""The last job of a compacted file finished a little before the time in the log, or just then."""
_ATTEMPTS = 5  # Each is lost only to another commit; what is left is pruned next time.


async def prune(
    store: ObjectStore, layout: Layout, before: datetime, clock: Clock | None = None
) -> int:
    """Delete archive files of whole hours and compacted files that ended before a moment.

    Returns how many there were. A compacted file is deleted when its last job is that old. Large
    payloads and results that the lines of a file name are deleted first: if this is interrupted,
    the lines are still there, and the next run finishes it.
    """
    clock = clock or SystemClock()
    folder, reader = SideFolder.beside(store, layout, clock), ArchiveReader(store, layout)
    doomed = []
    async for info in store.list(layout.root):
        archive_file = layout.parse(info.key)
        if archive_file is None:
            continue
        if archive_file.hour + timedelta(hours=1) > before:
            break  # Keys are listed in order, and so are their hours.
        doomed.append(archive_file)
    is_used = await folder.is_used()
    for archive_file in doomed:
        if is_used:
            await folder.delete_named(await reader.read(archive_file) or ())
        await store.delete(archive_file.key)
    return len(doomed) + await _prune_compacted(
        store, layout, before, clock, folder if is_used else None
    )


async def sweep(store: ObjectStore, layout: Layout, now: datetime) -> int:
    """Delete compacted files that the log does not name and are a day old; return how many.

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
    """Delete archive files that only repeat others, from ``since`` up to two hours ago.

    A process that dies between writing an archive file and removing its jobs from the queue leaves
    one: the next process archives the jobs again. Recent hours are skipped, because their jobs may
    still be in the queue.
    """
    reader = ArchiveReader(store, layout)
    count, hour, last = 0, hour_of(since), hour_of(now - _SETTLED_AFTER)
    while hour < last:
        count += await _collect_hour(store, reader, hour)
        hour += timedelta(hours=1)
    return count


async def _collect_hour(store: ObjectStore, reader: ArchiveReader, hour: datetime) -> int:
    archive_files = await reader.archive_files(hour)
    if len(archive_files) <= 1:
        return 0
    jobs = [set(map(copy_key, await reader.read(each) or ())) for each in archive_files]
    doomed = [
        archive_file.key
        for place, archive_file in enumerate(archive_files)
        if any(jobs[place] <= later for later in jobs[place + 1 :])
    ]
    for key in doomed:
        await store.delete(key)
    return len(doomed)


async def _prune_compacted(
    store: ObjectStore, layout: Layout, before: datetime, clock: Clock, folder: SideFolder | None
) -> int:
    log = open_log(store, layout)
    for _ in range(_ATTEMPTS):
        await log.refresh()
        doomed = [file for file in log.files.values() if file.span[1] < before]
        if not doomed:
            return 0
        if folder is not None:
            for file in doomed:
                await _delete_named(store, layout, file, folder)
        lines = [removed(file, clock.now()) for file in doomed]
        if await log.commit(lines, clock, "DELETE"):
            for file in doomed:
                await store.delete(layout.compacted + file.name)
            return len(doomed)
    return 0


async def _delete_named(
    store: ObjectStore, layout: Layout, file: AddFile, folder: SideFolder
) -> None:
    """Delete the large payloads and results of the jobs in a compacted file."""
    key, (first, last) = layout.compacted + file.name, file.span
    with suppress(ObjectMissingError):  # Another process has pruned it.
        body = (await store.get(key)).body
        await folder.delete_named(jobs_in(body, first, last + _ROUNDED, key))
