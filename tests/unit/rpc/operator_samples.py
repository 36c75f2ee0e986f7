"""Requests about workers and operators, and their answers, for the tests of the wire."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from msgspec import structs

from bucketq.model import audit_records, worker_records
from bucketq.model.history import ForgetHistory
from bucketq.model.operations import AnyOperation, ReadStats, ReadTokens, SetPriority
from bucketq.model.queue_stats import StatsSample

NOON = datetime(2026, 1, 31, 12, 0, 0, 123456, tzinfo=UTC)
ANNOUNCEMENT = worker_records.Announce(
    id="5e5e", name="host:1", host="host", pid=4711, version="1.2", concurrency=10, up_s=1.5
)
WORKER = ANNOUNCEMENT.row(1, NOON)
ACTION = audit_records.AuditRecord(id="00000001", seq=1, at=NOON, action="pause", by="ada@host")
STATS_SAMPLES = (
    StatsSample(7200.5, 40, 9, 1, 0, 2, None, None, 12000, 50),
    StatsSample(0.25, 42, 2, 0, 1, 0, 1, 1.5, 12345, 52, 0.02, 0.3),
)
OPERATOR_OPERATIONS: tuple[AnyOperation, ...] = (
    ForgetHistory(before=7),
    ForgetHistory(before=7, is_asked=True),
    ANNOUNCEMENT,
    structs.replace(ANNOUNCEMENT, leaving=True, kinds=("mail", "größe"), running=3, draining=True),
    SetPriority(job="", priority=0),
    SetPriority(job="j1", priority=-5),
    worker_records.DrainWorker(worker=""),
    worker_records.DrainWorker(worker="host:1"),
    worker_records.ReadWorkers(),
    audit_records.ReadAudit(),
    audit_records.ReadAudit(limit=5),
    ReadStats(samples=True),
    ReadTokens(),
)
OPERATOR_ANSWERS: tuple[tuple[str, Any], ...] = (
    ("forget_history", 8),
    ("announce", True),
    ("announce", False),
    ("set_priority", None),
    ("drain", 2),
    ("workers", ()),
    ("workers", (WORKER, structs.replace(WORKER, kinds=("a",), running=1, draining=True))),
    ("audit", ()),
    ("audit", (ACTION, structs.replace(ACTION, about=("j1",), count=3, until=NOON))),
)
