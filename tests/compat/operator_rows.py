"""Workers and actions of operators of a golden object."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from msgspec import Raw

from bucketq.model.audit_records import AuditRecord
from bucketq.model.indexes.table import Table
from bucketq.model.indexes.worker_table import WorkerTable
from bucketq.model.state import State
from bucketq.model.worker_records import WorkerRecord

_CREATED = datetime(2024, 5, 17, 8, 30, tzinfo=UTC)


def _at(seconds: float) -> datetime:
    return _CREATED + timedelta(seconds=seconds)


_WORKERS = (
    WorkerRecord(
        id="9f1c0b3a5d7e4f60",
        seq=1,
        name="host-9:4711",
        host="host-9",
        pid=4711,
        version="1.2.3",
        concurrency=10,
        since=_at(3),
        at=_at(63.5),
    ),
    WorkerRecord(
        id="00000000000000aa",
        seq=67,
        name="größe L",
        host="host-8",
        pid=1,
        version="1.2.3",
        concurrency=1,
        since=_at(1),
        at=_at(60),
        kinds=("mail", "report/daily"),
        running=1,
        draining=True,
    ),
)
_AUDIT = (
    AuditRecord(id="00000009", seq=9, at=_at(5), action="pause", by="ada@host-9"),
    AuditRecord(
        id="00000010",
        seq=10,
        at=_at(6),
        action="cancel",
        by="token 4f1e09ab",
        about=("job-1", "job-2"),
        count=70,
        until=_at(9.25),
    ),
)


def operated() -> State:
    """A queue with workers that write directly, and with actions of operators."""
    state = State(incarnation="3f1c0b3a5d7e4f60", created_at=_CREATED)
    state.workers, state.audit = WorkerTable(_WORKERS), Table(_AUDIT)
    state.paused = True
    state.extra = {
        ("workers", _WORKERS[0].id): {"news": Raw(b"[1.50]")},
        ("audit", "00000009"): {"news": Raw(b"null")},
    }
    return state
