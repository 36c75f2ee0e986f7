"""The log of a Delta table: which Parquet files make up the compacted archive.

A commit creates an object ``_delta_log/<20 digits>.json`` that must not exist yet. That is all that
the protocol of Delta requires of a store with conditional creation, which every queue has; so the
log is written here, through the store, and any reader of Delta can read it.

Guarantees: a commit is whole or absent; of two that race, one wins and the other learns that it
lost; and an unknown outcome is resolved before anything else is decided. Versions are read one
after the other, without a listing: from 0, or from the last checkpoint on (``delta_checkpoint``).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Sequence
from importlib.util import find_spec

import msgspec

from bucketq.archive.delta_actions import Action, AddFile, Protocol, RemoveFile, TableSnapshot
from bucketq.archive.delta_checkpoint import (
    LAST_CHECKPOINT,
    checkpoint_name,
    decode_checkpoint,
    encode_checkpoint,
    read_last,
)
from bucketq.clock import Clock, new_token
from bucketq.errors import BucketQError, CorruptStateError, UnavailableError
from bucketq.store.backoff import RetryBackoff
from bucketq.store.base import ObjectMissingError, ObjectStore
from bucketq.store.resolve_write import Verdict, write_until_certain

Field = tuple[str, str | dict[str, object]]
"""A column: its name, and its type as Delta spells it."""

PARTITIONS = ("date", "kind")
_READER_VERSION, _WRITER_VERSION = 1, 2  # No feature of a newer one is used.
_AT_ONCE = 16  # Versions are small, so reading one is mostly latency.
_LEAST_SAVED = 16
"""A checkpoint that saves fewer versions saves no time: those are read at once."""
_PATIENCE_S = 60.0
"""How long to try before the outcome of a commit is called unknown: longer than a failover of
the storage takes, and short enough for a command to say so."""
_FIRST_RETRY_S, _LAST_RETRY_S = 0.25, 8.0  # A short fault costs little, a long one few requests.
CHECKPOINT_EVERY = 10
"""How many versions there are from one checkpoint to the next, as Delta's own writers have it."""

_log = logging.getLogger("bucketq")

_decode = msgspec.json.Decoder(Action).decode
_encode = msgspec.json.Encoder().encode


class DeltaLog:
    """The log of one table, as far as it was read."""

    def __init__(self, store: ObjectStore, root: str, fields: Sequence[Field]) -> None:
        """Keep the table under ``root`` with these columns, the partitions not among them."""
        self._store = store
        self._root = root
        self._fields = fields
        self._snapshot = TableSnapshot()
        self._checkpoint = -1
        """The last version that has a checkpoint, as far as it is known."""

    @property
    def version(self) -> int:
        """The last version that was read; -1 if there is none."""
        return self._snapshot.version

    @property
    def files(self) -> dict[str, AddFile]:
        """The files of that version, by path."""
        return self._snapshot.files

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
            if self.version == 0:
                await self._skip()

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

    async def checkpoint(self, clock: Clock) -> bool:
        """Write a checkpoint of the last version that was read, if one is due.

        It needs pyarrow. A checkpoint saves time and nothing else: if it cannot be written, that is
        logged. Interrupted at any point, it leaves a log that can be read.
        """
        if self.version - self._checkpoint < CHECKPOINT_EVERY:
            return False
        made = encode_checkpoint(self._snapshot, clock.now())
        if made is None:
            return False
        folder = f"{self._root}_delta_log/"
        try:
            # Whole before it is named; two writers of the same version write the same.
            await self._store.put(folder + checkpoint_name(self.version), made[0])
            await self._store.put(folder + LAST_CHECKPOINT, made[1])
        except BucketQError as error:
            _log.warning("no checkpoint of %s version %d: %s", self._root, self.version, error)
            return False
        self._checkpoint = self.version
        return True

    async def _skip(self) -> None:
        """Continue with the last checkpoint, if there is one and it saves time."""
        folder = f"{self._root}_delta_log/"
        last = await self._read(folder + LAST_CHECKPOINT)
        version = None if last is None else read_last(last)
        if version is None:
            return
        self._checkpoint = version
        if version < _LEAST_SAVED or find_spec("pyarrow") is None:
            return
        key = folder + checkpoint_name(version)
        body = await self._read(key)
        try:
            found = None if body is None else decode_checkpoint(body, version, key)
        except CorruptStateError as error:
            _log.warning("%s; the log is read instead", error)
            found = None
        if found is None:
            self._checkpoint = -1  # The next compaction writes another.
        else:
            self._check(found.protocol)
            self._snapshot = found

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
        return await self._read(self._key(version))

    async def _read(self, key: str) -> bytes | None:
        try:
            return (await self._store.get(key)).body
        except ObjectMissingError:
            return None

    def _key(self, version: int) -> str:
        return f"{self._root}_delta_log/{version:020d}.json"

    def _apply(self, body: bytes, version: int) -> None:
        for action in _actions(body, self._key(version)):
            self._check(action.protocol)
            self._snapshot.apply(action)
        self._snapshot.version = version

    def _check(self, protocol: Protocol | None) -> None:
        if protocol and protocol.min_reader_version > _READER_VERSION:
            raise CorruptStateError(
                f"the compacted archive at {self._root} wants a reader of Delta version "
                f"{protocol.min_reader_version}, and this one knows {_READER_VERSION}: "
                "another tool has changed it; read it with that one"
            )

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
