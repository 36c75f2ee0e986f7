"""The compacted part of an archive: its keys, and how its jobs are read.

It is a Delta table below the archive, which other tools read as well::

    jobs/queue/archive/compacted/_delta_log/00000000000000000000.json
    jobs/queue/archive/compacted/date=2026-02-15/kind=index/part-<run>-<digest>.parquet
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Collection
from datetime import datetime
from hashlib import blake2b

from bucketq.archive.archive_layout import Layout
from bucketq.archive.delta import DeltaLog
from bucketq.archive.delta_actions import AddFile
from bucketq.archive.parquet_format import FIELDS, demand_pyarrow, jobs_in
from bucketq.errors import CorruptStateError
from bucketq.model.records import JobRecord
from bucketq.store.base import ObjectMissingError, ObjectStore

_UNFIT = re.compile(r"[^A-Za-z0-9._-]")


def file_name(day: str, kind: str, run: str, body: bytes) -> str:
    """Return the path of a file, relative to the root.

    It contains the id of the run that writes it, so that a run that lost a race can delete its own
    files and no others. The kind in it is for people; the log has the exact kind.
    """
    digest = blake2b(body, digest_size=8).hexdigest()
    return f"date={day}/kind={_UNFIT.sub('-', kind)}/part-{run}-{digest}.parquet"


def open_log(store: ObjectStore, layout: Layout) -> DeltaLog:
    """Return the log of the table; ``refresh`` reads it."""
    return DeltaLog(store, layout.compacted, FIELDS)


class CompactedReader:
    """Reads the table at the version of the last refresh, or a newer one."""

    def __init__(self, store: ObjectStore, layout: Layout) -> None:
        """Read the table of an archive; nothing is read before ``refresh``."""
        self._store = store
        self._root = layout.compacted
        self._log = open_log(store, layout)
        self._bodies: dict[str, bytes] = {}
        """Files that the last hour needed and the next may need too."""

    async def refresh(self) -> None:
        """Read the versions that were published since."""
        await self._log.refresh()

    async def jobs(
        self, since: datetime, until: datetime, kinds: Collection[str] | None = None
    ) -> AsyncIterator[JobRecord]:
        """Yield the jobs that finished in a range of time.

        A job may be yielded twice if its file was replaced by another meanwhile.
        """
        done: set[str] = set()
        self._forget(since)
        while pending := [
            file
            for path, file in self._log.files.items()
            if path not in done
            and file.overlaps(since, until)
            and (kinds is None or file.kind is None or file.kind in kinds)
        ]:
            demand_pyarrow()
            for file in pending:
                done.add(file.path)
                body = await self._body(file)
                if body is None:
                    break
                for job in jobs_in(body, since, until, self._root + file.name):
                    if kinds is None or job.kind in kinds:
                        yield job

    async def _body(self, file: AddFile) -> bytes | None:
        """Read a file; return None, after a refresh, if it is no longer part of the table."""
        if file.path in self._bodies:
            return self._bodies[file.path]
        key = self._root + file.name
        try:
            body = (await self._store.get(key)).body
        except ObjectMissingError:
            await self._log.refresh()
            if file.path in self._log.files:
                raise CorruptStateError(
                    f"{key} is missing, and the log of the compacted archive names it"
                ) from None
            return None
        self._bodies[file.path] = body
        return body

    def _forget(self, since: datetime) -> None:
        """Forget files that hold nothing from ``since`` on or have left the table."""
        for path in list(self._bodies):
            file = self._log.files.get(path)
            if file is None or file.span[1] < since:
                del self._bodies[path]
