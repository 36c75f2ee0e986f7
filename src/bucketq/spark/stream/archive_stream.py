"""``spark.readStream.format("bucketq").option("table", "archive")``: finished jobs as a stream.

An offset is a time: a micro-batch has the jobs that finished from one time up to another, each
once, whether or not they are compacted meanwhile. So one that is repeated has the same rows.
Nothing is claimed, and nothing in the queue is changed.

The end of a micro-batch is a time before which all jobs that have finished are in the archive. The
queue keeps a finished job until it is there, so that is the time of the oldest one that it has, or
now; less ``settleSeconds``, because the clocks of those who finish jobs differ, and a commit takes
a moment.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    SupportsTriggerAvailableNow,
)

from bucketq.admin import QueueObject
from bucketq.archive.archive_layout import Layout
from bucketq.archive.compacted import open_log
from bucketq.clock import Clock, SystemClock
from bucketq.codec.heading import read_heading
from bucketq.codec.lines import read_job_lines
from bucketq.spark.chosen_columns import EVERY_COLUMN, ChosenColumns
from bucketq.spark.format_options import ArchiveStreamOptions, archive_stream_options
from bucketq.spark.format_values import refuse
from bucketq.spark.queue_access import QueueAccess, opened_store
from bucketq.spark.table.archive_table import ArchivePartition, ArchiveTableReader

if TYPE_CHECKING:
    import pyarrow as pa

_STEPS = 5
"""A micro-batch ends at a whole multiple of this part of ``settleSeconds``: each one reads the
archive files of its hour again, so there must not be many in an hour."""
_LOOK_S = 1.0
"""How often the queue is read at most while its finished jobs wait to be archived."""
_EPOCH = datetime(2000, 1, 1, tzinfo=UTC)


class _JobEnd(Struct):
    status: str
    pushed_at: datetime
    finished_at: datetime | None = None


_decode_end = msgspec.json.Decoder(_JobEnd).decode


class ArchiveStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A stream of the finished jobs of a queue."""

    def __init__(
        self,
        given: Mapping[str, str],
        columns: ChosenColumns = EVERY_COLUMN,
        clock: Clock | None = None,
    ) -> None:
        self._given = dict(given)
        self._columns = columns
        self._clock = clock or SystemClock()
        self._until: datetime | None = None
        """Where a query ends that ends by itself; None: it does not end."""
        self._seen: tuple[datetime, datetime] | None = None
        """When the queue was read last, and the end that was found."""

    @cached_property
    def _options(self) -> ArchiveStreamOptions:
        return archive_stream_options(self._given)

    def initialOffset(self) -> dict[str, str]:  # noqa: N802 - Spark's name
        """Return where a query without a checkpoint begins: with the first job there is."""
        options = self._options
        first = options.first or asyncio.run(_first_hour(options.access))
        return _offset(self._settled(_EPOCH) if first is None else first)

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """Return that a micro-batch is limited by an option of ours only."""
        return ReadAllAvailable()

    def latestOffset(  # noqa: N802 - Spark's name
        self, start: dict[str, str], limit: ReadLimit
    ) -> dict[str, str]:
        """Return the time at which the next micro-batch ends."""
        del limit
        begin = _time(start)
        end = self._settled(begin) if self._until is None else self._until
        return _offset(max(begin, min(end, begin + self._options.longest)))

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Read only the jobs that have finished by now."""
        self._until = self._settled(_EPOCH)

    def partitions(self, start: dict[str, str], end: dict[str, str]) -> list[ArchivePartition]:
        """Split the time of a micro-batch."""
        since, until = _time(start), _time(end)
        if since >= until:
            return []
        return ArchiveTableReader(
            replace(self._options.read, since=since, until=until)
        ).partitions()

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read the jobs of a partition, on an executor."""
        return ArchiveTableReader(self._options.read, self._columns).read(partition)

    def commit(self, end: dict[str, str]) -> None:
        """Do nothing: the archive stays as it is."""

    def stop(self) -> None:
        """Do nothing: nothing is open between two calls."""

    def _settled(self, begin: datetime) -> datetime:
        """Return a time before which all jobs that have finished are in the archive.

        The queue is not read if that cannot be later than ``begin``.
        """
        now = self._clock.now()
        latest = self._whole(now)
        if latest <= begin:
            return begin
        if self._seen and timedelta() <= now - self._seen[0] < timedelta(seconds=_LOOK_S):
            return self._seen[1]
        oldest = asyncio.run(_oldest_finished(self._options.access, self._clock))
        end = latest if oldest is None else min(latest, self._whole(oldest))
        self._seen = (now, end)
        return end

    def _whole(self, moment: datetime) -> datetime:
        settle = self._options.settle
        step = settle / _STEPS
        return _EPOCH + (moment - settle - _EPOCH) // step * step


async def _oldest_finished(access: QueueAccess, clock: Clock) -> datetime | None:
    """Return when the first of the jobs finished that are not in the archive yet."""
    async with opened_store(access.url) as location:
        found = QueueObject(location.store, location.key, location.url, clock, access.timeout_s)
        body = (await found.read()).body
        partition = read_heading(body, location.url).partition
    if partition is not None and partition.count > 1:
        refuse(
            f"{location.url} has partitions, and its archive cannot be read as a stream: read it "
            "as a table, by time"
        )
    ends = map(_decode_end, read_job_lines(body, location.url).hot)
    return min((e.finished_at or e.pushed_at for e in ends if e.status == "done"), default=None)


async def _first_hour(access: QueueAccess) -> datetime | None:
    """Return a time before which no job of the archive has finished; None if it is empty."""
    async with opened_store(access.url) as location:
        layout = Layout.of(location.store.url, location.key)
        hours = list[datetime]()
        async for info in location.store.list(layout.root):
            if archive_file := layout.parse(info.key):
                hours.append(archive_file.hour)
                break  # Keys are listed in order, and so are their hours.
        log = open_log(location.store, layout)
        await log.refresh()
        return min([*hours, *(file.span[0] for file in log.files.values())], default=None)


def _offset(moment: datetime) -> dict[str, str]:
    return {"before": moment.astimezone(UTC).isoformat(timespec="microseconds")}


def _time(offset: Mapping[str, str]) -> datetime:
    return datetime.fromisoformat(offset["before"])
