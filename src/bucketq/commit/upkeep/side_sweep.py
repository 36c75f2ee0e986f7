"""``SideSweep``: deletes large payloads and results that no job will ever name.

A client that dies between writing a side object and the commit that names it leaves a marker. The
object may be deleted if

* a version was read from the store that is not older than the last one that may introduce it,
* the job in the marker does not name it in a version that was read after that, and
* no line of the archive does, which was read last: a job leaves the queue only once it is there.

If one of them names it, only the marker is deleted. What a job or a line of the archive has named
is deleted with that line (``archive.upkeep``).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from datetime import timedelta
from typing import Any

from bucketq.archive.side_folder import Marker
from bucketq.archive.writer import ArchiveWriter
from bucketq.clock import Clock
from bucketq.commit.objects.register import Register
from bucketq.errors import JobNotFoundError
from bucketq.model.operations import Get, ReadSnapshot, Request, Snapshot
from bucketq.model.records import JobRecord
from bucketq.model.side_objects import refs_of, until_of

_SKEW = timedelta(hours=1)
"""How far the clocks of the writers of markers and of the archive may differ."""


class SideSweep:
    """Sweeps the side objects of one queue."""

    def __init__(
        self,
        submit: Callable[[Request], Awaitable[Any]],
        register: Register,
        archive: ArchiveWriter | None,
        clock: Clock,
    ) -> None:
        """Read jobs with ``submit``; without an archive, finished jobs stay in the queue."""
        self._submit = submit
        self._register = register
        self._archive = archive
        self._clock = clock

    async def sweep(self, incarnation: str) -> int:
        """Delete what was left behind; return how many objects.

        Raises:
            UnavailableError: The storage did not answer; sweep again later.
        """
        folder = self._register.side
        found = [name async for name in folder.markers(incarnation)]
        if not found:
            return 0
        state = (await self._register.beside().load()).state
        if state.incarnation != incarnation:
            return 0
        markers: list[Marker] = []
        for name in found:
            if state.version >= until_of(name):
                marker = await folder.read_marker(name)
                if marker is not None and marker.object == name:
                    markers.append(marker)
        named = await self._named_by_jobs(markers)
        left = [marker for marker in markers if marker.object not in named]
        named |= await self._named_by_archive(left)
        for marker in markers:
            if marker.object in named:
                await folder.unmark(marker.object)
        return await folder.sweep([each.object for each in left], state.version, named)

    async def _named_by_jobs(self, markers: list[Marker]) -> set[str]:
        """Return what jobs of the queue name."""
        named: set[str] = set()
        if any(not marker.job for marker in markers):
            snapshot: Snapshot = await self._submit(Request(ReadSnapshot()))
            return _names(snapshot.jobs)
        for marker in markers:
            try:
                job: JobRecord = await self._submit(Request(Get(job=marker.job)))
            except JobNotFoundError:
                continue
            named |= _names([job])
        return named

    async def _named_by_archive(self, markers: list[Marker]) -> set[str]:
        """Return what lines of the archive name, from the first of the markers on."""
        named: set[str] = set()
        if not markers or self._archive is None:
            return named
        since = min(marker.at for marker in markers) - _SKEW
        async for some in self._archive.reader().batches(since, self._clock.now() + _SKEW):
            named |= _names(some)
        return named


def _names(jobs: Iterable[JobRecord]) -> set[str]:
    return {ref.object for job in jobs for ref in refs_of(job)}
