"""The jobs of a push whose rows are kept here as segments."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from msgspec import Raw

from bucketq.model.base import NewJob
from bucketq.model.records import Backoff

_CREATED = datetime(2024, 5, 17, 8, 30, tzinfo=UTC)

PUSH = (
    NewJob(id="new-0", kind="mail", payload=Raw(b'{"to":"gr\\u00f6\\u00dfe"}')),
    NewJob(id="new-1", kind="index", payload=Raw(b"1"), priority=-5),
    NewJob(
        id="new-2",
        kind="mail",
        payload=Raw(b'"AAE="'),
        payload_encoding="base64",
        max_attempts=7,
        backoff=Backoff(2.0, 1.5, 60.0),
        key="order/4713",
        tags={"größe": "L"},
        replay_of="job-archived",
    ),
    NewJob(
        id="new-3", kind="mail", payload=Raw(b"[]"), run_at=_CREATED + timedelta(seconds=90_000)
    ),
    NewJob(id="new-4", kind="index", payload=Raw(b"null"), tags={}),
    NewJob(
        id="new-5", kind="index", payload=Raw(b"null"), run_at=_CREATED + timedelta(seconds=80_000)
    ),
)
