"""The changes of a queue as a table: one row for each version, from its history.

The driver reads the queue's object and lists the history. The latest versions travel to the
executors with their tasks, and of others only the numbers: executors find and read the objects that
hold them. Through a broker the driver reads all of them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import msgspec
import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from bucketq.admin import QueueObject
from bucketq.clock import SystemClock
from bucketq.codec.decode import decode
from bucketq.codec.history_file import ChangesName, decode_changes
from bucketq.commit.objects.history_folder import HistoryFolder
from bucketq.errors import HistoryGapError, UnavailableError
from bucketq.queue.change import Change, HistoryRange, change_of
from bucketq.spark.chosen_columns import EVERY_COLUMN, ChosenColumns
from bucketq.spark.executor_memory import exempt_modules
from bucketq.spark.format_options import ReadOptions
from bucketq.spark.queue_access import QueueAccess, opened_store
from bucketq.store.base import ObjectMissingError

_TEXT = pa.string()
_REQUEST = pa.struct([("verb", _TEXT), ("client", _TEXT), ("jobs", pa.list_(_TEXT)), ("by", _TEXT)])
_JOB = pa.struct(
    [
        ("id", _TEXT),
        ("seq", pa.int64()),
        ("is_new", pa.bool_()),
        ("fields", _TEXT),
        ("unset", pa.list_(_TEXT)),
    ]
)
_GONE = pa.struct([("id", _TEXT), ("seq", pa.int64())])
CHANGES_DDL = (
    "incarnation string, version bigint, commit string, at timestamp, epoch bigint, "
    "requests array<struct<verb:string,client:string,jobs:array<string>,by:string>>, "
    "jobs array<struct<id:string,seq:bigint,is_new:boolean,fields:string,unset:array<string>>>, "
    "gone array<struct<id:string,seq:bigint>>, head string"
)
"""The columns as Spark declares them; ``fields`` and ``head`` are JSON objects."""
_SCHEMA = pa.schema(
    [
        ("incarnation", _TEXT),
        ("version", pa.int64()),
        ("commit", _TEXT),
        ("at", pa.timestamp("us", tz="UTC")),
        ("epoch", pa.int64()),
        ("requests", pa.list_(_REQUEST)),
        ("jobs", pa.list_(_JOB)),
        ("gone", pa.list_(_GONE)),
        ("head", _TEXT),
    ]
)
_BATCH_ROWS = 1_000
"""Versions of a busy queue have tens of jobs each."""
_TRIES = 5
_PAUSE_S = 0.5
"""How often a version is looked for, and when again: objects are merged while they are read, which
takes less than a second."""
_encode = msgspec.json.Encoder().encode
_decode_all = msgspec.json.Decoder(list[Change]).decode


class VersionRange(NamedTuple):
    """Versions of one incarnation."""

    incarnation: str
    first: int
    last: int


class ChangesPartition(InputPartition):
    """Versions that an executor reads, or changes that the driver has read, as JSON."""

    def __init__(self, versions: VersionRange | None, body: bytes = b"[]") -> None:
        super().__init__(None)
        self.versions = versions
        self.body = body


class ChangesTableReader(DataSourceReader):
    """Reads the changes of a queue."""

    def __init__(self, options: ReadOptions, columns: ChosenColumns = EVERY_COLUMN) -> None:
        self._options = options
        self._columns = columns

    def partitions(self) -> list[ChangesPartition]:
        """Plan which versions each task reads."""
        options = self._options
        bounds = read_bounds(options.access)
        first = bounds.first if options.first is None else options.first
        last = bounds.last if options.last is None else min(options.last, bounds.last)
        if first < bounds.first:
            raise too_far_back(options.access.url, first, bounds)
        return plan(options.access, VersionRange(bounds.incarnation, first, last))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read the versions of a partition, on an executor."""
        return self._columns.of(read_changes(self._options.access, partition))


def too_far_back(url: str, version: int, bounds: HistoryRange) -> HistoryGapError:
    """Return the error of a read that begins before the history does."""
    return HistoryGapError(
        f"the history of {url} begins with version {bounds.first} (incarnation "
        f"{bounds.incarnation}), and version {version} was asked for: what was before is lost"
    )


def read_bounds(access: QueueAccess) -> HistoryRange:
    """Read which versions the history of a queue has, on the driver."""
    with access.open() as queue:
        return queue.history_range()


