"""What every operation is, and the job that some of them bring."""

from __future__ import annotations

from datetime import datetime

from msgspec import Raw, Struct

from bucketq.model.records import Backoff, Encoding


class NewJob(Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True):
    """A job to be pushed."""

    id: str
    kind: str
    payload: Raw
    payload_encoding: Encoding | None = None
    priority: int = 0
    delay_s: float | None = None
    """Counted from the commit, by the clock of its writer. Not together with ``run_at``."""
    run_at: datetime | None = None
    max_attempts: int | None = None
    backoff: Backoff | None = None
    key: str | None = None
    tags: dict[str, str] | None = None
    replay_of: str | None = None


class Operation(Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True, tag=str.lower):
    """What every operation is."""
