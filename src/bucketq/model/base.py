"""What every operation is, and the job that some of them bring."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Literal

from msgspec import Raw, Struct

from bucketq.model.records import Backoff, Encoding, JobRecord, OnFailed

MAX_FOLLOW_UPS = 1000
MAX_FOLLOW_UP_BYTES = 1 << 20
"""How many jobs a completion may push, and how many bytes their payloads may have together. They
pass the limits of the queue, so that a completion is never refused, and are written at once."""

LINE_BYTES = 200
"""About what the line of a waiting job takes beside its payload."""

UniqueScope = Literal["queued", "queued+running"]
"""Which jobs a unique job is compared with."""
Replacement = Literal["payload", "run_at", "both"]
"""What a push replaces in the unique job that it finds."""


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
    unique: str | None = None
    """Its unique name: if a job of the same kind and name is in scope, nothing is added."""
    unique_scope: UniqueScope | None = None
    """None: ``queued+running``. Not together with ``unique_s``."""
    unique_s: float | None = None
    """Instead of a scope: the name is taken for so long after it was pushed with a period."""
    replace: Replacement | None = None
    """What is replaced in the job that is there, if it waits; None: nothing."""
    expires_in_s: float | None = None
    """It is finished as ``expired`` unless it is claimed in so many seconds; None: never."""
    group: str = ""
    """With which jobs it shares turns and limits, such as those of a tenant; empty: it has none."""
    batch_id: str | None = None
    """The open batch that it belongs to."""
    after: tuple[str, ...] = ()
    """It is held back until these jobs have completed."""
    on_failed: OnFailed | None = None
    """What happens if one of them does not complete. None: this job is dead then."""
    ends: dict[str, bool] | None = None
    """Of those that are in the archive: whether they completed. The client has looked them up."""
    traceparent: str | None = None
    """The span in which it was pushed, as W3C Trace Context writes it. No part of what is pushed:
    a push that is repeated in another span is the same push."""


def row_bytes(jobs: Sequence[NewJob | JobRecord]) -> int:
    """About how many bytes the lines of waiting jobs take."""
    return LINE_BYTES * len(jobs) + sum([len(job.payload) for job in jobs])


class Operation(Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True, tag=str.lower):
    """What every operation is."""
