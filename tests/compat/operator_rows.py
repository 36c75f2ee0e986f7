"""Golden rows of workers, of actions of operators, and of where results of archived jobs are."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from msgspec import Raw

from bucketq.model.audit_records import AuditRecord
from bucketq.model.indexes.result_table import ResultTable
from bucketq.model.indexes.table import Table
from bucketq.model.indexes.worker_table import WorkerTable
from bucketq.model.results import ResultRow, hashes_of
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


_FILE = "2026-01-01T00/00000000000000000041-9f86d081884c7d65.jsonl"
_NEXT = "2026-01-01T01/00000000000000000041-6b86b273ff34fce1.jsonl"
_RESULTS = (
    ResultRow(id="00000000000000001065-9f86d081884c7d65.results", seq=7, at=_at(60), count=5000),
    ResultRow(
        id="00000008",
        seq=8,
        at=_at(70),
        count=3,
        files=(_FILE, _NEXT),
        hashes=hashes_of(["01KG9MFMM0PWD5ARV0FP67PJ7K", "größe L", "job-3"]),
    ),
    ResultRow(
        id="00000009", seq=9, at=_at(80.25), count=1, files=(_NEXT,), hashes=hashes_of(["job-4"])
    ),
)


def archived() -> State:
    """A queue whose jobs have left with results."""
    state = State(incarnation="01JZZZZZZZZZZZZZZZZZZZZZZX", created_at=_CREATED)
    state.requires["segments"] = None
    state.results = ResultTable(_RESULTS)
    state.extra = {("results", "00000009"): {"news": Raw(b"[1.50]")}}
    return state
