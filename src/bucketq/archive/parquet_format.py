"""Parquet files of the compacted archive: one row per job.

The line of an archive file can be restored: ``payload`` and ``result`` hold its JSON, ``rest`` the
JSON of all other fields, including those of a newer bucketq. The other columns repeat fields for
queries. Each row group holds one hour, so that an hour is read without the rest of the day.

pyarrow is an extra: it is imported when a file is read or written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from importlib.util import find_spec
from operator import attrgetter
from typing import Any, NamedTuple

import msgspec
from msgspec import Raw

from bucketq.archive.archive_lines import CopyKey, decode_line
from bucketq.archive.delta import Field
from bucketq.errors import CorruptStateError, InvalidRequestError
from bucketq.model.indexes.finished_jobs import finished_at
from bucketq.model.records import JobRecord

_TAGS = {"type": "map", "keyType": "string", "valueType": "string", "valueContainsNull": True}
FIELDS: tuple[Field, ...] = (
    ("id", "string"),
    ("finished_at", "timestamp"),
    ("status", "string"),
    ("outcome", "string"),
    ("pushed_at", "timestamp"),
    ("run_at", "timestamp"),
    ("claimed_at", "timestamp"),
    ("attempt", "integer"),
    ("failures", "integer"),
    ("lost_leases", "integer"),
    ("priority", "long"),
    ("seq", "long"),
    ("worker", "string"),
    ("key", "string"),
    ("tags", dict(_TAGS)),
    ("replay_of", "string"),
    ("error", "string"),
    ("payload", "string"),
    ("payload_encoding", "string"),
    ("result", "string"),
    ("result_encoding", "string"),
    ("rest", "string"),
)
"""The columns, with the types of Delta; kind and date are partitions."""

_FINISHED = "finished_at"
_DIFFERENT = frozenset(["id", "finished_at", "pushed_at", "claimed_at", "seq", "payload", "rest"])
"""Columns whose values hardly ever repeat, so that a dictionary would not pay."""
GROUP_ROWS = 50_000
"""The maximum number of rows in a row group, which is read as a whole."""
_DERIVED: dict[str, Callable[[JobRecord], Any]] = {
    _FINISHED: finished_at,
    "tags": lambda job: None if job.tags is None else list(job.tags.items()),
    "error": lambda job: job.errors[-1].error if job.errors else None,
}
"""Columns that are not simply a field of the job."""
_ENDS = (b",", b"}")
_fields_of = msgspec.json.Decoder(dict[str, Raw]).decode
_encode = msgspec.json.Encoder().encode


class ArchivedRow(NamedTuple):
    """A finished job, and its line in the archive."""

    job: JobRecord
    line: bytes


class Group(NamedTuple):
    """Jobs of one hour and kind as columns, which take less memory than rows."""

    table: Any
    rows: int
    first: datetime
    last: datetime


def demand_pyarrow() -> None:
    """Raise ``InvalidRequestError`` if pyarrow is not installed."""
    if find_spec("pyarrow") is None:
        raise InvalidRequestError(
            "the archive of this queue is compacted into Parquet, and reading that needs pyarrow: "
            "pip install pyarrow"
        )


def group_of(rows: Sequence[ArchivedRow]) -> Group:
    """Turn jobs of one hour and kind into columns."""
    import pyarrow as pa  # noqa: PLC0415 - no part of the core

    schema = _schema(pa)
    arrays = [
        pa.array(cells, kind.type) for cells, kind in zip(_columns(rows), schema, strict=True)
    ]
    moments = [finished_at(row.job) for row in rows]
    table = pa.Table.from_arrays(arrays, schema=schema)
    return Group(table, len(rows), min(moments), max(moments))


def file_of(groups: Sequence[Group]) -> bytes:
    """Encode a file of jobs of one day and kind, hour by hour."""
    import pyarrow as pa  # noqa: PLC0415 - no part of the core
    import pyarrow.parquet as pq  # noqa: PLC0415 - no part of the core

    sink = pa.BufferOutputStream()
    repeated = [name for name, _ in FIELDS if name not in _DIFFERENT]
    with pq.ParquetWriter(sink, _schema(pa), compression="zstd", use_dictionary=repeated) as writer:
        for group in groups:
            writer.write_table(group.table)
    return bytes(sink.getvalue())


def jobs_in(body: bytes, since: datetime, until: datetime, key: str) -> Iterator[JobRecord]:
    """Return the jobs of a file that finished from ``since`` up to but not including ``until``."""
    columns = [_FINISHED, "payload", "result", "rest"]
    for batch in _batches(body, since, until, columns, key):
        for at, payload, result, rest in zip(*batch, strict=True):
            if since <= at < until:
                yield decode_line(_joined(payload, result, rest))


def copies_in(body: bytes, since: datetime, until: datetime, key: str) -> set[CopyKey]:
    """Return the ``copy_key`` of each job of a file that finished in a range of time."""
    return {
        (job_id, seq, at)
        for batch in _batches(body, since, until, ["id", "seq", _FINISHED], key)
        for job_id, seq, at in zip(*batch, strict=True)
        if since <= at < until
    }


def _batches(
    body: bytes, since: datetime, until: datetime, columns: list[str], key: str
) -> Iterator[list[list[Any]]]:
    """Yield columns of the row groups that may hold jobs of a range of time."""
    demand_pyarrow()
    import pyarrow as pa  # noqa: PLC0415 - no part of the core
    import pyarrow.parquet as pq  # noqa: PLC0415 - no part of the core

    try:
        file = pq.ParquetFile(pa.BufferReader(body))
        for group in range(file.num_row_groups):
            if _is_apart(file.metadata.row_group(group), since, until):
                continue
            table = file.read_row_group(group, columns=columns)
            yield [table.column(name).to_pylist() for name in columns]
    except (pa.ArrowException, KeyError) as error:
        raise CorruptStateError(f"compacted file {key} cannot be read: {error}") from error


def _is_apart(group: Any, since: datetime, until: datetime) -> bool:
    """Whether no row of a group can be in a range of time."""
    for place in range(group.num_columns):
        column = group.column(place)
        if column.path_in_schema == _FINISHED and column.is_stats_set:
            stats = column.statistics
            return bool(stats.has_min_max and (stats.max < since or stats.min >= until))
    return False


def _columns(rows: Sequence[ArchivedRow]) -> Iterator[Sequence[Any]]:
    """Yield the values of some jobs, by column in the order of ``FIELDS``."""
    parts = dict(zip(("payload", "result", "rest"), zip(*map(cut, rows), strict=True), strict=True))
    for name, _ in FIELDS:
        if name in parts:
            yield parts[name]
        else:
            value_of = _DERIVED.get(name) or attrgetter(name)
            yield [value_of(row.job) for row in rows]


def cut(row: ArchivedRow) -> tuple[str, str | None, str]:
    """Return the JSON of a job's payload, of its result if it has one, and of everything else.

    A line as a queue writes it is cut at these keys. A key certainly belongs to the line itself,
    and not to a nested value, if no object is opened before it or only the line is closed after
    it. Otherwise the line is decoded and encoded again.
    """
    payload, result = bytes(row.job.payload), bytes(row.job.result)
    head, found, tail = row.line.partition(b',"payload":' + payload)
    if not found or tail[:1] not in _ENDS or head.count(b"{") != 1:
        return _cut_apart(row.line)
    if not result:
        return payload.decode(), None, (head + tail).decode()
    between, found, behind = tail.rpartition(b',"result":' + result)
    if not found or behind.count(b"}") != 1:
        return _cut_apart(row.line)
    return payload.decode(), result.decode(), (head + between + behind).decode()


def _cut_apart(line: bytes) -> tuple[str, str | None, str]:
    fields = _fields_of(line)
    payload, result = fields.pop("payload"), fields.pop("result", None)
    text = None if result is None else bytes(result).decode()
    return bytes(payload).decode(), text, _encode(fields).decode()


def _joined(payload: str | None, result: str | None, rest: str) -> bytes:
    """Return the line of a job."""
    line = rest.removesuffix("}")
    if payload is not None:
        line += f',"payload":{payload}'
    if result is not None:
        line += f',"result":{result}'
    return f"{line}}}".encode()


def _schema(pa: Any) -> Any:
    types = {
        "string": pa.string(),
        "timestamp": pa.timestamp("us", tz="UTC"),
        "integer": pa.int32(),
        "long": pa.int64(),
    }
    return pa.schema(
        [
            (name, types[kind] if isinstance(kind, str) else pa.map_(pa.string(), pa.string()))
            for name, kind in FIELDS
        ]
    )
