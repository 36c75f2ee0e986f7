"""Golden states of jobs that run, with what only some jobs have."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from msgspec import Raw

from bucketq.model.records import BrokerRecord, JobRecord, Progress
from bucketq.model.state import State


def _at(seconds: float) -> datetime:
    return datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=seconds)


def traced() -> State:
    """A job that carries the span in which it was pushed."""
    job = JobRecord(
        id="job-1",
        kind="fetch",
        status="queued",
        seq=1,
        payload=Raw(b"1"),
        pushed_at=_at(1),
        traceparent="00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
    )
    state = State(incarnation="01K0TRACED0000000000000000", created_at=_at(0), jobs=[job])
    state.next_seq = 2
    return state


def snoozed() -> State:
    """A job that its handler has put off."""
    job = JobRecord(
        id="job-1",
        kind="fetch",
        status="queued",
        seq=1,
        payload=Raw(b"1"),
        pushed_at=_at(1),
        run_at=_at(60),
        attempt=4,
        failures=1,
        snoozes=3,
    )
    state = State(incarnation="01JZZZZZZZZZZZZZZZZZZZZZZY", created_at=_at(0), jobs=[job])
    state.next_seq = 2
    return state


def progress() -> State:
    """A job whose handler has said how far it has come."""
    state = State(
        incarnation="01JZZZZZZZZZZZZZZZZZZZZZZZ",
        created_at=_at(0),
        jobs=[
            JobRecord(
                id="job-1",
                kind="render",
                status="running",
                seq=1,
                payload=Raw(b"1"),
                pushed_at=_at(1),
                attempt=1,
                lease="5d41402abc4b2a76b9719d911017c592",
                worker="host-1/4242",
                claimed_at=_at(2),
                heartbeat_at=_at(3),
                progress=Progress(40, 100, "frames"),
            )
        ],
    )
    state.next_seq = 2
    return state


def tls() -> State:
    """A queue whose broker speaks TLS."""
    created_at = datetime(2024, 5, 17, 8, 30, tzinfo=UTC)
    state = State(incarnation="3f1c0b3a5d7e4f60", created_at=created_at)
    since = created_at + timedelta(seconds=1)
    state.broker = BrokerRecord("broker.example:7700", "broker-8a", 1, since, "host-9", tls=True)
    return state
