"""The actions of a Delta log: files that are added and removed, and what describes the table."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from typing import Any
from urllib.parse import quote, unquote

import msgspec
from msgspec import UNSET, Struct, UnsetType, field
from msgspec.structs import replace

_MILLISECOND = timedelta(milliseconds=1)
_DAY = timedelta(days=1)
_FINISHED = "finished_at"
_KEPT = timedelta(days=7)
"""How long a removal stays in checkpoints: what Delta's own writers do by default."""
_encode = msgspec.json.Encoder().encode


class _Extreme(Struct, frozen=True):
    finished_at: datetime | None = None


class _FileStats(Struct, rename="camel"):
    """Statistics of the rows of a file."""

    min_values: _Extreme = _Extreme()
    max_values: _Extreme = _Extreme()


class AddFile(Struct, frozen=True, rename="camel", omit_defaults=True):
    """A file of the table."""

    path: str
    """Relative to the table, with escapes as in a URL."""
    partition_values: dict[str, str | None]
    size: int
    modification_time: int
    data_change: bool
    stats: str | None = None
    tags: dict[str, str | None] | None = None

    @property
    def name(self) -> str:
        """The path without escapes, relative to the root of the table."""
        return unquote(self.path)

    @property
    def kind(self) -> str | None:
        """The kind of its jobs."""
        return self.partition_values.get("kind")

    @property
    def span(self) -> tuple[datetime, datetime]:
        """The time in which its jobs finished; the whole day if it is not recorded."""
        day = date.fromisoformat(self.partition_values["date"] or "0001-01-01")
        first = datetime(day.year, day.month, day.day, tzinfo=UTC)
        stats = msgspec.json.decode(self.stats or b"{}", type=_FileStats)
        low, high = stats.min_values.finished_at, stats.max_values.finished_at
        return low or first, high or first + _DAY

    def overlaps(self, since: datetime, until: datetime) -> bool:
        """Whether it may hold a job that finished in a range of time."""
        first, last = self.span
        return first < until and last >= since


class RemoveFile(Struct, frozen=True, rename="camel", omit_defaults=True):
    """A file that was removed from the table."""

    path: str
    deletion_timestamp: int | None = None
    data_change: bool | UnsetType = UNSET
    extended_file_metadata: bool | UnsetType = UNSET
    partition_values: dict[str, str | None] | UnsetType = UNSET
    size: int | UnsetType = UNSET


class Protocol(Struct, frozen=True, rename="camel"):
    """The protocol versions that readers and writers of the table must support."""

    min_reader_version: int
    min_writer_version: int


class Transaction(Struct, frozen=True, rename="camel", omit_defaults=True):
    """How far an application that writes to the table has come; bucketq writes none."""

    app_id: str
    version: int
    last_updated: int | None = None


class CommitInfo(Struct, frozen=True, rename="camel", omit_defaults=True):
    """Which program wrote a version; ``txn_id`` identifies the write."""

    txn_id: str | None = None


class Action(Struct, frozen=True, rename="camel", omit_defaults=True):
    """A line of the log; other kinds of lines are ignored."""

    add: AddFile | None = None
    remove: RemoveFile | None = None
    protocol: Protocol | None = None
    meta_data: dict[str, Any] | None = None
    txn: Transaction | None = None
    commit_info: CommitInfo | None = None


class TableSnapshot(Struct):
    """A version of the table: what all actions up to it add up to."""

    version: int = -1
    """-1 before the first."""
    files: dict[str, AddFile] = field(default_factory=dict)
    """By path."""
    removed: dict[str, RemoveFile] = field(default_factory=dict)
    """Files that have left the table, which other tools may still have to delete."""
    transactions: dict[str, Transaction] = field(default_factory=dict)
    protocol: Protocol | None = None
    meta_data: dict[str, Any] | None = None

    def apply(self, action: Action) -> None:
        """Add an action of the next version."""
        if action.remove:
            self.files.pop(action.remove.path, None)
            self.removed[action.remove.path] = action.remove
        if action.add:
            self.removed.pop(action.add.path, None)
            self.files[action.add.path] = action.add
        if action.txn:
            self.transactions[action.txn.app_id] = action.txn
        self.protocol = action.protocol or self.protocol
        self.meta_data = action.meta_data or self.meta_data

    def actions(self, now: datetime) -> Iterator[Action]:
        """Yield the actions that make up this version, without removals of long ago."""
        yield Action(protocol=self.protocol)
        yield Action(meta_data=self.meta_data)
        yield from (Action(txn=each) for each in self.transactions.values())
        yield from (Action(add=replace(each, data_change=False)) for each in self.files.values())
        since_ms = int((now - _KEPT).timestamp() * 1000)
        for each in self.removed.values():
            if (each.deletion_timestamp or 0) >= since_ms:
                yield Action(remove=each)


def added(
    name: str, body_bytes: int, kind: str, span: tuple[datetime, datetime], rows: int, now: datetime
) -> AddFile:
    """Describe a new file whose jobs finished from the first to the last moment of ``span``."""
    # Readers of Delta take the times for whole milliseconds; the last is rounded up, so that
    # none of them misses a job.
    low, high = (_whole(moment) for moment in span)
    stats = {
        "numRecords": rows,
        "minValues": {_FINISHED: _spelled(low)},
        "maxValues": {_FINISHED: _spelled(high if high == span[1] else high + _MILLISECOND)},
        "nullCount": {_FINISHED: 0},
    }
    return AddFile(
        path=quote(name, safe="/="),
        partition_values={"date": span[0].astimezone(UTC).date().isoformat(), "kind": kind},
        size=body_bytes,
        modification_time=int(now.timestamp() * 1000),
        data_change=True,
        stats=_encode(stats).decode(),
    )


def removed(file: AddFile, now: datetime) -> RemoveFile:
    """Return the action that removes a file."""
    return RemoveFile(
        path=file.path,
        deletion_timestamp=int(now.timestamp() * 1000),
        data_change=True,
        extended_file_metadata=True,
        partition_values=file.partition_values,
        size=file.size,
    )


def _whole(moment: datetime) -> datetime:
    utc = moment.astimezone(UTC)
    return utc.replace(microsecond=utc.microsecond // 1000 * 1000)


def _spelled(moment: datetime) -> str:
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
