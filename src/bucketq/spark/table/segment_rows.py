"""Jobs in segments, as rows of a table: the driver names them, and executors read them.

A partition has the entries of its segments and which positions are its own, so a task carries some
kilobytes whatever the depth of the queue. An executor checks the length and the checksums of all
that it reads.

The partitions of a read are of one version, because segments never change. One that the driver has
seen stays in the store while the queue names it. Once a merge has replaced it, or all its jobs have
left, the next sweep deletes it; then a task that comes too late fails, and the table must be read
again. Nothing pins the version that the driver read, unless the queue has a history that lists a
copy of it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from bucketq.admin import QueueObject
from bucketq.admin.segment_reader import SegmentReader
from bucketq.clock import SystemClock
from bucketq.commit.objects.queue_segments import StaleStateError
from bucketq.errors import QueueNotFoundError, UnavailableError
from bucketq.model.indexes.cold_rows import ColdRows
from bucketq.model.records import JobRecord
from bucketq.model.segments import SegmentClass, SegmentIndex, SegmentRecord
from bucketq.model.state import State
from bucketq.spark.queue_access import QueueAccess, opened_store
from bucketq.spark.table.job_schema import fetched_batches

if TYPE_CHECKING:
    import pyarrow as pa

_CLASSES: dict[str, tuple[SegmentClass, ...]] = {"queued": ("ready", "later"), "dead": ("dead",)}
"""The classes of segments that hold jobs of a status; those of the others are in the object."""


class SegmentSlice(NamedTuple):
    """The rows of a segment from a position to before another."""

    record: SegmentRecord
    start: int
    stop: int


def has_status(record: SegmentRecord, statuses: Collection[str]) -> bool:
    """Whether a segment holds jobs with one of these statuses; with any if there are none."""
    return not statuses or any(record.cls in _CLASSES.get(status, ()) for status in statuses)


def read_slices(
    access: QueueAccess,
    incarnation: str,
    slices: Sequence[SegmentSlice],
    kinds: Collection[str],
    fetch_bytes: int,
) -> Iterator[pa.RecordBatch]:
    """Read jobs of slices on an executor: those of some kinds, or all if no kind is given.

    Raises:
        UnavailableError: A segment was deleted because the queue has moved on; read it again.
        CorruptStateError: One is damaged, or missing although the queue names it.
    """
    with asyncio.Runner() as runner:
        opened = opened_store(access.url)
        location = runner.run(opened.__aenter__())
        clock = SystemClock()
        target = QueueObject(location.store, location.key, location.url, clock, access.timeout_s)
        records = {each.record.id: each.record for each in slices}
        state = State(incarnation=incarnation, created_at=clock.now(), segments=records.values())
        reader = SegmentReader(target, state)
        try:
            for each in slices:
                jobs = runner.run(_read_slice(reader, state.cold.rows, each, kinds, location.url))
                yield from fetched_batches(jobs, access, fetch_bytes)
        finally:
            runner.run(opened.__aexit__(None, None, None))


async def _read_slice(
    reader: SegmentReader, rows: ColdRows, each: SegmentSlice, kinds: Collection[str], url: str
) -> list[JobRecord]:
    segment = rows.segments[each.record.id]
    jobs: list[JobRecord] = []
    try:
        index = await reader.read(lambda: rows.index_of(segment))
        for span in _spans(index, each, kinds):
            found = await reader.read(partial(rows.jobs_of, segment, index, *span))
            jobs += [job for _, job, _ in found if not kinds or job.kind in kinds]
    except StaleStateError as error:
        message = (
            f"segment {each.record.id} of {url} was deleted, because the queue has moved on since "
            "the driver read it: read it again (load the table anew), and cache() what you use "
            "for long"
        )
        raise UnavailableError(message) from error
    except QueueNotFoundError as error:
        message = (
            f"an executor does not find {url}: either the queue was deleted since the driver read "
            "it, or the executors have no access to its store. They read the segments of a deep "
            "queue by themselves: give them access, or read through a broker (bucketq://)"
        )
        raise UnavailableError(message) from error
    return jobs


def _spans(
    index: SegmentIndex, each: SegmentSlice, kinds: Collection[str]
) -> Iterator[tuple[int, int]]:
    """Yield the positions of a slice that may have these kinds, as first and behind the last.

    In a ``ready`` segment the jobs of a kind follow each other, so that few blocks are read.
    """
    if not kinds or not index.runs:
        if not kinds or not set(kinds).isdisjoint(index.kinds):
            yield each.start, each.stop
        return
    for run in index.runs:
        start, stop = max(run.start, each.start), min(run.stop, each.stop)
        if run.kind in kinds and start < stop:
            yield start, stop