def plan(access: QueueAccess, wanted: VersionRange) -> list[ChangesPartition]:
    """Split versions into partitions, at least one."""
    if wanted.first > wanted.last:
        return [ChangesPartition(None)]
    if access.is_broker:
        with access.open() as queue:
            found = queue.changes(wanted.first - 1, incarnation=wanted.incarnation, follow=False)
            rows = [change for change in found if change.version <= wanted.last]
        return [ChangesPartition(None, _encode(rows))]
    return asyncio.run(_plan(access, wanted))


def read_changes(access: QueueAccess, partition: InputPartition) -> Iterator[pa.RecordBatch]:
    """Read the changes of a partition, on an executor."""
    assert isinstance(partition, ChangesPartition)  # noqa: S101 - Spark gives back what it was given
    exempt_modules()
    changes = _decode_all(partition.body)
    if partition.versions is not None:
        changes += asyncio.run(_read_versions(access, partition.versions))
    for begin in range(0, len(changes), _BATCH_ROWS):
        yield _batch(changes[begin : begin + _BATCH_ROWS])


async def _plan(access: QueueAccess, wanted: VersionRange) -> list[ChangesPartition]:
    async with opened_store(access.url) as location:
        target = QueueObject(
            location.store, location.key, location.url, SystemClock(), access.timeout_s
        )
        state = decode((await target.read()).body, location.url).state
        rows = [row for row in state.history.changes if wanted.first <= row.seq <= wanted.last]
        tail = _encode([change_of(row, state.incarnation) for row in rows])
        end = rows[0].seq - 1 if rows else wanted.last
        listed = await target.history_of(wanted.incarnation).list()
    cuts = sorted({name.last for name, _ in listed.changes if wanted.first <= name.last < end})
    made, first = list[ChangesPartition](), wanted.first
    for last in [*cuts, end]:
        if first <= last:
            made.append(ChangesPartition(VersionRange(wanted.incarnation, first, last)))
            first = last + 1
    return [*made, ChangesPartition(None, tail)] if rows else made


async def _read_versions(access: QueueAccess, wanted: VersionRange) -> list[Change]:
    """Read versions from the objects that hold them; those may be merged meanwhile."""
    async with opened_store(access.url) as location:
        folder = HistoryFolder(location.store, location.key, wanted.incarnation, SystemClock())
        changes = list[Change]()
        version, left = wanted.first, _TRIES
        while version <= wanted.last:
            names = [name for name, _ in (await folder.list()).changes]
            try:
                lines = await _lines_from(folder, names, version)
            except ObjectMissingError as error:
                left -= 1
                if not left:
                    message = (
                        f"version {version} of {access.url} is not in its history any more: it was "
                        "forgotten since the driver read it; read again"
                    )
                    raise UnavailableError(message) from error
                await asyncio.sleep(_PAUSE_S)
                continue
            rows = decode_changes(lines[: wanted.last - version + 1], folder.address)
            changes += [change_of(row, wanted.incarnation) for row in rows]
            version += len(rows)
        return changes


async def _lines_from(
    folder: HistoryFolder, names: Sequence[ChangesName], version: int
) -> list[bytes]:
    for name in names:
        if name.first <= version <= name.last:
            return (await folder.read_changes(name))[version - name.first :]
    raise ObjectMissingError(f"no object in {folder.address} has version {version}")


def _batch(changes: Sequence[Change]) -> pa.RecordBatch:
    rows = [
        {
            "incarnation": change.incarnation,
            "version": change.version,
            "commit": change.commit,
            "at": change.at,
            "epoch": change.epoch,
            "requests": [
                {"verb": r.verb, "client": r.client, "jobs": list(r.jobs), "by": r.by}
                for r in change.requests
            ],
            "jobs": [
                {
                    "id": job.id,
                    "seq": job.seq,
                    "is_new": job.is_new,
                    "fields": _encode(job.fields).decode(),
                    "unset": list(job.unset),
                }
                for job in change.jobs
            ],
            "gone": [{"id": name, "seq": seq} for name, seq in change.gone],
            "head": _encode(change.head).decode(),
        }
        for change in changes
    ]
    return pa.RecordBatch.from_pylist(rows, schema=_SCHEMA)
