"""The log of a Delta table: which Parquet files make up the compacted archive.

A commit creates an object ``_delta_log/<20 digits>.json`` that must not exist yet. That is all that
the protocol of Delta requires of a store with conditional creation, which every queue has; so the
log is written here, through the store, and any reader of Delta can read it.

Guarantees: a commit is whole or absent; of two that race, one wins and the other learns that it
lost; and an unknown outcome is resolved before anything else is decided. Versions are read one
after the other from 0, without a listing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from datetime import UTC, date, datetime, timedelta
from urllib.parse import quote, unquote

import msgspec
from msgspec import UNSET, Struct, UnsetType

from bucketq.clock import Clock, new_token
from bucketq.errors import CorruptStateError, UnavailableError
from bucketq.store.backoff import RetryBackoff
from bucketq.store.base import ObjectMissingError, ObjectStore
from bucketq.store.resolve_write import Verdict, write_until_certain

Field = tuple[str, str | dict[str, object]]
"""A column: its name, and its type as Delta spells it."""

PARTITIONS = ("date", "kind")
_READER_VERSION, _WRITER_VERSION = 1, 2  # No feature of a newer one is used.
_AT_ONCE = 16  # Versions are small, so reading one is mostly latency.
_PATIENCE_S = 60.0
"""How long to try before the outcome of a commit is called unknown: longer than a failover of
the storage takes, and short enough for a command to say so."""
_FIRST_RETRY_S, _LAST_RETRY_S = 0.25, 8.0  # A short fault costs little, a long one few requests.
_MILLISECOND = timedelta(milliseconds=1)
_DAY = timedelta(days=1)
_FINISHED = "finished_at"


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


class CommitInfo(Struct, frozen=True, rename="camel", omit_defaults=True):
    """Which program wrote a version; ``txn_id`` identifies the write."""

    txn_id: str | None = None


class Action(Struct, frozen=True, rename="camel", omit_defaults=True):
    """A line of the log; other kinds of lines are ignored."""

    add: AddFile | None = None
    remove: RemoveFile | None = None
    protocol: Protocol | None = None
    commit_info: CommitInfo | None = None


_decode = msgspec.json.Decoder(Action).decode
_encode = msgspec.json.Encoder().encode


class DeltaLog:
    """The log of one table, as far as it was read."""

    def __init__(self, store: ObjectStore, root: str, fields: Sequence[Field]) -> None:
        """Keep the table under ``root`` with these columns, the partitions not among them."""
        self._store = store
        self._root = root
        self._fields = fields
        self.version = -1
        """The last version that was read; -1 if there is none."""
        self.files: dict[str, AddFile] = {}
        """The files of that version, by path."""

    async def refresh(self) -> list[AddFile]:
        """Read the versions that were added since; return the files that they added."""
        before, at_once = set(self.files), 1
        while True:
            # The first one alone, because most archives have no table and most refreshes find
            # nothing new; then more and more at once.
            wanted = range(self.version + 1, self.version + 1 + at_once)
            at_once = min(2 * at_once, _AT_ONCE)
            found = await asyncio.gather(*map(self._get, wanted))
            for version, body in zip(wanted, found, strict=True):
                if body is None:
                    return [file for path, file in self.files.items() if path not in before]
                self._apply(body, version)

    async def commit(
        self, actions: Iterable[AddFile | RemoveFile], clock: Clock, operation: str
    ) -> bool:
        """Write the next version; return False if another writer wrote it first.

        Raises:
            UnavailableError: It may have been written; read the log again before anything else.
        """
        version, token = self.version + 1, new_token(clock)
        now_ms = int(clock.now().timestamp() * 1000)
        info = {
            "timestamp": now_ms,
            "operation": operation,
            "operationParameters": {},
            "engineInfo": "bucketq",
            "txnId": token,
        }
        lines: list[object] = [{"commitInfo": info}]
        if version == 0:
            lines += self._head(token, now_ms)
        lines += [{("add" if isinstance(each, AddFile) else "remove"): each} for each in actions]
        body = b"\n".join([*map(_encode, lines), b""])
        if not await self._create(version, body, token, clock):
            return False
        self._apply(body, version)
        return True

    async def _create(self, version: int, body: bytes, token: str, clock: Clock) -> bool:
        """Write a version; return whether the existing one is ours."""
        key = self._key(version)

        def judge(there: bytes | None) -> Verdict:
            if there is None:
                return Verdict.OPEN
            return Verdict.LANDED if _token_of(there, key) == token else Verdict.LOST

        try:
            async with asyncio.timeout(_PATIENCE_S):
                outcome = await write_until_certain(
                    lambda: self._store.create(key, body),
                    lambda: self._get(version),
                    judge,
                    lambda: RetryBackoff(clock, _FIRST_RETRY_S, _LAST_RETRY_S),
                )
        except TimeoutError as error:
            message = f"it is unknown whether {key} was written: the storage gave no answer in time"
            raise UnavailableError(f"{message}; run it again") from error
        return outcome.verdict is Verdict.LANDED

    async def _get(self, version: int) -> bytes | None:
        try:
            return (await self._store.get(self._key(version))).body
        except ObjectMissingError:
            return None

    def _key(self, version: int) -> str:
        return f"{self._root}_delta_log/{version:020d}.json"

    def _apply(self, body: bytes, version: int) -> None:
        for action in _actions(body, self._key(version)):
            if action.protocol and action.protocol.min_reader_version > _READER_VERSION:
                raise CorruptStateError(
                    f"the compacted archive at {self._root} wants a reader of Delta version "
                    f"{action.protocol.min_reader_version}, and this one knows {_READER_VERSION}: "
                    "another tool has changed it; read it with that one"
                )
            if action.remove:
                self.files.pop(action.remove.path, None)
            if action.add:
                self.files[action.add.path] = action.add
        self.version = version

    def _head(self, token: str, now_ms: int) -> list[object]:
        columns: list[Field] = [*self._fields, ("date", "date"), ("kind", "string")]
        schema = {
            "type": "struct",
            "fields": [
                {"name": name, "type": kind, "nullable": True, "metadata": {}}
                for name, kind in columns
            ],
        }
        metadata = {
            "id": f"{token[:8]}-{token[8:12]}-{token[12:16]}-{token[16:20]}-{token[20:]}",
            "format": {"provider": "parquet", "options": {}},
            "schemaString": _encode(schema).decode(),
            "partitionColumns": list(PARTITIONS),
            # The log is read from its beginning, so no writer may remove old versions.
            "configuration": {"delta.enableExpiredLogCleanup": "false"},
            "createdTime": now_ms,
        }
        return [{"protocol": Protocol(_READER_VERSION, _WRITER_VERSION)}, {"metaData": metadata}]


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


def _token_of(body: bytes, key: str) -> str | None:
    tokens = (each.commit_info.txn_id for each in _actions(body, key) if each.commit_info)
    return next(tokens, None)


def _actions(body: bytes, key: str) -> list[Action]:
    try:
        return [_decode(line) for line in body.splitlines() if line.strip()]
    except msgspec.MsgspecError as error:
        raise CorruptStateError(
            f"{key} cannot be read as a version of a Delta table: {error}"
        ) from error
