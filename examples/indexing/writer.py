"""Writing: documents go to the log first, and then a job to the queue.

When the segment is in the log its documents are found, whether or not anything else happens. A
writer that dies before it has pushed the job leaves a segment without a job; the next ``write`` or
``index`` looks for such segments and pushes their jobs (``push_missing``). The key of a job names
the segment, so a job is not pushed again while the queue remembers the key; a second one would find
its segment indexed and end.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from typing import Any

from bucketq import JobId, JobSpec, Queue
from examples.indexing import manifest
from examples.indexing.location import Location
from examples.indexing.tasks import FANOUT, IndexSegment, MergeParts, choose
from examples.indexing.wal import Document, Wal

Task = IndexSegment | MergeParts
_JOBS_AT_ONCE = 1_000


class Writer:
    """Writes documents of one namespace."""

    def __init__(self, location: Location, queue: Queue[Any], namespace: str) -> None:
        """Read and write nothing yet."""
        self._home = location
        self._queue = queue
        self._namespace = namespace
        self._wal = Wal(location, namespace)

    async def write(self, documents: Sequence[Document]) -> list[JobId]:
        """Write documents to the log, push the jobs that index them, and return their ids."""
        number = await self._wal.append(documents)
        jobs = [_indexing(self._home, self._namespace, number)]
        if number % FANOUT == 0:
            jobs.append(_merging(self._home, self._namespace, f"segment-{number}"))
        return await self._queue.push_many(jobs)

    async def ids(self) -> set[str]:
        """Return the ids of all documents in the log; it reads the whole log."""
        found: set[str] = set()
        async for segment in self._wal.missing_from(()):
            found.update(document.id for document in segment.documents)
        return found


async def push_missing(location: Location, queue: Queue[Any], namespace: str) -> list[str]:
    """Push jobs for everything that is not indexed or merged, and return their ids.

    A job that was pushed within the hour for which the queue remembers keys keeps its id.
    """
    found = await manifest.load(location, namespace)
    covered = found.segments
    last = await Wal(location, namespace).last()
    missing = [number for number in range(1, last + 1) if number not in covered]
    jobs = [_indexing(location, namespace, number) for number in missing]
    if choose(found):
        jobs.append(_merging(location, namespace, f"parts-{len(found.parts)}-of-{len(covered)}"))
    ids: list[str] = []
    for first in range(0, len(jobs), _JOBS_AT_ONCE):
        ids += await queue.push_many(jobs[first : first + _JOBS_AT_ONCE])
    return ids


def _indexing(location: Location, namespace: str, number: int) -> JobSpec[Task]:
    task = IndexSegment(location.url, namespace, number)
    return JobSpec(kind="index", payload=task, key=_key(location, f"index/{namespace}/{number}"))


def _merging(location: Location, namespace: str, occasion: str) -> JobSpec[Task]:
    task = MergeParts(location.url, namespace)
    return JobSpec(kind="merge", payload=task, key=_key(location, f"merge/{namespace}/{occasion}"))


def _key(location: Location, name: str) -> str:
    """Return the key of a job. It depends on the address, because the payload has it too."""
    return f"{name}/{blake2b(location.url.encode(), digest_size=6).hexdigest()}"
