"""Batches of a golden object, and jobs that wait for others."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from msgspec import Raw, structs

from bucketq.model.job_batches import BatchRecord, Callback
from bucketq.model.records import Backoff, BatchCounts, Failure, JobRecord
from bucketq.model.state import State

_CREATED = datetime(2024, 5, 17, 8, 30, tzinfo=UTC)


def _at(seconds: float) -> datetime:
    return _CREATED + timedelta(seconds=seconds)


_BATCHES = (
    BatchRecord(
        id="größe L",
        seq=1,
        opened_at=_at(1.25),
        jobs=3,
        completed=1,
        on_done=Callback(
            kind="report",
            payload=Raw(b'"AAECAwQF/v8="'),
            payload_encoding="base64",
            priority=-5,
            max_attempts=7,
            backoff=Backoff(2.0, 1.5, 60.0),
            tags={"team": "search"},
            group="acme",
        ),
    ),
    BatchRecord(
        id="batch-2",
        seq=70,
        opened_at=_at(2),
        jobs=7,
        completed=4,
        cancelled=1,
        dead=1,
        expired=1,
        closed_at=_at(3),
        ended_at=_at(4),
        callback="job-5",
    ),
    BatchRecord(
        id="batch-3",
        seq=71,
        opened_at=_at(2),
        closed_at=_at(3),
        ended_at=_at(3),
        was_cancelled=True,
        first_seq=7,
    ),
)
_JOB = JobRecord(
    id="job-1",
    kind="index",
    status="queued",
    seq=1,
    payload=Raw(b'{"page":1}'),
    pushed_at=_at(5),
    batch_id="größe L",
)
_JOBS = (
    _JOB,
    structs.replace(_JOB, id="job-2", seq=2, after=("job-1", "job-4"), on_failed="run"),
    structs.replace(
        _JOB,
        id="job-3",
        seq=3,
        batch_id=None,
        status="dead",
        after=("job-0",),
        errors=(Failure(_at(6), 0, "failed", "job job-0, which it was to follow, is dead"),),
        finished_at=_at(6),
    ),
    structs.replace(_JOB, id="job-4", seq=4, batch_id=None),
    structs.replace(
        _JOB,
        id="job-5",
        seq=5,
        batch_id=None,
        done_batch=BatchCounts("batch-2", 7, 4, 1, 1, 1),
    ),
)


def linked() -> State:
    """A queue with batches that are open, done and cancelled, and a job that is held."""
    state = State(
        incarnation="01K0L1NKED0000000000000000",
        created_at=_CREATED,
        jobs=_JOBS,
        batches=_BATCHES,
    )
    state.requires.update(dict.fromkeys(("batches", "after")))
    state.settings = structs.replace(
        state.settings,
        max_format=2,
        max_batches=50,
        batch_retention_s=600.0,
        max_held=100,
        max_held_bytes=65536,
    )
    state.next_seq = 6
    state.extra = {("batches", "batch-2"): {"news": Raw(b"[1.50]")}}
    return state
