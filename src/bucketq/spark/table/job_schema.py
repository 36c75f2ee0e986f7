"""The columns of the tables ``jobs`` and ``archive``, and how jobs get to them.

A JSON payload is in ``payload`` as text; ``payload_bytes`` holds the bytes that were pushed, or
those of the JSON. Both are null if it is a side object that was not fetched; then ``payload_ref``
is the reference. ``payload_size`` is its size in any case. Results likewise.

Batches are built column by column from many records, which is much faster than row by row. A
``JobPartition`` carries jobs to an executor, which then needs no access to the queue, unless it
fetches side objects.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Iterator, Sequence
from operator import attrgetter
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Raw
from msgspec.structs import asdict
from pyspark.sql.datasource import InputPartition

from bucketq.archive.archive_lines import decode_line
from bucketq.model.records import Encoding, JobRecord
from bucketq.model.side_objects import is_side, read_ref
from bucketq.spark.executor_memory import exempt_modules
from bucketq.spark.large_bodies import LargeRef, with_bodies
from bucketq.spark.queue_access import QueueAccess

_TEXT = pa.string()
_BYTES = pa.binary()
_TIME = pa.timestamp("us", tz="UTC")
_FAILURE = {"at": _TIME, "attempt": pa.int32(), "cause": _TEXT, "error": _TEXT, "worker": _TEXT}
_ERRORS = pa.list_(pa.struct(_FAILURE.items()))
_TAGS = pa.map_(_TEXT, _TEXT)
BATCH_ROWS = 10_000
"""Spark's own size of Arrow batches (``spark.sql.execution.arrow.maxRecordsPerBatch``)."""
TASK_BYTES = 16 << 20
"""Of jobs that a task carries, or one job. Spark refuses tasks of more than 128 MiB on a cluster
(its setting rpc.message.maxSize), and holds several copies of each on the driver."""
_encode = msgspec.json.Encoder().encode
_decode_texts = msgspec.json.Decoder(list[str | None]).decode
_decode_jobs = msgspec.json.Decoder(list[JobRecord]).decode
_decode_lines = msgspec.json.Decoder(list[Raw]).decode

_ARROW_TYPES = {
    "string": _TEXT,
    "binary": _BYTES,
    "timestamp": _TIME,
    "int": pa.int32(),
    "bigint": pa.int64(),
    "boolean": pa.bool_(),
    "map<string,string>": _TAGS,
    "array<struct<at:timestamp,attempt:int,cause:string,error:string,worker:string>>": _ERRORS,
}
DDL = (
    "id string, kind string, status string, outcome string, "
    "payload string, payload_bytes binary, result string, result_bytes binary, "
    "priority bigint, seq bigint, attempt int, failures int, lost_leases int, max_attempts bigint, "
    "pushed_at timestamp, run_at timestamp, claimed_at timestamp, heartbeat_at timestamp, "
    "finished_at timestamp, worker string, key string, tags map<string,string>, "
    "cancel_requested boolean, replay_of string, error string, "
    "errors array<struct<at:timestamp,attempt:int,cause:string,error:string,worker:string>>, "
    "job_group string, batch_id string, "
    "payload_size bigint, payload_ref string, result_size bigint, result_ref string"
)
"""The columns as Spark declares them."""
STREAM_DDL = f"{DDL}, consumer string, consumer_batch bigint"
"""Those of a stream, which have the name of its consumer and the queue's number of the batch."""
_COLUMNS = [column.split(" ") for column in DDL.split(", ")]
SCHEMA = pa.schema([(name, _ARROW_TYPES[kind]) for name, kind in _COLUMNS])
"""The same columns for Arrow."""


def job_batches(jobs: Sequence[JobRecord]) -> Iterator[pa.RecordBatch]:
    """Turn records into Arrow batches of at most ``BATCH_ROWS`` rows."""
    for first in range(0, len(jobs), BATCH_ROWS):
        yield _batch(jobs[first : first + BATCH_ROWS])


def fetched_batches(
    jobs: Sequence[JobRecord], access: QueueAccess, fetch_bytes: int
) -> Iterator[pa.RecordBatch]:
    """Fetch payloads and results of up to so many bytes that are not in their jobs.

    Raises as ``with_bodies``.
    """
    exempt_modules()
    for some in with_bodies(access, jobs, fetch_bytes):
        yield from job_batches(some)


def _batch(jobs: Sequence[JobRecord]) -> pa.RecordBatch:
    made: dict[str, pa.Array] = {
        **_bodies(jobs, "payload"),
        **_bodies(jobs, "result"),
        "tags": pa.array([[*job.tags.items()] if job.tags else () for job in jobs], _TAGS),
        "job_group": _column([job.group or None for job in jobs], _TEXT),
        "error": _column([job.errors[-1].error if job.errors else None for job in jobs], _TEXT),
        "errors": pa.array(
            [[*map(asdict, job.errors)] if job.errors else () for job in jobs], _ERRORS
        ),
    }
    for name, kind in zip(SCHEMA.names, SCHEMA.types, strict=True):
        if name not in made:
            made[name] = _column(list(map(attrgetter(name), jobs)), kind)
    return pa.RecordBatch.from_arrays([made[name] for name in SCHEMA.names], schema=SCHEMA)


