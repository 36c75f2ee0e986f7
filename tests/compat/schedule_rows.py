"""Schedules of a golden object."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from msgspec import Raw, structs

from bucketq.model.records import Backoff
from bucketq.model.schedules import ScheduleRecord
from bucketq.model.state import State

_CREATED = datetime(2024, 5, 17, 8, 30, tzinfo=UTC)


def _at(seconds: float) -> datetime:
    return _CREATED + timedelta(seconds=seconds)


SCHEDULES = (
    ScheduleRecord(
        id="nightly",
        seq=1,
        kind="report",
        payload=Raw(b'{"days":1}'),
        created_at=_at(10),
        decided_at=_at(20.5),
        cron="0 3 * * *",
        timezone="Europe/Berlin",
    ),
    ScheduleRecord(
        id="größe L",
        seq=70,
        kind="ping",
        payload=Raw(b'"AAECAwQF/v8="'),
        created_at=_at(1.25),
        decided_at=_at(301.25),
        payload_encoding="base64",
        priority=-5,
        max_attempts=7,
        backoff=Backoff(2.0, 1.5, 60.0),
        tags={"team": "search"},
        every_s=300.0,
        missed="all",
        jitter_s=2.5,
        alone=True,
        paused=True,
        last_job="job-2",
        last_seq=2,
    ),
)


def add_schedules(state: State) -> State:
    """Let a queue that has these rows be one that allows them."""
    state.requires["schedules"] = None
    state.settings = structs.replace(state.settings, max_format=2, max_schedules=50)
    state.extra = {("schedules", "nightly"): {"news": Raw(b"[1.50]")}}
    return state
