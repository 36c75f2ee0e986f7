"""Checkpoints of a Delta log: a version of the table in one Parquet file.

With one, a reader does not need the versions up to it. ``_last_checkpoint`` names the newest::

    _delta_log/00000000000000000120.checkpoint.parquet
    _delta_log/_last_checkpoint

A checkpoint only repeats what the log has, and bucketq never deletes a version. So a reader that
cannot use one, because it is damaged, has parts, or pyarrow is missing, reads the log instead.

pyarrow is an extra: it is imported when a checkpoint is read or written.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec
from msgspec import Struct

from bucketq.archive.delta_actions import Action, TableSnapshot
from bucketq.errors import CorruptStateError

LAST_CHECKPOINT = "_last_checkpoint"
_WRITER_MAX = 6
"""Tables for newer writers have actions that are not known here, and would be lost."""
_encode = msgspec.json.Encoder().encode


class LastCheckpoint(Struct, frozen=True, rename="camel", omit_defaults=True):
    """What ``_last_checkpoint`` says; fields that are not known here are ignored."""

    version: int
    size: int
    """The number of actions."""
    parts: int | None = None
    v2_checkpoint: Any = None


def checkpoint_name(version: int) -> str:
    """Return the name of the checkpoint of a version, in the folder of the log."""
    return f"{version:020d}.checkpoint.parquet"


def read_last(body: bytes) -> int | None:
    """Return which version has a checkpoint in one file; None if that is not known."""
    try:
        last = msgspec.json.decode(body, type=LastCheckpoint)
    except msgspec.MsgspecError:
        return None
    return None if last.parts or last.v2_checkpoint else last.version


def encode_checkpoint(snapshot: TableSnapshot, now: datetime) -> tuple[bytes, bytes] | None:
    """Return the checkpoint of a version, and what ``_last_checkpoint`` is to say.

    None if the table has something that a checkpoint written here would lose.
    """
    if snapshot.protocol is None or snapshot.meta_data is None:
        return None
    if snapshot.protocol.min_writer_version > _WRITER_MAX:
        return None
    import pyarrow as pa  # noqa: PLC0415 - no part of the core
    import pyarrow.parquet as pq  # noqa: PLC0415 - no part of the core

    rows = [msgspec.to_builtins(action) for action in snapshot.actions(now)]
    sink = pa.BufferOutputStream()
    pq.write_table(pa.Table.from_pylist(rows, _schema(pa)), sink, compression="snappy")
    return bytes(sink.getvalue()), _encode(LastCheckpoint(snapshot.version, len(rows)))


def decode_checkpoint(body: bytes, version: int, key: str) -> TableSnapshot:
    """Return the version that a checkpoint holds. Raises ``CorruptStateError``."""
    import pyarrow as pa  # noqa: PLC0415 - no part of the core
    import pyarrow.parquet as pq  # noqa: PLC0415 - no part of the core

    snapshot = TableSnapshot(version)
    try:
        table = pq.read_table(pa.BufferReader(body))
        for name in table.column_names:
            for value in table.column(name).drop_null().to_pylist(maps_as_pydicts="strict"):
                snapshot.apply(msgspec.convert({name: _given(value)}, Action))
    except (pa.ArrowException, KeyError, TypeError, ValueError) as error:
        raise CorruptStateError(f"checkpoint {key} cannot be read: {error}") from error
    if snapshot.protocol is None or snapshot.meta_data is None:
        raise CorruptStateError(f"checkpoint {key} has no protocol and metadata")
    return snapshot


def _given(row: dict[str, Any]) -> dict[str, Any]:
    """Leave out what is null, at any depth but in the values of partitions."""
    return {
        name: _given(value) if isinstance(value, dict) and name != "partitionValues" else value
        for name, value in row.items()
        if value is not None
    }


def _schema(pa: Any) -> Any:
    text, number, flag = pa.string(), pa.int64(), pa.bool_()
    texts = pa.map_(text, text)
    file = [("path", text), ("partitionValues", texts), ("size", number), ("dataChange", flag)]
    add = [*file, ("modificationTime", number), ("stats", text), ("tags", texts)]
    remove = [*file, ("deletionTimestamp", number), ("extendedFileMetadata", flag)]
    meta_data = [
        *((name, text) for name in ("id", "name", "description", "schemaString")),
        ("format", pa.struct([("provider", text), ("options", texts)])),
        ("partitionColumns", pa.list_(text)),
        ("configuration", texts),
        ("createdTime", number),
    ]
    protocol = [("minReaderVersion", pa.int32()), ("minWriterVersion", pa.int32())]
    txn = [("appId", text), ("version", number), ("lastUpdated", number)]
    return pa.schema(
        [
            ("txn", pa.struct(txn)),
            ("add", pa.struct(add)),
            ("remove", pa.struct(remove)),
            ("metaData", pa.struct(meta_data)),
            ("protocol", pa.struct(protocol)),
        ]
    )