def _column(values: list[Any], kind: pa.DataType) -> pa.Array:
    if values.count(values[0]) == len(values):  # True of most fields of most jobs.
        return pa.repeat(pa.scalar(values[0], kind), len(values))
    if kind == _TIME:
        # As text, because Arrow parses text much faster than it converts a datetime.
        return pa.array(_decode_texts(_encode(values)), _TEXT).cast(kind)
    return pa.array(values, kind)


def _bodies(jobs: Sequence[JobRecord], name: str) -> dict[str, pa.Array]:
    """Return the columns of payloads or results: as text if it is JSON, as bytes, and the size.

    What stands for one that is not here is in a column of its own, so that it is not taken for it.
    """
    raws = [bytes(raw) or None for raw in map(attrgetter(name), jobs)]
    encodings = list(map(attrgetter(f"{name}_encoding"), jobs))
    texts = contents = _column(raws, _BYTES)
    refs: list[LargeRef | None] = [None] * len(jobs)
    if any(encodings):
        pairs = list(zip(raws, encodings, strict=True))
        texts = _column([None if encoding else raw for raw, encoding in pairs], _BYTES)
        contents = _column([_decoded(raw, encoding) for raw, encoding in pairs], _BYTES)
        refs = [_ref(raw, encoding) for raw, encoding in pairs]
    sizes = pc.binary_length(contents).cast(pa.int64())
    if any(refs):
        sizes = pc.coalesce(sizes, pa.array([ref and ref.bytes for ref in refs], pa.int64()))
    return {
        name: texts.cast(_TEXT),
        f"{name}_bytes": contents,
        f"{name}_size": sizes,
        f"{name}_ref": _column([ref and _encode(ref).decode() for ref in refs], _TEXT),
    }


def _decoded(raw: bytes | None, encoding: Encoding | None) -> bytes | None:
    if encoding is None or raw is None:
        return raw
    return None if is_side(encoding) else base64.b64decode(msgspec.json.decode(raw, type=str))


def _ref(raw: bytes | None, encoding: Encoding | None) -> LargeRef | None:
    if raw is None or encoding is None or not is_side(encoding):
        return None
    ref = read_ref(Raw(raw), "a body")
    return LargeRef(ref.object, ref.bytes, ref.digest, ref.part_bytes, encoding)


class JobPartition(InputPartition):
    """Some jobs as one JSON list, read by the driver."""

    access: QueueAccess | None = None
    """How large payloads are fetched; None: as the reader does it."""
    number: int = 0
    """Of a stream: the number of the batch."""

    def __init__(self, body: bytes) -> None:
        super().__init__(None)
        self.body = body

    @classmethod
    def of_lines(cls, lines: Sequence[bytes]) -> JobPartition:
        """Join jobs that are encoded already, each by itself."""
        return cls(b"[%b]" % b",".join(lines))


def cut_lines(lines: Sequence[bytes]) -> Iterator[Sequence[bytes]]:
    """Cut encoded jobs into what one task carries at most; without jobs there is one empty cut."""
    start, left_bytes = 0, TASK_BYTES
    for place, line in enumerate(lines):
        if len(line) > left_bytes and place > start:
            yield lines[start:place]
            start, left_bytes = place, TASK_BYTES
        left_bytes -= len(line)
    yield lines[start:]


def read_job_partition(
    partition: InputPartition, access: QueueAccess, fetch_bytes: int
) -> Iterator[pa.RecordBatch]:
    """Decode the jobs of a partition, on an executor, and fetch large payloads and results."""
    assert isinstance(partition, JobPartition)  # noqa: S101 - Spark gives back what it was given
    try:
        jobs = _decode_jobs(partition.body)
    except msgspec.ValidationError:  # A newer bucketq may have added fields.
        jobs = [decode_line(bytes(line)) for line in _decode_lines(partition.body)]
    return fetched_batches(jobs, partition.access or access, fetch_bytes)


def with_numbers(
    batches: Iterable[pa.RecordBatch], consumer: str, number: int
) -> Iterator[pa.RecordBatch]:
    """Add the columns that only a stream has."""
    for batch in batches:
        names = pa.repeat(pa.scalar(consumer, _TEXT), batch.num_rows)
        numbers = pa.repeat(pa.scalar(number, pa.int64()), batch.num_rows)
        yield pa.RecordBatch.from_arrays(
            [*batch.columns, names, numbers],
            names=[*batch.schema.names, "consumer", "consumer_batch"],
        )
