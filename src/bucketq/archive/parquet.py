"""Jobs as rows of Parquet files: what the compacted archive is made of.

A line of a segment comes back as it was: ``payload`` and ``result`` hold its JSON, ``rest`` the
JSON of everything else, with fields of a newer bucketq in it. The other columns repeat what people
ask for by name. A file has its rows hour by hour in row groups of their own, so that an hour is
read without the rest of the day.

pyarrow is no part of the core: it is asked for when there is a file to read or to write.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from importlib.util import find_spec
from typing import Any, NamedTuple

import msgspec
from msgspec import Raw

from bucketq.archive.delta import Field
from bucketq.archive.layout import hour_of
from bucketq.archive.lines import decode_line
from bucketq.errors import CorruptStateError, InvalidRequestError
from bucketq.model.job import JobRecord

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
"""The columns, as Delta spells them; the kind is a partition, and so is the date."""

_GROUP_ROWS = 50_000
_FINISHED = "finished_at"
_fields_of = msgspec.json.Decoder(dict[str, Raw]).decode
_encode = msgspec.json.Encoder().encode


class Row(NamedTuple):
    """A finished job, and its line in the archive."""

    job: JobRecord
    line: bytes


def demand_pyarrow() -> None:
    """Raise ``InvalidRequestError`` that tells what to install."""
    if find_spec("pyarrow") is None:
        message = (
            "the archive of this queue is compacted into Parquet, and reading that needs pyarrow: "
            "pip install pyarrow"
        )
        raise InvalidRequestError(message)


def file_of(rows: Sequence[Row]) -> bytes:
    """A file of jobs of one day and kind, which come hour by hour."""
    import pyarrow as pa  # noqa: PLC0415 - no part of the core
    import pyarrow.parquet as pq  # noqa: PLC0415 - no part of the core

    schema = _schema(pa)
    sink = pa.BufferOutputStream()
    with pq.ParquetWriter(sink, schema, compression="zstd") as writer:
        for group in _by_hour(rows):
            columns = zip(*map(_cells, group), strict=True)
            arrays = [
                pa.array(cells, kind.type) for cells, kind in zip(columns, schema, strict=True)
            ]
            writer.write_table(pa.Table.from_arrays(arrays, schema=schema))
    return bytes(sink.getvalue())


def jobs_in(body: bytes, since: datetime, until: datetime, key: str) -> Iterator[JobRecord]:
    """The jobs of a file that finished from ``since`` up to but not including ``until``."""
    columns = [_FINISHED, "payload", "result", "rest"]
    for batch in _batches(body, since, until, columns, key):
        for finished_at, payload, result, rest in zip(*batch, strict=True):
            if since <= finished_at < until:
                yield decode_line(_joined(payload, result, rest))


def ids_in(body: bytes, since: datetime, until: datetime, key: str) -> set[str]:
    """The ids of the jobs of a file that finished in a stretch of time."""
    return {
        job_id
        for batch in _batches(body, since, until, [_FINISHED, "id"], key)
        for finished_at, job_id in zip(*batch, strict=True)
        if since <= finished_at < until
    }


def _batches(
    body: bytes, since: datetime, until: datetime, columns: list[str], key: str
) -> Iterator[list[list[Any]]]:
    """Columns of the row groups that can hold something of a stretch of time."""
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
        message = f"compacted file {key} cannot be read: {error}"
        raise CorruptStateError(message) from error


def _is_apart(group: Any, since: datetime, until: datetime) -> bool:
    """Whether all rows of a group are known to be out of a stretch of time."""
    for place in range(group.num_columns):
        column = group.column(place)
        if column.path_in_schema == _FINISHED and column.is_stats_set:
            stats = column.statistics
            return bool(stats.has_min_max and (stats.max < since or stats.min >= until))
    return False


def _by_hour(rows: Iterable[Row]) -> Iterator[list[Row]]:
    group: list[Row] = []
    hour: datetime | None = None
    for row in rows:
        its = hour_of(row.job.finished_at or row.job.pushed_at)
        if group and (its != hour or len(group) == _GROUP_ROWS):
            yield group
            group = []
        hour = its
        group.append(row)
    if group:
        yield group


def _cells(row: Row) -> tuple[Any, ...]:
    job, fields = row.job, _fields_of(row.line)
    payload, result = fields.pop("payload", None), fields.pop("result", None)
    return (
        job.id,
        job.finished_at or job.pushed_at,
        job.status,
        job.outcome,
        job.pushed_at,
        job.run_at,
        job.claimed_at,
        job.attempt,
        job.failures,
        job.lost_leases,
        job.priority,
        job.seq,
        job.worker,
        job.key,
        None if job.tags is None else list(job.tags.items()),
        job.replay_of,
        job.errors[-1].error if job.errors else None,
        None if payload is None else bytes(payload).decode(),
        job.payload_encoding,
        None if result is None else bytes(result).decode(),
        job.result_encoding,
        _encode(fields).decode(),
    )


def _joined(payload: str | None, result: str | None, rest: str) -> bytes:
    """The line of a job, put together again."""
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
