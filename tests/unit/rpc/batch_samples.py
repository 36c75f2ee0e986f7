"""Batches, as they are sent."""

from __future__ import annotations

from datetime import UTC, datetime

from msgspec import Raw

from bucketq.model.job_batches import (
    BatchRecord,
    Callback,
    CancelBatch,
    CancelJobs,
    CancelledJobs,
    CloseBatch,
    OpenBatch,
    ReadBatches,
)

_NOON = datetime(2026, 1, 31, 12, 0, 0, 123456, tzinfo=UTC)

BATCH = BatchRecord(
    id="größe L",
    seq=1,
    opened_at=_NOON,
    jobs=7,
    on_done=Callback(kind="report", payload=Raw(b"[1]"), tags={"team": "growth"}),
)
ENDED_BATCH = BatchRecord(
    id="b1",
    seq=2,
    opened_at=_NOON,
    jobs=4,
    completed=1,
    cancelled=1,
    dead=1,
    expired=1,
    closed_at=_NOON,
    ended_at=_NOON,
    callback="j1",
)
BATCH_OPERATIONS = (
    OpenBatch(batch="b1"),
    CloseBatch(batch="b1"),
    CancelBatch(batch="b1"),
    CancelJobs(batch="b1", limit=300),
    CancelJobs(batch="b1", after=2**62, limit=1),
    ReadBatches(),
    ReadBatches(batch="b1"),
)
BATCH_ANSWERS = (
    ("open_batch", None),
    ("close_batch", BATCH),
    ("cancel_batch", ENDED_BATCH),
    ("cancel_jobs", CancelledJobs(2, 1, 7)),
    ("cancel_jobs", CancelledJobs(0, 0)),
    ("batches", ()),
    ("batches", (BATCH, ENDED_BATCH)),
)
