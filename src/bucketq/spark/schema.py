"""Jobs as rows: the columns, and how records become Arrow batches.

A JSON payload is in ``payload`` as text; ``payload_bytes`` holds what was pushed as bytes, or the
bytes of the JSON. Results likewise.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec
import pyarrow as pa
from msgspec import Raw

from bucketq.model.job import NOTHING, JobRecord

_TIME = pa.timestamp("us", tz="UTC")
_ERRORS = pa.list_(
    pa.struct(
        [
            ("at", _TIME),
            ("attempt", pa.int32()),
            ("cause", pa.string()),
            ("error", pa.string()),
            ("worker", pa.string()),
        ]
    )
)
BATCH_ROWS = 10_000


def _text(body: Raw, encoding: str | None) -> str | None:
    return None if encoding or body is NOTHING or not bytes(body) else bytes(body).decode()


def _bytes(body: Raw, encoding: str | None) -> bytes | None:
    raw = bytes(body)
    if not raw:
        return None
    return base64.b64decode(msgspec.json.decode(raw, type=str)) if encoding else raw


_COLUMNS: tuple[tuple[str, pa.DataType, Callable[[JobRecord], Any]], ...] = (
    ("id", pa.string(), lambda job: job.id),
    ("kind", pa.string(), lambda job: job.kind),
    ("status", pa.string(), lambda job: job.status),
    ("outcome", pa.string(), lambda job: job.outcome),
    ("payload", pa.string(), lambda job: _text(job.payload, job.payload_encoding)),
    ("payload_bytes", pa.binary(), lambda job: _bytes(job.payload, job.payload_encoding)),
    ("result", pa.string(), lambda job: _text(job.result, job.result_encoding)),
    ("result_bytes", pa.binary(), lambda job: _bytes(job.result, job.result_encoding)),
    ("priority", pa.int64(), lambda job: job.priority),
    ("seq", pa.int64(), lambda job: job.seq),
    ("attempt", pa.int32(), lambda job: job.attempt),
    ("failures", pa.int32(), lambda job: job.failures),
    ("lost_leases", pa.int32(), lambda job: job.lost_leases),
    ("max_attempts", pa.int64(), lambda job: job.max_attempts),
    ("pushed_at", _TIME, lambda job: job.pushed_at),
    ("run_at", _TIME, lambda job: job.run_at),
    ("claimed_at", _TIME, lambda job: job.claimed_at),
    ("heartbeat_at", _TIME, lambda job: job.heartbeat_at),
    ("finished_at", _TIME, lambda job: job.finished_at),
    ("worker", pa.string(), lambda job: job.worker),
    ("key", pa.string(), lambda job: job.key),
    ("tags", pa.map_(pa.string(), pa.string()), lambda job: list((job.tags or {}).items())),
    ("cancel_requested", pa.bool_(), lambda job: job.cancel_requested),
    ("replay_of", pa.string(), lambda job: job.replay_of),
    ("error", pa.string(), lambda job: job.errors[-1].error if job.errors else None),
    ("errors", _ERRORS, lambda job: [msgspec.structs.asdict(each) for each in job.errors]),
)

SCHEMA = pa.schema([(name, kind) for name, kind, _ in _COLUMNS])
"""The columns of ``jobs`` and of ``archive``."""

DDL = (
    "id string, kind string, status string, outcome string, payload string, "
    "payload_bytes binary, result string, result_bytes binary, priority bigint, seq bigint, "
    "attempt int, failures int, lost_leases int, max_attempts bigint, pushed_at timestamp, "
    "run_at timestamp, claimed_at timestamp, heartbeat_at timestamp, finished_at timestamp, "
    "worker string, key string, tags map<string,string>, cancel_requested boolean, "
    "replay_of string, error string, errors array<struct<at:timestamp,attempt:int,cause:string,"
    "error:string,worker:string>>"
)
"""The same as Spark writes it."""


def batches(jobs: Sequence[JobRecord]) -> Iterator[pa.RecordBatch]:
    """Turn records into Arrow batches of a size that Spark likes."""
    for first in range(0, len(jobs), BATCH_ROWS):
        some = jobs[first : first + BATCH_ROWS]
        arrays = [pa.array([read(job) for job in some], kind) for _, kind, read in _COLUMNS]
        yield pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)
