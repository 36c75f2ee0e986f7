"""Batches, as they are sent."""

from __future__ import annotations

from datetime import UTC, datetime

from msgspec import Raw

from bucketq.model import numbered_batches
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
    numbered_batches.ClaimBatch(
        consumer="spark",
        epoch=3,
        batch=2**63 - 1,
        secret="5e" * 16,
        worker="driver",
        kinds=("index", "mail"),
        limit=500,
        lease_s=600.5,
        max_failures=3,
        max_bytes=2**60,
        acked=2**63 - 2,
    ),
    numbered_batches.PrepareBatch(
        consumer="", epoch=0, batch=0, secret="", worker="", kinds=(), limit=-1
    ),
    numbered_batches.PrepareBatch(
        consumer="spark",
        epoch=3,
        batch=2**63 - 1,
        secret="5e" * 16,
        worker="driver",
        kinds=("index", "mail"),
        limit=500,
        lease_s=600.5,
        max_bytes=2**60,
    ),
    numbered_batches.SettleBatch(consumer="", batch=0, jobs=()),
    numbered_batches.SettleBatch(
        consumer="spark",
        batch=7,
        jobs=(
            numbered_batches.SettledJob(job="j1", lease="l1"),
            numbered_batches.SettledJob(job="j2", lease="l2", result=Raw(b"[1]")),
            numbered_batches.SettledJob(
                job="j3", lease="l3", result=Raw(b'"AA=="'), result_encoding="base64"
            ),
            numbered_batches.SettledJob(job="j4", lease="l4", error="", retry=False),
        ),
    ),
    OpenBatch(batch="b1"),
    CloseBatch(batch="b1"),
    CancelBatch(batch="b1"),
    CancelJobs(batch="b1", limit=300),
    CancelJobs(batch="b1", after=2**62, limit=1),
    ReadBatches(),
    ReadBatches(batch="b1"),
)
BATCH_ANSWERS = (
    ("settle_batch", numbered_batches.BatchState(7, 1, ("j2",))),
    ("prepare_batch", numbered_batches.BatchState(7, 1, ("j2",))),
    ("claim_batch", numbered_batches.BatchState(7, 3, (), 2, ("j1",), 3)),
    ("open_consumer", numbered_batches.ConsumerState("spark", 3, 7, 0, True, 9)),
    ("open_batch", None),
    ("close_batch", BATCH),
    ("cancel_batch", ENDED_BATCH),
    ("cancel_jobs", CancelledJobs(2, 1, 7)),
    ("cancel_jobs", CancelledJobs(0, 0)),
    ("batches", ()),
    ("batches", (BATCH, ENDED_BATCH)),
)
